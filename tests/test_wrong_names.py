"""Old names and names of other clients: each gets an error of Python's own kind that says what to write."""

from __future__ import annotations

import asyncio
import copy
import importlib
import inspect
import pickle
import re
import traceback
from types import FrameType
from typing import Any

import pytest

import mintlify_async
from mintlify_async import (
    ConfigurationError,
    Job,
    JobRef,
    Limit,
    MintlifySession,
    Quota,
    RetryPolicy,
    Timeouts,
    errors,
    rendering,
    storage,
)
from mintlify_async.jobs.ledger import Claim
from mintlify_async.model.job_record import Source
from mintlify_async.storage.sql_store import SQLStore
from mintlify_async.wrong_names import INSTEAD

MODULES = [name for name in INSTEAD if name.startswith("mintlify_async")]
PUBLIC = [
    importlib.import_module(f"mintlify_async{name}")
    for name in (
        *("", ".errors", ".events", ".messages", ".quota", ".rendering", ".storage", ".testing"),
        *(".contrib.otel", ".contrib.postgres", ".contrib.redis", ".contrib.relay"),
    )
]


def objects(name: str) -> list[Any]:
    """Return the public classes and functions of that name."""
    inner = [one for one in (Claim, Source, SQLStore) if one.__name__ == name]
    return inner or [vars_of(module)[name] for module in PUBLIC if name in vars_of(module)]


def vars_of(module: Any) -> dict[str, Any]:
    return {name: getattr(module, name) for name in module.__all__}


def entries(*, module: bool) -> list[tuple[str, str]]:
    places = [owner for owner in INSTEAD if (owner in MODULES) is module]
    return [(owner, name) for owner in places for name in INSTEAD[owner]]


def says(error: BaseException, new: str) -> bool:
    code = new.partition("; ")[0]
    return (f"write {code} instead" if code else new.removeprefix("; ") or "no replacement") in str(error)


@pytest.mark.parametrize(("module", "name"), entries(module=True))
def test_a_missing_name_of_a_module(module, name):
    """An attribute and an import say what to write, and ``hasattr`` says that the name is not there."""
    loaded = importlib.import_module(module)
    assert not hasattr(loaded, name)
    with pytest.raises(AttributeError) as missing:
        getattr(loaded, name)
    with pytest.raises(ImportError) as refused:
        exec(f"from {module} import {name}", {})
    assert says(missing.value, INSTEAD[module][name])
    assert says(refused.value, INSTEAD[module][name])
    assert type(refused.value) is ImportError


@pytest.mark.parametrize(
    "statement", ["import mintlify_async.contrib.git", "from mintlify_async.contrib.git import GitLedger"]
)
def test_a_missing_module(statement):
    """Python's own error says what to write, from one frame of ours."""
    with pytest.raises(ModuleNotFoundError, match=r"write SQLiteStore\(path\), or RedisStore") as missing:
        exec(statement, {})
    assert missing.value.name == "mintlify_async.contrib.git"


GONE = {
    "mintlify_async": (
        "AbortEvent Data ErrorEvent MemoryConversationStore MemoryLedger ReasoningDelta RequestSent "
        "ResponseReceived RetryScheduled SQLiteConversationStore SQLiteLedger SourceUrl Start "
        "ToolInputAvailable ToolOutputAvailable Turn UnknownEvent"
    ),
    "mintlify_async.contrib.redis": "RedisConversationStore RedisLedger RedisQuotaStore",
    "mintlify_async.contrib.relay": (
        "OpenReply Question RelayFeedback RelayLimits RelayResponse RelaySettings SealError ThreadSeal "
        "relay_router relay_routes"
    ),
    "mintlify_async.errors": "FinishedAnswer JobRecord JobReference PartialMessage ThreadReference",
    "mintlify_async.quota": "Lease MemoryQuotaStore QuotaGate QuotaScope QuotaStore QuotaVerdict QuotaWindow",
    "mintlify_async.storage": (
        "Claim ConversationStore Ledger MemoryConversationStore MemoryLedger SQLiteConversationStore "
        "SQLiteLedger StoredConversation StoredTurn check_job_id check_name check_revision "
        "first_revision no_open_claim store_conflict unknown_version"
    ),
    "mintlify_async.testing": (
        "BrokenChunking BrokenGzip DEFAULT_DOCS Drip Endless GzipBomb HalfHead Keys NetworkGuard "
        "ProposedEdit RawWire Stall TlsAlert VirtualClock WrongLength load_script serve"
    ),
}
"""Public names of 0.2.0 and 0.3.0 that are not there now, read from those releases and not from the table."""

GONE_OF = {
    "Answer": "separate whole (separate)",
    "AnswerStyle": "reasoning suggestions tool_result_bytes (reasoning) (suggestions) (tool_result_bytes)",
    "Conversation": "clear complete history load(last) reset revision send",
    "DocsIndex": "pages search(criteria) search(near) (database) (pages) (sections)",
    "Fault": "for_connections play",
    "Job": "active archived completed failed nulls",
    "JobHandle": "active archived completed failed settled_by wait(on_change) wait(pr_grace) wait(until)",
    "JobLife": (
        "archive_after delays most_stale pr_delay replicas stale_spread states status_after "
        "(archive_after) (pr_delay) (stale_spread) (states)"
    ),
    "JobRef": (
        "baseline baseline_pr_link created_at sent_at to_json turn_seen (awaiting_turn) (baseline) "
        "(baseline_pr_link) (created_at) (sent_at) (turn_seen)"
    ),
    "Limits": (
        "agent_window reset_headers retry_after together (agent_window) (reset_headers) (retry_after) "
        "(together)"
    ),
    "LocalJob": "diff edits",
    "LocalService": "tls_url (clock) (control) (domain) (keys) (observer) (project_id) (replay) (threads)",
    "MintlifySession": (
        "ask(site) ask(timeouts) clock conversation(domain) conversation(history_parts) "
        "conversation(keep_messages) conversation(max_characters) conversation(messages) "
        "conversation(thread) run_job(on_change) run_job(until) (check_key_kind) (clock) (fp) "
        "(max_event_bytes) (max_reply_bytes) (on_request) (on_response) (on_retry) (recorder) "
        "(trust_env) (api_key) (max_retries) (stream) (timeout) (idempotency_key) (thread_id) ask(api_key) "
        "create_job(idempotency_key) run_job(max_retries) conversation(thread_id) with_options(max_retries)"
    ),
    "OpenTelemetryObserver": "(clock)",
    "PollPolicy": (
        "(concurrency) (first) (floor) (jitter) (not_found) (retry_after_cap) (settle_gap) (settle_polls)"
    ),
    "Quota": "acquire observe (limits)",
    "Raw": "(pieces)",
    "RecordedRequest": "as_tuple number",
    "Recorder": "begin",
    "Relay": (
        "feedback open opened respond resume (clock) (error_text) (keep_alive) (limits) "
        "(max_concurrent_per_user) (mode) (on_feedback) (on_finish) (on_unfinished) (page_fields) "
        "(seal_ttl) (stall)"
    ),
    "RetryPolicy": "delay(failure)",
    "Rule": "respond (answer) (respond)",
    "Script": "ask(done) ask(suggestions)",
    "Timeouts": "with_total",
    "wait_all": "(return_exceptions)",
}
"""The same for attributes, and for arguments, which stand in brackets."""

HABITS = {
    "mintlify_async": (
        "AsyncClient AsyncMintlify Client Edit GitLedger LocalService Mintlify OpenTelemetryObserver "
        "PostgresStore RedisLedger RedisStore Relay Session"
    ),
    "mintlify_async.testing": "mintlify_clock mintlify_guard",
    "MintlifySession": "chat request ask(query) ask(prompt) create_job(message) run_job(on_update)",
    "Conversation": "add_turn clear history reset send ask(message) ask(kept)",
    "Reply": "at_hand cancel content growing_text sent_key snapshots",
    "Answer": "choices content to_json",
    "Job": "cancel refresh send wait watch",
    "JobHandle": "cancel wait(on_update) wait(poll_interval)",
    "RetryPolicy": (
        "(backoff) (backoff_factor) (initial_delay) (max_attempts) (max_backoff) (max_delay) (max_retries) "
        "(retries) (total)"
    ),
    "PollPolicy": "(interval) (max_interval) (poll_interval)",
    "Timeouts": "(*) (pool) (read) (write)",
    "Limit": "(*)",
    "Quota": "(ask) (probe_every) (sharers) interface",
    "Relay": "aiohttp_routes app history stop",
    "RedisStreamStore": "(lost_after) (max_bytes)",
    "LocalService": "clock url",
    "Script": "any(json) ask(chunks) create_job(pause) get_job(respond) send_message(json)",
}
"""Names that other clients have, or that a reader of the documentation may guess."""

ARGUMENTS = [
    "api_key",
    "auth",
    "connector",
    "default_headers",
    "extra_headers",
    "history",
    "http2",
    "http_client",
    "idempotency_key",
    "instructions",
    "key",
    "logger",
    "max_retries",
    "max_tokens",
    "model",
    "poll_interval",
    "project",
    "proxies",
    "retries",
    "stream",
    "system",
    "temperature",
    "thread_id",
    "thread_key",
    "token",
    "tools",
    "user",
    "user_id",
    "verify",
]
"""The same for the arguments of the session and of each of its verbs."""


@pytest.mark.parametrize("owner", {**GONE, **GONE_OF, **HABITS})
def test_old_names_and_habits_are_in_the_table(owner):
    """Code that was written for an older version or another client gets more than Python's own error."""
    names = " ".join(names.get(owner, "") for names in (GONE, GONE_OF, HABITS)).split()
    if owner == "MintlifySession":
        verbs = ("", "ask", "conversation", "create_job", "run_job", "with_options")
        names += [f"{verb}({name})" for verb in verbs for name in ARGUMENTS]
    assert {name.removeprefix("@") for name in INSTEAD[owner]} >= set(names)


def call_of(thing: Any, method: str) -> Any:
    """Return a function that calls *method* of a new object, which its ``__init__`` has not seen."""
    if not method:
        return thing
    return getattr(thing.__new__(thing), method)


async def called(function: Any, *args: Any, **kwargs: Any) -> None:
    result = function(*args, **kwargs)
    if inspect.isawaitable(result):
        await result


@pytest.mark.parametrize(("owner", "name"), [(o, n) for o, n in entries(module=False) if "(" in n])
async def test_a_wrong_argument(owner, name):
    """It is a TypeError, as Python's own, and a ConfigurationError that names the argument. Nothing runs."""
    method, argument = name.removesuffix(")").split("(")
    answers = []
    for thing in objects(owner):
        function = call_of(thing, method) if not method or hasattr(thing, method) else None
        if function is None or argument in inspect.signature(function).parameters:
            continue
        wrong = (1, 2, 3) if argument == "*" else ()
        with pytest.raises(TypeError) as refused:
            await called(function, *wrong, **({} if wrong else {argument: "x"}))
        if isinstance(refused.value, ConfigurationError):  # two classes may share a name
            assert refused.value.field == (None if wrong else argument)
            answers.append(refused.value)
    assert answers or argument in inspect.signature(function or thing).parameters
    assert all(says(error, INSTEAD[owner][name]) or not INSTEAD[owner][name] for error in answers)


@pytest.mark.parametrize(("owner", "name"), [(o, n) for o, n in entries(module=False) if "(" not in n])
def test_a_missing_attribute(owner, name):
    """It is an AttributeError that says what to write, and ``hasattr`` says that there is none."""
    bare = name.removeprefix("@")
    things = [thing for thing in objects(owner) if owner != "Answer" or not hasattr(thing, bare)]
    for thing in things:
        assert not hasattr(thing, bare)
        instance = thing.__new__(thing)
        assert not hasattr(instance, bare)
        with pytest.raises(AttributeError) as missing:
            getattr(instance, bare)
        assert says(missing.value, INSTEAD[owner][name])
        assert (missing.value.name, missing.value.obj) == (bare, instance)
    assert things


WORD = re.compile(r"(?<![\w.\"])(?:(?P<class>[A-Z]\w+)|(?P<argument>[a-z_]+)=(?!=))")
OTHERS = {"Starlette", "None", "True"}
"""Names of another package and of Python."""


@pytest.mark.parametrize("new", sorted({new for names in INSTEAD.values() for new in names.values() if new}))
def test_what_to_write_exists(new):
    """Each class and each argument that an error names is there."""
    code = new.partition("; ")[0]
    public = {name: value for module in PUBLIC for name, value in vars_of(module).items()}
    arguments = {
        parameter
        for value in public.values()
        if callable(value)
        for function in (value, *(f for f in vars(value).values() if inspect.isfunction(f)))
        for parameter in signature_names(function)
    }
    for match in WORD.finditer(code):
        if match["class"]:
            assert match["class"] in public or match["class"] in OTHERS
        else:
            assert match["argument"] in arguments | FOREIGN
    for attribute in re.findall(r"\b(?:reply|answer|job|chat|session|claim|ref|service|relay)\.(\w+)", code):
        assert any(hasattr(value, attribute) for value in (*public.values(), Claim)) or attribute in FIELDS


FOREIGN = {"return_exceptions", "routes"}
"""Arguments of other packages."""

FIELDS = {"observer", "script"}
"""Attributes that ``__init__`` makes."""


def signature_names(function: Any) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()


def test_a_fields_door_is_closed_to_python():
    """Copies, pickles and inspection ask for private names only, and get Python's own answers."""
    for value in (RetryPolicy(), Timeouts(), JobRef("p", "j"), Job(id="j", status="active")):
        assert copy.deepcopy(copy.copy(value)) == value
        assert pickle.loads(pickle.dumps(value)) == value
        assert not hasattr(value, "__wrapped__")
        assert not hasattr(value, "_seconds_left")
        assert not hasattr(value, "colour")
    assert "attempts" in inspect.signature(RetryPolicy).parameters
    assert list(inspect.signature(MintlifySession.ask).parameters)[:2] == ["self", "question"]
    assert "active" not in dir(Job)


def test_a_property_keeps_its_own_error():
    """An AttributeError inside a property of a subclass is not replaced."""

    class Ours(MintlifySession):
        @property
        def colour(self) -> str:
            return self.no_such_name  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="no_such_name"):
        Ours().colour  # noqa: B018 - the access is what is tested


def frames_below(error: BaseException) -> list[FrameType]:
    own = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [frame for frame in own if frame.f_code.co_filename != __file__]


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: MintlifySession(verify=False, admin_key="mint_secret"),  # type: ignore[call-arg]
        lambda: MintlifySession(headers={"a": 1}, admin_key="mint_secret"),  # type: ignore[dict-item]
        lambda: MintlifySession(base_url="ftp://docs.example"),
        lambda: MintlifySession().with_options(retry=3),
        lambda: MintlifySession().conversation(busy="never"),  # type: ignore[arg-type]
        lambda: MintlifySession(domain="docs").ask(""),
        lambda: asyncio.run(MintlifySession(project_id="docs").create_job("")),
        lambda: Timeouts(connect=-1),
        lambda: RetryPolicy(attempts=0),
        lambda: Limit(0, per=1),
        lambda: Quota.interface(),  # type: ignore[attr-defined]
        lambda: Job(id="j", status="active").send,  # type: ignore[attr-defined]
        lambda: mintlify_async.SQLiteLedger,  # type: ignore[attr-defined]
        lambda: rendering.SQLiteLedger,  # type: ignore[attr-defined]
        lambda: storage.SQLiteLedger,  # type: ignore[attr-defined]
        lambda: errors.JobRecord,  # type: ignore[attr-defined]
    ],
)
def test_a_traceback_ends_one_frame_below_the_users_line(mistake):
    """That frame is of the table's file or of a module without the name, and shows no key."""
    with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
        mistake()
    (frame,) = [one for one in frames_below(caught.value) if "/asyncio/" not in one.f_code.co_filename]
    assert frame.f_code.co_filename.endswith(("wrong_names.py", "__init__.py", "errors.py"))
    assert "mint_secret" not in repr(frame.f_locals)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


async def test_a_mistake_in_a_function_of_the_user_keeps_its_line(mintlify_session):
    """``on_created`` is called below a frame of this package, and its own line is the one at fault."""

    def mistake(job: Any) -> None:
        mintlify_session.ask("")

    with pytest.raises(ConfigurationError) as caught:
        await mintlify_session.run_job("Fix the typos", on_created=mistake)
    assert mistake.__code__ in [frame.f_code for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
