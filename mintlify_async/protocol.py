"""The four requests and what their answers mean: arguments in, ``Request`` out; ``Answer`` in, models out.

Every fact about the service that the interface document leaves open is a field
of :class:`Assumptions`, so that it can be overridden where it proves wrong.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from attrs import define, field

from .errors import (
    APIStatusError,
    ConfigurationError,
    NotFoundError,
    UnexpectedResponseError,
    printable,
    status_error_class,
)
from .job import Job
from .json_text import mask_text, scan_json, too_deep
from .parts import Message, coerce_messages
from .question import ContextItem, SearchFilter
from .response_info import Headers, ResponseInfo
from .thread import Thread
from .wire_value import EMPTY

__all__ = ["Answer", "Assumptions", "Operation", "Request"]

Operation = Literal["create_job", "get_job", "send_message", "ask"]
KeyKind = Literal["admin", "assistant"]

CURRENT_PATH_MAX_CHARACTERS = 200  # interface 2.3
DEFAULT_RETRIEVAL_PAGE_SIZE = 5  # interface 2.3
MOST = 1e300  # of a number: longer ones cannot be written as JSON
ANONYMOUS = "anonymous"  # interface 2.3: the literal for users without a name


@define(frozen=True, kw_only=True)
class Assumptions:
    """What we take to be true of the service where its interface document is silent.

    Pass ``assumptions=Assumptions(get_job_path="/v3/…")`` to a session to correct
    one. Paths are templates: ``{project_id}``, ``{job_id}`` and ``{domain}`` are
    percent-encoded into them.

    Args:
        base_url: The service's address, when neither the argument nor the environment names one.
        create_job_path: Interface 4.1.
        get_job_path: The polling operation, whose path interface 4.4 does not show.
        send_message_path: Interface 4.2.
        ask_path: Interface 4.3.
        admin_key_prefix: How an admin key begins (interface 5).
        assistant_key_prefix: How an assistant key begins (interface 5).
        foreign_key_prefixes: How keys of other products begin.
        thread_id_header: The response header with a new thread's id, in lower case.
        thread_key_header: The response header with a new thread's key, in lower case.
        request_id_headers: Where the service names a request; the first that is there wins.
    """

    base_url: str = "https://api.mintlify.com"  # assumption: base URL
    create_job_path: str = "/v2/agent/{project_id}/job"
    get_job_path: str = "/v2/agent/{project_id}/job/{job_id}"  # assumption: get-job path
    send_message_path: str = "/v2/agent/{project_id}/job/{job_id}/message"
    ask_path: str = "/discovery/v2/assistant/{domain}/message"
    admin_key_prefix: str = "mint_"  # assumption: key prefixes
    assistant_key_prefix: str = "mint_dsc_"
    foreign_key_prefixes: tuple[str, ...] = ("mint_us_",)
    thread_id_header: str = "x-thread-id"  # assumption: thread headers
    thread_key_header: str = "x-thread-key"
    request_id_headers: tuple[str, ...] = ("x-request-id", "x-vercel-id", "cf-ray")  # assumption: request id

    def kind_of_key(self, key: str) -> str:
        """Return ``admin``, ``assistant``, ``foreign`` or ``unknown``; the longest prefix decides."""
        kinds = [(self.admin_key_prefix, "admin"), (self.assistant_key_prefix, "assistant")]
        kinds += [(prefix, "foreign") for prefix in self.foreign_key_prefixes]
        for prefix, kind in sorted(kinds, key=lambda pair: -len(pair[0])):
            if prefix and key.startswith(prefix):
                return kind
        return "unknown"


@define(eq=False, match_args=False)
class Request:
    """One request, ready to be sent: everything but the key and the host. Nobody changes it.

    (Not frozen, and made with positions where there is one a request: attrs sets each field of a frozen
    class through a call, and an argument by name costs as much again.)

    Args:
        operation: Which of the four it is.
        method: The HTTP method.
        path: The path, percent-encoded.
        route: The path's template, which is what logs show.
        key_kind: Which key it needs.
        body: The JSON body, or None.
        headers: Further headers.
        project_id: For the agent operations.
        job_id: For the operations on a job.
        thread: The thread that the body names, if any.
        prompt: The prompt, for an observer.
        prompt_sha256: Names the prompt without repeating it.
    """

    operation: Operation
    method: str
    path: str
    route: str
    key_kind: KeyKind
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(factory=dict[str, str], repr=False)
    project_id: str | None = None
    job_id: str | None = None
    domain: str | None = None
    thread: Thread | None = None
    prompt: str | None = field(default=None, repr=False)
    prompt_sha256: str | None = None

    @property
    def is_agent_post(self) -> bool:
        """Whether sending it twice would cost a second job or a second turn."""
        return self.operation in ("create_job", "send_message")


@define(kw_only=True, eq=False, repr=False, match_args=False)
class Answer:
    """A whole answer: status, headers (asked for in lower case) and the body's bytes."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """The body as text. JSON is UTF-8; a declared charset is not believed."""
        return self.body.decode("utf-8", "replace").removeprefix("\ufeff")


# Building requests ----------------------------------------------------------------------------


_PLAIN_SEGMENT = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*")  # nothing to encode, and no "." or ".."


def path_segment(value: object, name: str) -> str:
    """Return *value* percent-encoded as one segment of a path.

    Raises:
        ConfigurationError: It is not a string, empty, ``.`` or ``..``, or has a control character.
    """
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be a string; got {type(value).__name__}", field=name)
    if _PLAIN_SEGMENT.fullmatch(value):
        return value
    if not value.strip():
        raise ConfigurationError(f"{name} is empty; give the identifier from the dashboard", field=name)
    if value in (".", ".."):
        raise ConfigurationError(f"{name} must not be {value!r}: it would name another path", field=name)
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise ConfigurationError(f"{name} has a control character; remove it", field=name)
    try:
        return quote(value, safe="")
    except UnicodeEncodeError:
        raise ConfigurationError(f"{name} has half of a surrogate pair; remove it", field=name) from None


def check_prompt(prompt: object) -> str:
    """Return *prompt* when it is a string of at least one character (interface 2.2)."""
    if not isinstance(prompt, str):
        raise ConfigurationError(f"prompt must be a string; got {type(prompt).__name__}", field="prompt")
    if not prompt:
        raise ConfigurationError("prompt is empty; it needs at least 1 character", field="prompt")
    return prompt


def prompt_digest(prompt: str) -> str:
    """Return the SHA-256 of *prompt* in hexadecimal."""
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()


def json_body(value: Mapping[str, Any], name: str = "extra_body") -> bytes:
    """Return *value* as JSON bytes; *name* is blamed for what JSON cannot hold."""
    try:
        return "".join(_encode(value, 0)).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        reason = printable(str(error))
    raise ConfigurationError(f"{name} holds something that JSON cannot: {reason}", field=name)


_ENCODER = json.JSONEncoder(check_circular=False, allow_nan=False, separators=(",", ":"))


def _made_once(encoder: json.JSONEncoder) -> Callable[[Any, int], Iterable[str]]:
    """Return the encoding function that *encoder* would make anew for each value: a third of the cost."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # an interpreter without json's C code
        return lambda value, level: encoder.iterencode(value)
    escape, separators = json.encoder.encode_basestring_ascii, (encoder.key_separator, encoder.item_separator)
    made: Callable[[Any, int], Iterable[str]]
    made = make(None, encoder.default, escape, None, *separators, False, False, False)
    return made


_encode = _made_once(_ENCODER)
_quoted = json.encoder.encode_basestring_ascii  # what it writes a string with

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OUR_HEADERS = frozenset(
    # With "expect" the headers leave before the body, and "nothing was sent" could not be said.
    ("authorization", "content-length", "host", "transfer-encoding", "connection", "expect")
)


def check_headers(headers: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return a copy of *headers* when each is a legal header of its own.

    Raises:
        ConfigurationError: A name or a value is no header, or the header is ours to set.
    """
    if headers is None or (headers.__class__ is dict and not headers):  # nearly always
        return EMPTY
    if not isinstance(headers, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
        raise ConfigurationError("headers must be a mapping of names to values", field="headers")
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
            raise ConfigurationError(
                f"headers: {printable(repr(name))} is not a header's name", field="headers"
            )
        if name.lower() in _OUR_HEADERS:
            raise ConfigurationError(
                f"headers: {name} is set by the session (keys: admin_key=, assistant_key=)", field="headers"
            )
        if not isinstance(value, str) or not (value.isascii() and value.isprintable()):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
            raise ConfigurationError(
                f"headers: the value of {name} must be a string of visible ASCII characters", field="headers"
            )
        checked[name] = value
    return checked


def _extra(extra_body: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if extra_body is None or (extra_body.__class__ is dict and not extra_body):  # nearly always
        return EMPTY
    if not isinstance(extra_body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
        raise ConfigurationError("extra_body must be a mapping of field names to values", field="extra_body")
    return dict(extra_body)


def create_job_request(
    assumptions: Assumptions,
    project_id: str,
    prompt: str,
    *,
    headers: Mapping[str, str] | None = None,
    extra_body: Mapping[str, Any] | None = None,
) -> Request:
    """Build the request of interface 4.1."""
    body = {"prompt": check_prompt(prompt), **_extra(extra_body)}
    return Request(
        "create_job",
        "POST",
        assumptions.create_job_path.format(project_id=path_segment(project_id, "project_id")),
        assumptions.create_job_path,
        "admin",
        json_body(body),
        check_headers(headers),
        project_id=project_id,
        prompt=prompt,
        prompt_sha256=prompt_digest(prompt),
    )


def get_job_request(
    assumptions: Assumptions, project_id: str, job_id: str, *, headers: Mapping[str, str] | None = None
) -> Request:
    """Build the polling request (interface 4.4 names it without its path)."""
    return Request(
        "get_job",
        "GET",
        assumptions.get_job_path.format(
            project_id=path_segment(project_id, "project_id"), job_id=path_segment(job_id, "job_id")
        ),
        assumptions.get_job_path,
        "admin",
        None,
        check_headers(headers),
        project_id=project_id,
        job_id=job_id,
    )


def send_message_request(
    assumptions: Assumptions,
    project_id: str,
    job_id: str,
    prompt: str,
    *,
    headers: Mapping[str, str] | None = None,
    extra_body: Mapping[str, Any] | None = None,
) -> Request:
    """Build the request of interface 4.2."""
    body = {"prompt": check_prompt(prompt), **_extra(extra_body)}
    return Request(
        "send_message",
        "POST",
        assumptions.send_message_path.format(
            project_id=path_segment(project_id, "project_id"), job_id=path_segment(job_id, "job_id")
        ),
        assumptions.send_message_path,
        "admin",
        json_body(body),
        check_headers(headers),
        project_id=project_id,
        job_id=job_id,
        prompt=prompt,
        prompt_sha256=prompt_digest(prompt),
    )


def ask_request(
    assumptions: Assumptions,
    domain: str,
    question: str | Sequence[Message],
    *,
    make_id: Callable[[], str] = str,
    fp: str = ANONYMOUS,
    thread: Thread | None = None,
    retrieval_page_size: float = DEFAULT_RETRIEVAL_PAGE_SIZE,
    filter: SearchFilter | Mapping[str, Any] | None = None,
    context: Sequence[ContextItem | Mapping[str, Any]] | None = None,
    current_path: str | None = None,
    headers: Mapping[str, str] | None = None,
    extra_body: Mapping[str, Any] | None = None,
) -> Request:
    """Build the request of interface 4.3; optional fields that are None are left out.

    A *question* that is a text becomes one user message, whose id *make_id* makes.
    """
    further: dict[str, Any] = {}
    if thread is not None:
        further.update(thread.to_dict())
    if filter is not None:
        further["filter"] = _filter_wire(filter)
    if context is not None:
        further["context"] = _context_wire(context)
    if current_path is not None:
        further["currentPath"] = _check_current_path(current_path)
    extra = _extra(extra_body)
    if extra:
        further.update(extra)
    return Request(
        "ask",
        "POST",
        _ask_path(assumptions.ask_path, domain),
        assumptions.ask_path,
        "assistant",
        _ask_body(_check_fp(fp), question, make_id, _check_page_size(retrieval_page_size), further),
        check_headers(headers),
        None,
        None,
        domain,
        thread,
    )


def _ask_body(
    fp: str,
    question: str | Sequence[Message],
    make_id: Callable[[], str],
    page_size: float,
    further: dict[str, Any],
) -> bytes:
    if isinstance(question, str):
        if not further and type(page_size) is int:
            return _plain_body(fp, make_id(), question, page_size)
        question = [Message.user(question, make_id())]
    body = {"fp": fp, "messages": [message.to_wire() for message in question], "retrievalPageSize": page_size}
    return json_body({**body, **further}, "messages, filter, context or extra_body")


def _plain_body(fp: str, id: str, text: str, page_size: int) -> bytes:
    """Return what ``json_body`` would: most questions are a text and nothing else, and this costs a fifth."""
    return (
        f'{{"fp":{_quoted(fp)},"messages":[{{"id":{_quoted(id)},"role":"user",'
        f'"parts":[{{"type":"text","text":{_quoted(text)}}}]}}],"retrievalPageSize":{page_size}}}'
    ).encode("ascii")


def _ask_path(template: str, domain: object) -> str:
    return _known_path(template, domain) if isinstance(domain, str) else path_segment(domain, "domain")


@lru_cache(maxsize=256)
def _known_path(template: str, domain: str) -> str:
    """Return the path of a question; a program asks about a site or a few."""
    return template.format(domain=path_segment(domain, "domain"))


def check_messages(value: object, make_id: Callable[[], str]) -> list[Message]:
    """Return *value* as the messages of a question: a string is one user message.

    Raises:
        ConfigurationError: There is none, or one is not a message; the field is named.
    """
    if isinstance(value, str) and not value:
        raise ConfigurationError("the question is empty; it needs at least 1 character", field="messages")
    messages = coerce_messages(value, make_id)
    if not messages:
        raise ConfigurationError("messages is empty; give at least one message", field="messages")
    return messages


def check_thread(value: object) -> Thread | None:
    """Return *value* as a thread; a string is a thread's id alone."""
    if value is None or isinstance(value, Thread):
        return value
    if isinstance(value, str) and value:
        return Thread(value)
    raise ConfigurationError("thread must be a Thread, a thread's id, or None", field="thread")


def _check_fp(fp: object) -> str:
    if isinstance(fp, str) and fp:
        return fp
    raise ConfigurationError(
        f'fp must be a string that names the user, or "{ANONYMOUS}"; got {printable(repr(fp), 40)}',
        field="fp",
    )


def _check_page_size(value: object) -> float:
    if type(value) is int and 0 < value < 1_000:  # nearly always
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and -MOST < value < MOST:
        return value
    long = isinstance(value, int) and not isinstance(value, bool)  # its repr would raise
    shown = "a longer one" if long else printable(repr(value), 40)
    raise ConfigurationError(
        f"retrieval_page_size must be a finite number; got {shown}",
        field="retrieval_page_size",
    )


def _check_current_path(value: object) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(
            f"current_path must be a string; got {type(value).__name__}", field="current_path"
        )
    if len(value) > CURRENT_PATH_MAX_CHARACTERS:
        raise ConfigurationError(
            f"current_path has {len(value)} characters; the limit is {CURRENT_PATH_MAX_CHARACTERS}",
            field="current_path",
        )
    return value


def _filter_wire(value: SearchFilter | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(value, SearchFilter):
        return value.to_wire()
    if isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
        return dict(value)
    raise ConfigurationError("filter must be a SearchFilter, a mapping, or None", field="filter")


def _context_wire(items: object) -> list[dict[str, Any]]:
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Sequence):
        raise ConfigurationError("context must be a list of ContextItem", field="context")
    wire: list[dict[str, Any]] = []
    for index, item in enumerate(items):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - users pass anything
        if isinstance(item, Mapping):
            item = _context_item(item, index)  # pyright: ignore[reportUnknownArgumentType] - it checks
        if not isinstance(item, ContextItem):
            raise ConfigurationError(
                f"context[{index}] must be a ContextItem; got {type(item).__name__}",  # pyright: ignore[reportUnknownArgumentType] - its name is all we say
                field=f"context[{index}]",
            )
        wire.append(item.to_wire())
    return wire


def _context_item(wire: Mapping[str, Any], index: int) -> ContextItem:
    try:
        return ContextItem.from_wire(wire)
    except ConfigurationError as error:
        message = str(error)
    raise ConfigurationError(f"context[{index}]: {message}", field=f"context[{index}]")


def check_base_url(value: object, *, allow_insecure_http: bool) -> str:
    """Return *value* without a trailing slash when keys may be sent to it.

    Raises:
        ConfigurationError: It is no http(s) URL, carries credentials, a query or a
            fragment, or is plain http outside this machine.
    """

    def wrong(why: str) -> ConfigurationError:
        return ConfigurationError(f"base_url {why}", field="base_url")

    if not isinstance(value, str):
        raise wrong(f"must be a string; got {type(value).__name__}")
    if not value.isprintable() or not value.isascii() or " " in value:
        raise wrong("must be visible ASCII characters")
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        raise wrong("is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise wrong("must begin with https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise wrong("must not carry a user name or password; keys go in admin_key= and assistant_key=")
    if parts.query or parts.fragment or "?" in value or "#" in value:
        raise wrong("must not have a query or a fragment")
    if parts.scheme == "http" and not (allow_insecure_http or is_loopback(parts.hostname)):
        raise wrong("is plain http: the key could be read on the way; use https, or allow_insecure_http=True")
    return value.rstrip("/")


def host_of(url: str) -> str | None:
    """Return the host that *url* names, or None."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether *host* is this machine."""
    return host in ("localhost", "::1") or bool(re.fullmatch(r"127(\.\d{1,3}){3}", host))


# Reading answers ------------------------------------------------------------------------------


def response_info(
    assumptions: Assumptions, status: int, headers: Mapping[str, str], attempts: int = 1
) -> ResponseInfo:
    """Return what is kept of an answer's envelope; the thread's key is masked."""
    kept = Headers(headers, hidden=assumptions.thread_key_header)
    return ResponseInfo(
        status=status, headers=kept, request_id=request_id(assumptions, headers), attempts=attempts
    )


def lower_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return *headers* with names in lower case; of a repeated one, the first."""
    lowered: dict[str, str] = {}
    for name, value in headers.items():
        lowered.setdefault(name.lower(), value)
    return lowered


def safe_headers(assumptions: Assumptions, headers: Mapping[str, str]) -> dict[str, str]:
    """Return *headers* with names in lower case and the thread's key masked."""
    lowered = lower_headers(headers)
    if assumptions.thread_key_header in lowered:
        lowered[assumptions.thread_key_header] = "****"
    return lowered


def request_id(assumptions: Assumptions, headers: Mapping[str, str]) -> str | None:
    """Return the service's name for a request, or None."""
    for name in assumptions.request_id_headers:
        if name in headers:
            return headers[name]
    return None


def read_job(assumptions: Assumptions, answer: Answer, attempts: int = 1) -> Job:
    """Return the job in *answer*, a success.

    Raises:
        UnexpectedResponseError: The body is not a job.
    """
    info = response_info(assumptions, answer.status, answer.headers, attempts)
    text = answer.text
    try:
        value: Any = _loads(text)
        if value.__class__ is dict and not too_deep(text, value):
            return Job.from_wire(value, raw=info)
    except (ValueError, RecursionError, UnexpectedResponseError):
        pass
    raise UnexpectedResponseError(
        f"the answer ({answer.status}) is not a job: {printable(answer.text) or 'it is empty'}",
        excerpt=answer.text[:2000],
        status=answer.status,
        headers=info.headers,
        request_id=info.request_id,
    )


def _loads(text: str) -> Any:
    """Return the JSON in *text*; without the layers of ``json.loads`` where nothing stands around it."""
    try:
        value, end = scan_json(text, 0)
        if end == len(text):
            return value
    except (StopIteration, ValueError):
        pass
    return json.loads(text)  # which accepts NaN, and says what is wrong


def server_words(body: str) -> str:
    """Return what an error body says, in one printable line; HTML and the like say nothing."""
    try:
        return printable(_words(json.loads(body)))
    except (ValueError, RecursionError):
        return "" if body.lstrip().startswith("<") else printable(body.strip())


def _words(value: Any) -> str:
    # The agent API answers {"error": …}, others {"message": …} or {"error": …, "details": [{"message": …}]}.
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return ""
    fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType] - JSON
    words = [fields[name] for name in ("error", "message") if isinstance(fields.get(name), str)]
    details: Any = fields.get("details")
    if isinstance(details, list):
        words += [text for text in map(_words, details[:3]) if text]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - JSON
    nested: Any = fields.get("error")
    if isinstance(nested, dict):
        words.append(_words(nested))
    return "; ".join(words)


_HINTS = {
    401: "the key is wrong or has expired; make a new one on the API keys page of the dashboard",
    403: "the key lacks the scope for this, or this address is not on its allow-list",
    429: "a limit of the service is used up",
}


def status_error(
    assumptions: Assumptions, request: Request, answer: Answer, retry_after: float | None
) -> APIStatusError:
    """Return the error that stands for *answer*, which is not a success."""
    body = mask_text(answer.text)
    said = server_words(body)
    hint = _hint(request, answer)
    message = f"{request.operation}: {answer.status}"
    message += f" ({hint})" if hint else ""
    message += f": {said}" if said else ""
    if answer.status == 429 and retry_after is not None:
        message += f"; retry after {retry_after:g} s"
    return status_error_class(answer.status)(
        message,
        status=answer.status,
        body=body,
        headers=safe_headers(assumptions, answer.headers),
        request_id=request_id(assumptions, answer.headers),
        retry_after=retry_after,
        operation=request.operation,
    )


def _hint(request: Request, answer: Answer) -> str:
    if 300 <= answer.status < 400:
        host = host_of(answer.headers.get("location", "")) or "the same host"
        return f"a redirect to {printable(host, 80)}, which is never followed: check base_url"
    if status_error_class(answer.status) is NotFoundError:
        return _not_found_hint(request)
    return _HINTS.get(answer.status, "")


def _not_found_hint(request: Request) -> str:
    if request.operation == "ask":
        if request.thread is not None and request.thread.key is None:
            return (
                "the question named a thread without its key, which the service answers with 404; "
                "the key comes once, with the thread's first answer: keep reply.thread, not its id alone"
            )
        return "no such domain, or no such thread: check domain="
    if request.operation == "create_job":
        return "no such project: check project_id="
    return "no such job in this project: check the job's id and project_id="
