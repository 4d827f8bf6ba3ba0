"""Wrong names, from old versions and other clients, and the errors that say what to write instead.

One table serves three lookups: a missing name of a module, an unknown argument of a call, and a missing
attribute of an object. Type checkers do not use this module, so they report each mistake.

The names are from earlier versions, from the OpenAI, Anthropic, httpx and requests clients, and from the
fields of the service.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, cast

from .errors import ConfigurationError

F = TypeVar("F", bound=Callable[..., Any])

_KEYS: Final = "admin_key= for agent jobs and assistant_key= for questions; they are arguments of the session"
_USER: Final = "fp=; ask(), conversation() and with_options() take it"
_SYSTEM: Final = "session.conversation(system=…).ask(…)"
_CHOICE: Final = "; the service chooses"
_NO_CANCEL: Final = "; the service cannot cancel a job"

_OTHER_CLIENTS: Final = {
    "api_key": _KEYS,
    "auth": _KEYS,
    "token": _KEYS,
    "key": _KEYS,
    "admin_key": "session.with_options(admin_key=…, assistant_key=…)",
    "assistant_key": "session.with_options(admin_key=…, assistant_key=…)",
    "max_retries": "retry=RetryPolicy(attempts=3); the session and with_options() take it",
    "retries": "retry=RetryPolicy(attempts=3); the session and with_options() take it",
    "stream": "; ask() always streams: read it with `async for`, or await it for the complete answer",
    "timeout": "timeouts=Timeouts(request=30); timeout= is an argument of the calls",
    "idempotency_key": "dedupe_key=; the session needs a ledger, such as ledger=SQLiteStore(path)",
    "thread_id": "thread=answer.thread; Thread(id, key) makes a thread from stored values",
    "thread_key": "thread=answer.thread; Thread(id, key) makes a thread from stored values",
    "messages": "ask([…]); the messages are the first argument",
    "model": "; the service chooses the model",
    "project": "project_id=",
    "user": _USER,
    "user_id": _USER,
    "history": "session.conversation().begin_with(messages); a conversation keeps its history",
    "http_client": "client_session=; the session takes an aiohttp.ClientSession",
    "connector": "client_session=; the session takes an aiohttp.ClientSession",
    "default_headers": "headers=",
    "extra_headers": "headers=",
    "poll_interval": "poll=PollPolicy(initial=…); the session and with_options() take it",
    "verify": "ssl=; it takes an ssl.SSLContext",
    "proxies": 'proxy="http://…", or proxy="environment"; it is an argument of the session',
    "trust_env": 'proxy="environment"; it is an argument of the session',
    "http2": "; the connections are HTTP/1.1",
    "logger": 'logging.getLogger("mintlify_async")',
    "system": _SYSTEM,
    "instructions": _SYSTEM,
    "temperature": _CHOICE,
    "max_tokens": _CHOICE,
    "tools": _CHOICE,
    # Arguments of the session of 0.2.
    "recorder": "Recorder(path).record(session)",
    "on_request": "observer=",
    "on_response": "observer=",
    "on_retry": "observer=",
    "clock": "; time is the event loop's",
    "check_key_kind": 'assumptions=Assumptions(admin_key_prefix="", assistant_key_prefix="")',
    "max_event_bytes": "; the limit is 16 MiB for an event",
    "max_reply_bytes": "; the limit is 64 MiB for an answer",
    "fp": _USER,
    "site": "session.with_options(site=…, timeouts=…)",
    "timeouts": "session.with_options(site=…, timeouts=…)",
}

_QUESTION: Final = "ask(question); the question is the first argument"
_INSTRUCTION: Final = "prompt=; it is the first argument"
_AFTER_WAIT: Final = "await job.refresh() after the wait; pr_link is there once the pull request is"
_WATCH: Final = "async for record in job.watch()"
_MEMORY: Final = "MemoryStore()"
_SQLITE: Final = "SQLiteStore(path)"
_REDIS: Final = "RedisStore(client)"
_STORE: Final = "Store; a store of your own has its methods"
_STATUS: Final = 'job.status == "{}"; job.done says whether it has ended'.format
_STATUSES: Final = {word: _STATUS(word) for word in ("active", "completed", "archived", "failed")}
_HISTORY: Final = "session.conversation(…).begin_with(messages, thread=thread)"
_DETECT: Final = "Raw([…]); a Fault of your own has pieces(answer)"
_FAULTS: Final = {
    **dict.fromkeys(("BrokenChunking", "BrokenGzip", "Drip", "Endless", "GzipBomb"), _DETECT),
    **dict.fromkeys(("HalfHead", "Stall", "TlsAlert", "WrongLength"), _DETECT),
}
_ROUTES: Final = "relay.router() or relay.routes()"
_SCRIPT_BODY: Final = {
    f"{verb}({name})": "body="
    for verb in ("ask", "create_job", "send_message", "get_job", "any")
    for name in ("json", "chunks", "respond")
}
_VERBS: Final = ("", "create_job", "run_job", "ask", "conversation", "with_options")


def _both(new: str, *names: str) -> dict[str, str]:
    """Return *new* as the replacement of each name, as an attribute and as an argument of the class."""
    return {old.format(name): new for name in names for old in ("{}", "({})")}


INSTEAD: Final[Mapping[str, Mapping[str, str]]] = {
    # Modules ------------------------------------------------------------------------------------
    "mintlify_async": {
        "Turn": "FollowUp",
        "Client": "MintlifySession",
        "AsyncClient": "MintlifySession",
        "Mintlify": "MintlifySession",
        "AsyncMintlify": "MintlifySession",
        "Session": "MintlifySession",
        "MemoryLedger": _MEMORY,
        "MemoryConversationStore": _MEMORY,
        "SQLiteLedger": _SQLITE,
        "SQLiteConversationStore": _SQLITE,
        "GitLedger": f"{_SQLITE}, or RedisStore(client) for many machines",
        "RedisStore": "from mintlify_async.contrib.redis import RedisStore",
        "RedisLedger": "from mintlify_async.contrib.redis import RedisStore",
        "PostgresStore": "from mintlify_async.contrib.postgres import PostgresStore",
        "Relay": "from mintlify_async.contrib.relay import Relay",
        "LocalService": "from mintlify_async.testing import LocalService",
        "OpenTelemetryObserver": "from mintlify_async.contrib.otel import OpenTelemetryObserver",
        "Edit": "from mintlify_async.rendering import Edit",
        "RequestSent": "observer=",
        "ResponseReceived": "observer=",
        "RetryScheduled": "observer=",
        **{
            name: f"from mintlify_async.events import {name}"
            for name in (
                *("AbortEvent", "Data", "ErrorEvent", "ReasoningDelta", "SourceUrl", "Start"),
                *("ToolInputAvailable", "ToolOutputAvailable", "UnknownEvent"),
            )
        },
    },
    "mintlify_async.errors": {
        "FinishedAnswer": "Answer",
        "JobRecord": "Job",
        "JobReference": "JobRef",
        "PartialMessage": "Message",
        "ThreadReference": "Thread",
    },
    "mintlify_async.quota": {
        "MemoryQuotaStore": _MEMORY,
        **dict.fromkeys(
            ("Lease", "QuotaGate", "QuotaScope", "QuotaStore", "QuotaVerdict", "QuotaWindow"), _STORE
        ),
    },
    "mintlify_async.storage": {
        "Ledger": "from mintlify_async import Ledger; a store of your own has the methods of Store",
        **dict.fromkeys(("MemoryLedger", "MemoryConversationStore"), _MEMORY),
        **dict.fromkeys(("SQLiteLedger", "SQLiteConversationStore"), _SQLITE),
        **dict.fromkeys(("Claim", "ConversationStore", "StoredConversation", "StoredTurn"), _STORE),
        **dict.fromkeys(("check_job_id", "check_name", "check_revision", "first_revision"), ""),
        **dict.fromkeys(("no_open_claim", "store_conflict", "unknown_version"), ""),
    },
    "mintlify_async.contrib": {"git": f"{_SQLITE}, or {_REDIS} for many machines"},
    "mintlify_async.contrib.redis": dict.fromkeys(
        ("RedisConversationStore", "RedisLedger", "RedisQuotaStore"), _REDIS
    ),
    "mintlify_async.contrib.relay": {
        "relay_router": "Relay(session, …).router()",
        "relay_routes": "Relay(session, …).routes()",
        "RelayLimits": "Relay(max_body_bytes=…, max_characters=…, max_messages=…)",
        "RelayFeedback": "; write a route of your own",
        **dict.fromkeys(("OpenReply", "Question", "RelayResponse", "RelaySettings"), _ROUTES),
        **dict.fromkeys(("SealError", "ThreadSeal"), _ROUTES),
    },
    "mintlify_async.testing": {
        "VirtualClock": "virtual_time()",
        "serve": "async with service",
        "Keys": "Customer(admin_key=…, assistant_key=…)",
        "NetworkGuard": "; pytest-socket does it",
        "mintlify_guard": "; pytest-socket does it",
        "mintlify_clock": "mintlify_time",
        "ProposedEdit": "service.jobs[…].prompts",
        "DEFAULT_DOCS": "; docs= has a default",
        "load_script": "service.script, or service.replay(path)",
        "RawWire": _DETECT,
        "faults": "from mintlify_async.testing import Cut, Reset",
        **_FAULTS,
    },
    # Functions and classes ----------------------------------------------------------------------
    "MintlifySession": {
        **{
            f"{verb}({name})": new
            for verb in _VERBS
            for name, new in _OTHER_CLIENTS.items()
            if verb != "with_options" or name not in ("admin_key", "assistant_key", "fp", "site")
        },
        **{f"ask({name})": _QUESTION for name in ("prompt", "input", "query", "message", "text")},
        **{
            f"{verb}({name})": _INSTRUCTION
            for verb in ("create_job", "run_job")
            for name in ("instruction", "instructions", "question", "message", "messages", "input", "text")
        },
        "create_job(on_created)": "run_job(on_created=…)",
        "create_job(check)": "job.wait(check=…)",
        "run_job(on_update)": _WATCH,
        "run_job(on_change)": _WATCH,
        "run_job(until)": _AFTER_WAIT,
        "run_job(pr_grace)": _AFTER_WAIT,
        "conversation(thread)": _HISTORY,
        "conversation(messages)": _HISTORY,
        "conversation(domain)": "session.with_options(domain=…).conversation(…)",
        "conversation(max_characters)": "max_messages=",
        "conversation(history_parts)": "max_messages=",
        "conversation(keep_messages)": "keep= of a store",
        "clock": "; time is the event loop's",
        "request": "session.ask(…) or session.create_job(…)",
        "chat": "session.ask(…) or session.conversation(…)",
    },
    "Conversation": {
        **{f"ask({name})": new for name, new in _OTHER_CLIENTS.items() if name not in ("fp", "timeout")},
        **{f"ask({name})": _QUESTION for name in ("prompt", "input", "query", "message", "messages", "text")},
        "ask(kept)": "begin_with(messages)",
        "add_turn": "begin_with(messages)",
        "load(last)": "chat.messages[-n:] after await chat.load()",
        "complete": "await chat.load(), and then chat.messages",
        "revision": "",
        "history": "chat.messages",
        "send": "chat.ask(…)",
        "clear": "await chat.delete()",
        "reset": "await chat.delete()",
    },
    "Reply": {
        "@snapshots": "reply.message after each event",
        "@growing_text": "reply.text_stream",
        "@at_hand": "",
        "@sent_key": "",
        "@content": "reply.text",
        "@cancel": "await reply.close()",
    },
    "Answer": {
        "content": "answer.text",
        "choices": "answer.text",
        "to_json": "json.dumps(answer.to_dict())",
        # Names of ``Answer`` in the testing kit.
        "(separate)": "",
        "separate": "",
        "whole": "",
    },
    "Job": {
        **{verb: f"session.job(job).{verb}()" for verb in ("send", "wait", "refresh", "watch")},
        **_STATUSES,
        "cancel": _NO_CANCEL,
        "nulls": "job.raw.json, or job.to_wire()",
    },
    "Source": {"nulls": "job.raw.json, or job.to_wire()"},
    "JobHandle": {
        **_STATUSES,
        "cancel": _NO_CANCEL,
        "settled_by": "",
        "wait(poll_interval)": _OTHER_CLIENTS["poll_interval"],
        "wait(until)": _AFTER_WAIT,
        "wait(pr_grace)": _AFTER_WAIT,
        "wait(on_change)": _WATCH,
        "wait(on_update)": _WATCH,
    },
    "JobRef": {
        "to_json": "str(ref)",
        "@from_json": "JobRef.parse(text)",
        "created_at": "ref.created",
        "sent_at": "ref.sent",
        "(created_at)": "created=",
        "(sent_at)": "sent=",
        **_both("ref.was_final and ref.end", "baseline", "baseline_pr_link", "turn_seen"),
        "(awaiting_turn)": "sent=",
    },
    "Claim": {
        "seconds_left": "claim.unknown_from",
        "claimed_at": "claim.since",
        "job_id": "claim.result",
        "fingerprint": "claim.parts",
        "lease_until": "claim.since + claim.lease",
    },
    "RetryPolicy": {
        **dict.fromkeys(("(max_attempts)", "(max_retries)", "(retries)", "(total)"), "attempts="),
        **dict.fromkeys(("(backoff)", "(backoff_factor)", "(initial_delay)"), "base="),
        **dict.fromkeys(("(max_delay)", "(max_backoff)"), "cap="),
        "delay(failure)": "delay(operation, outcome, attempt=…, random=…)",
    },
    "PollPolicy": {
        "(interval)": "initial=",
        "(poll_interval)": "initial=",
        "(first)": "initial=",
        "(max_interval)": "cap=",
        "first": "policy.initial",
        **_both("", "jitter", "floor", "concurrency", "not_found"),
        **_both("", "retry_after_cap", "settle_polls", "settle_gap"),
    },
    "Timeouts": {
        "(*)": "Timeouts(request=30)",
        "(read)": "idle=",
        "(write)": "request=",
        "(pool)": "request=",
        "with_total": "attrs.evolve(timeouts, total=seconds), or timeout= of the call",
    },
    "Limit": {"(*)": "Limit(100, per=3600)"},
    "Quota": {
        "(ask)": "ask_per_key=, ask_per_organization= or ask_per_address=",
        "(limits)": "create_job=, send_message= and ask_per_key=; one argument is one limit",
        "(sharers)": "",
        "(probe_every)": "",
        "acquire": "",
        "@interface": "Quota(…)",
        "observe": "",
    },
    "wait_all": {"(return_exceptions)": "await asyncio.gather(*jobs, return_exceptions=True)"},
    "SQLStore": {"ids": "await Conversation.ids(store, owner=…)"},
    "Relay": {
        "(on_finish)": "on_end=; answer.outcome says how it ended",
        "(on_unfinished)": "on_end=; answer.outcome says how it ended",
        "(on_feedback)": "; write a route of your own",
        "(page_fields)": "ask=; the function gets the fields of the web page",
        "(max_concurrent_per_user)": "max_per_user=",
        "(limits)": "max_body_bytes=, max_characters=, max_messages= and so on",
        **dict.fromkeys(("(mode)", "(keep_alive)", "(stall)", "(seal_ttl)", "(error_text)", "(clock)"), ""),
        **dict.fromkeys(("open", "opened", "respond", "resume", "history", "stop"), _ROUTES),
        "feedback": "; write a route of your own",
        "app": "Starlette(routes=relay.routes())",
        "aiohttp_routes": f"{_ROUTES}; an ASGI server runs them",
        "arriving": "",
    },
    "RedisStreamStore": {"(lost_after)": "; it is 5 s", "(max_bytes)": "; it is 8 MiB"},
    "MemoryStreamStore": {"(max_bytes)": "; it is 8 MiB"},
    "OpenTelemetryObserver": {"(clock)": "; time is the event loop's"},
    "LocalService": {
        "(project_id)": "customers=[Customer(…)]",
        "(domain)": "customers=[Customer(…)]",
        "(keys)": "customers=[Customer(…)]",
        "(threads)": "answers=AnswerStyle(thread=…)",
        "(observer)": "service.observer = …",
        "(replay)": "service.replay(path)",
        "(control)": "service.script",
        "(clock)": "with virtual_time()",
        "clock": "service.now(), or with virtual_time()",
        "url": "service.base_url",
        "tls_url": 'service.base_url.replace("http:", "https:")',
    },
    "Script": {
        **_SCRIPT_BODY,
        "ask(done)": "script.ask(body=[…])",
        "ask(suggestions)": "text=; a suggestions block in the text",
        "create_job(pause)": "body=[Pause(…), …]",
    },
    "Rule": {"(answer)": "body=", "(respond)": "body=", "respond": "rule.body"},
    "AnswerStyle": _both("script.ask(events=[…])", "reasoning", "suggestions", "tool_result_bytes"),
    "JobLife": {
        "(stale_spread)": "stale=(0, 10)",
        "(archive_after)": 'outcome="archived"',
        "(states)": "script.job(…); a status per poll",
        "(pr_delay)": 'script.get_job(fields={"prLink": None})',
        "delays": "service.settle_seconds",
        "most_stale": "service.settle_seconds",
        "status_after": "service.settle_seconds",
        "stale_spread": "stale",
        "archive_after": "outcome",
        "replicas": "",
        "states": "",
        "pr_delay": "",
    },
    "Limits": {
        **_both("script.create_job(status=429, headers={…})", "together", "retry_after", "reset_headers"),
        **_both("; the window is an hour", "agent_window"),
    },
    "LocalJob": {"diff": "prompts", "edits": "prompts"},
    "RecordedRequest": {"as_tuple": "(request.method, request.path, request.json)", "number": ""},
    "DocsIndex": {
        "(pages)": "DocsIndex.load(folder)",
        "(sections)": "DocsIndex.load(folder)",
        "(database)": "DocsIndex.load(folder)",
        "pages": "docs.files",
        "search(criteria)": "",
        "search(near)": "",
    },
    "Raw": {"(pieces)": "Raw([…])"},
    "Fault": {"for_connections": _DETECT, "play": _DETECT},
    "Recorder": {"begin": "Recorder(path).record(session)"},
}
"""For each module, class or function, the replacements of attributes ``name`` and arguments ``method(name)``.

``(name)`` is an argument of the call itself, and ``(*)`` stands for too many arguments without a name.
``@name`` is a class method, or an attribute of a class without ``__getattr__``. With ``__getattr__``, Python
3.11 takes 30 ns more to read each attribute, which is too slow for some classes. After ``; `` is an
explanation. If a text is only an explanation, nothing replaces the name.
"""


NOTHING: Final = "there is no replacement"


def _instead(new: str, nothing: str) -> str:
    code, _, reason = new.partition("; ")
    write = f"write {code} instead" if code else nothing
    return f"{write}; {reason}" if reason else write


def replacement(owner: str, name: str) -> str:
    """Return the sentence that says what to write for *name* of *owner*."""
    return _instead(INSTEAD[owner][name], NOTHING)


def missing_names(module: str) -> Callable[[str], NoReturn]:
    """Return ``__getattr__`` for *module*."""

    def ask(name: str) -> NoReturn:
        raise missing_name(module, name)

    return ask


def missing_name(module: str, name: str) -> Exception:
    """Return the error for a missing *name* of *module*. Only a module's ``__getattr__`` may call it."""
    text = f"module {module!r} has no attribute {name!r}"
    if name in INSTEAD.get(module, {}):
        text = f"{text}: {replacement(module, name)}"
        # ``sys._getframe`` is documented despite its name. ``inspect.stack()`` would read source files.
        if _is_import(sys._getframe(2)):  # pyright: ignore[reportPrivateUsage]
            return ImportError(text, name=module)
    return AttributeError(text, name=name)


def _is_import(frame: Any) -> bool:
    """Whether *frame* runs ``from … import …``. That statement hides the text of an AttributeError."""
    from opcode import opmap  # imported here, because only a mistake needs it

    return bool(frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"])


class UnknownArgumentError(ConfigurationError, TypeError):
    """A call got an argument of another version or of another client."""


def helpful(thing: F) -> F:
    """Make a class or a function raise the table's errors for old arguments and attributes."""
    names = INSTEAD[thing.__name__]
    if not isinstance(thing, type):
        return _checked(thing, f"{thing.__name__}()", "", names)
    methods = {name.partition("(")[0] for name in names if "(" in name}
    for method in methods:
        attribute, callee = (method, f"{method}()") if method else ("__init__", thing.__name__)
        if function := vars(thing).get(attribute):
            setattr(thing, attribute, _checked(function, callee, method, names))
    for name in names:
        if name.startswith("@"):
            setattr(thing, name[1:], _Gone(name[1:], names[name]))
    if any(name.isidentifier() for name in names):
        own = getattr(thing, "__getattr__", None)
        type.__setattr__(thing, "__getattr__", _missing_attribute(names, own))
    return cast("F", thing)


def _checked(function: F, callee: str, method: str, names: Mapping[str, str]) -> F:
    code = inspect.unwrap(function).__code__
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    prefix = f"{method}("
    habits = {name[len(prefix) : -1] for name in names if name.startswith(prefix)}.difference(own)
    most = code.co_argcount if "*" in habits else sys.maxsize

    def refused(args: tuple[Any, ...], kwargs: dict[str, Any]) -> UnknownArgumentError:
        if len(args) > most:
            new = _instead(names[f"{method}(*)"], "")
            return UnknownArgumentError(f"{callee} takes no such argument without a name: {new}")
        name = min(habits.intersection(kwargs))
        new = _instead(names[f"{method}({name})"], "leave it out")
        return UnknownArgumentError(f"{callee} has no argument {name}=: {new}", field=name)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if len(args) > most or not habits.isdisjoint(kwargs):
                raise refused(args, kwargs)
            return function(*args, **kwargs)
        except BaseException as error:
            _shorten_traceback(error, kwargs)
            raise

    @wraps(function)
    async def awaited_call(*args: Any, **kwargs: Any) -> Any:
        try:
            if len(args) > most or not habits.isdisjoint(kwargs):
                raise refused(args, kwargs)
            return await function(*args, **kwargs)
        except BaseException as error:
            _shorten_traceback(error, kwargs)
            raise

    # Other code awaits a call only if the function is a coroutine function.
    return cast("F", awaited_call if inspect.iscoroutinefunction(function) else call)


def _shorten_traceback(error: BaseException, kwargs: dict[str, Any]) -> None:
    """Leave one frame of this package below the line of the mistake, without its keyword arguments.

    An error in a function of the user, such as ``on_created``, keeps all frames.
    """
    kwargs.clear()  # a traceback shows the frame that contains them, and one may be a key
    top = error.__traceback__
    if top is not None and isinstance(error, ConfigurationError):
        # Code that attrs generates has no __name__.
        names = [frame.f_globals.get("__name__", "attr.") for frame, _ in walk_tb(top)]
        if all(name.startswith(("mintlify_async.", "attr.")) for name in names):
            top.tb_next = None


def _missing_attribute(
    names: Mapping[str, str], own: Callable[[object, str], Any] | None
) -> Callable[[object, str], Any]:
    """Return ``__getattr__`` for a class. It then calls *own*, which attrs makes for cached properties."""

    def missing_attribute(self: object, name: str) -> Any:
        new = names.get(name)
        if new is not None:
            text = f"{type(self).__name__} has no attribute {name!r}: {_instead(new, NOTHING)}"
            raise AttributeError(text, name=name, obj=self)
        if own is not None:
            return own(self, name)
        return object.__getattribute__(self, name)  # raises Python's error, or the error of a property

    return missing_attribute


class _Gone:
    """Takes the place of an old name in a class, where ``__getattr__`` is not called or would be slow."""

    def __init__(self, name: str, new: str) -> None:
        self._name, self._new = name, new

    def __get__(self, instance: object, owner: type) -> NoReturn:
        text = f"{owner.__name__} has no attribute {self._name!r}: {_instead(self._new, NOTHING)}"
        raise AttributeError(text, name=self._name, obj=owner if instance is None else instance)


class AsyncOnly:
    """Raises an error that names ``async for`` when an async iterable is used with ``for``."""

    __slots__ = ()

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report a mistake themselves

        def __iter__(self) -> NoReturn:
            raise TypeError(f"{type(self).__name__} is read with `async for`, in an async function")
