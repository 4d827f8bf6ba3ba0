"""The documented defaults, all in one table: a changed one changes what existing programs do."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import attrs
import pytest

from mintlify_async.cli.argument_parser import make_parser
from mintlify_async.cli.job import DEFAULT_WAIT
from mintlify_async.model.wire_value import MISSING

HALF_AN_HOUR = 1800.0
WAIT = {"timeout": HALF_AN_HOUR, "check": True, "until": "terminal", "pr_grace": 60.0}
REDIS = {"namespace": "mintlify", "timeout": 2.0}

DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "mintlify_async MintlifySession": {
        "fp": "anonymous",
        "retrieval_page_size": 5,
        "trust_env": False,
        "allow_insecure_http": False,
        "check_key_kind": True,
        "max_event_bytes": 16 * 1024 * 1024,
        "max_reply_bytes": 64 * 1024 * 1024,
    },
    "mintlify_async MintlifySession.run_job": {"timeout": HALF_AN_HOUR, "check": True, "until": "terminal"},
    "mintlify_async MintlifySession.conversation": {
        "messages": (),
        "commit": "finish",
        "busy": "raise",
        "history_parts": ("text", "file", "source-url"),
    },
    "mintlify_async Conversation.fork": {"keep_thread": False},
    "mintlify_async Conversation.undo": {"keep_thread": False},
    "mintlify_async JobHandle.send": {"on_active": "send"},
    "mintlify_async JobHandle.wait": WAIT,
    "mintlify_async JobHandle.watch": {"timeout": HALF_AN_HOUR},
    "mintlify_async Turn.send": {"on_active": "send"},
    "mintlify_async Turn.wait": WAIT,
    "mintlify_async Turn.watch": {"timeout": HALF_AN_HOUR},
    "mintlify_async as_completed": {"timeout": HALF_AN_HOUR},
    "mintlify_async wait_all": {"timeout": HALF_AN_HOUR, "return_exceptions": False, "check": True},
    "mintlify_async Reply.edits": {"every": 1.2, "limit": 1900},
    "mintlify_async extras_markdown": {"sources": "Sources", "suggestions": "See also"},
    "mintlify_async Quota": {"mode": "raise", "together": False, "address": ""},
    "mintlify_async RetryPolicy": {
        "attempts": 3,
        "base": 0.5,
        "cap": 8.0,
        "pause_after_429": 1.0,
        "retry_after_cap": 60.0,
        "resend_questions": False,
        "budget": 10.0,
    },
    "mintlify_async PollPolicy": {
        "first": 0.0,
        "initial": 2.0,
        "factor": 1.5,
        "cap": 30.0,
        "jitter": 0.2,
        "floor": 1.0,
        "per_second": 50.0,
        "concurrency": 64,
        "timeout": 10.0,
        "outage": 300.0,
        "not_found": 30.0,
        "retry_after_cap": 300.0,
        "settle_polls": 4,
        "settle_seconds": 60.0,
        "settle_gap": 10.0,
    },
    "mintlify_async Timeouts": {
        "connect": 10.0,
        "request": 60.0,
        "first_event": 60.0,
        "idle": 120.0,
        "comments_are_activity": True,
    },
    "mintlify_async Assumptions": {
        "base_url": "https://api.mintlify.com",
        "create_job_path": "/v2/agent/{project_id}/job",
        "get_job_path": "/v2/agent/{project_id}/job/{job_id}",
        "send_message_path": "/v2/agent/{project_id}/job/{job_id}/message",
        "ask_path": "/discovery/v2/assistant/{domain}/message",
        "admin_key_prefix": "mint_",
        "assistant_key_prefix": "mint_dsc_",
        "foreign_key_prefixes": ("mint_us_",),
        "thread_id_header": "x-thread-id",
        "thread_key_header": "x-thread-key",
        "request_id_headers": ("x-request-id", "x-vercel-id", "cf-ray"),
    },
    "mintlify_async.storage check_name": {"max_characters": 200},
    "mintlify_async.contrib.redis RedisConversationStore": REDIS,
    "mintlify_async.contrib.git GitLedger": {
        "remote": "origin",
        "directory": ".",
        "prefix": "refs/mintlify/",
        "timeout": 30.0,
    },
    "mintlify_async.contrib.redis RedisLedger": REDIS,
    "mintlify_async.contrib.redis RedisQuotaStore": {
        "namespace": "mintlify",
        "on_store_error": "raise",
        "timeout": 0.25,
        "probe_every": 1.0,
    },
    "mintlify_async.contrib.redis RedisStreamStore": {
        "namespace": "mintlify",
        "timeout": 1.0,
        "grace": 60.0,
        "keep": 60.0,
        "max_bytes": 8_388_608,
        "lost_after": 5.0,
    },
    "mintlify_async.contrib.redis RedisStreamStore.write": {
        "asked": "",
        "first": False,
        "again": False,
        "force": False,
        "ended": False,
    },
    "mintlify_async.contrib.redis RedisStreamStore.read": {"hurry": False},
    "mintlify_async.contrib.otel OpenTelemetryObserver": {"capture_content": False},
}
"""Each public class and function, with its defaults but None: that means "none", or "the session's"."""

VALUES = ("events", "messages", "errors", "testing", "relay")
"""Modules of values and of tools for tests, and the relay, whose own tests have its limits."""

RECORDS = {
    *("AnswerSource", "ContextItem", "Job", "JobRef", "Message", "SearchFilter"),
    *("Lease", "QuotaRemaining", "QuotaVerdict", "QuotaWindow", "StoredConversation"),
}


def defaults_of(function: Callable[..., Any]) -> dict[str, object]:
    parameters = inspect.signature(function).parameters.values()
    nothing = (inspect.Parameter.empty, None, MISSING, attrs.NOTHING)
    return {one.name: one.default for one in parameters if not any(one.default is none for none in nothing)}


def named(path: str) -> Any:
    module, _, name = path.partition(" ")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("path", DEFAULTS)
def test_a_default_is_what_the_documentation_says(path: str):
    """Every one, with its unit: seconds, bytes, numbers."""
    assert defaults_of(named(path)) == DEFAULTS[path]


def public_functions() -> Iterator[str]:
    """Yield the public functions and classes, and the public methods of these."""
    for line in (Path(__file__).parent / "public_names.txt").read_text(encoding="utf-8").splitlines():
        module, _, name = line.partition(" ")
        if not name or name in RECORDS or module.rpartition(".")[2] in VALUES:
            continue
        found = named(line)
        if (inspect.isclass(found) and issubclass(found, BaseException | str)) or not callable(found):
            continue
        if getattr(found, "__module__", "").endswith((".events", ".messages")):
            continue
        yield line
        for method, _function in inspect.getmembers(found, inspect.isfunction):
            if inspect.isclass(found) and not method.startswith("_"):
                yield f"{line}.{method}"


def test_the_table_has_every_public_function_with_defaults():
    """What is added later is added here; a name may be public in two modules."""
    known = [named(path) for path in DEFAULTS]
    missing = [p for p in public_functions() if named(p) not in known and defaults_of(named(p))]
    assert not missing


def test_the_command_line_has_the_same_defaults():
    """They are written there again, because ``--help`` loads nothing of the library."""
    session = DEFAULTS["mintlify_async MintlifySession"]
    options = make_parser().parse_args(["ask", "How?"])
    assert (options.fp, options.results) == (session["fp"], session["retrieval_page_size"])
    assert DEFAULT_WAIT == HALF_AN_HOUR
    assert f"({DEFAULT_WAIT:g})" in help_of("job wait")
    assert f"({session['retrieval_page_size']})" in help_of("ask")
    assert f"({session['fp']})" in help_of("ask")


def help_of(command: str) -> str:
    with pytest.raises(SystemExit), redirect_stdout(StringIO()) as shown:
        make_parser().parse_args([*command.split(), "--help"])
    return shown.getvalue()
