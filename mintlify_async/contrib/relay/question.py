"""A page's request → the question to ask: read within bounds, checked, and stripped to what may pass.

A page is whatever somebody sends: nothing of it reaches the service that is not
on a list here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

from attrs import field, frozen

from mintlify_async.errors import ConfigurationError
from mintlify_async.question import ContextItem, SearchFilter

from .refusals import RelayRefusal

if TYPE_CHECKING:
    from starlette.requests import Request

    from mintlify_async.clock import Clock

__all__ = ["PAGE_FIELDS", "Question", "RelayLimits", "page_options", "read_question"]

Wire = dict[str, Any]
CURRENT_PATH_MAX_CHARACTERS = 200  # the interface's own bound


def _positive(instance: object, attribute: Any, value: float) -> None:
    if not value > 0:
        raise ConfigurationError(f"{attribute.name} must be above 0", field=attribute.name)


@frozen(kw_only=True)
class RelayLimits:
    """How much a page may send. What is above is refused with 413, before it costs anything.

    Args:
        body_bytes: The whole request, in bytes, counted as it comes in.
            ``useChat`` sends the whole history each time, tool results included.
        messages: Messages in the history.
        parts: Parts of one message, those that do not pass included.
        question_characters: The text of one message of the user.
        answer_characters: The text of one message of the assistant.
        file_characters: The URLs of one message's files; a ``data:`` URL is the file.
        body_seconds: How long the request's body may take to come in, in seconds.

    Raises:
        ConfigurationError: One of them is not above 0.
    """

    body_bytes: int = field(default=4 * 1024 * 1024, validator=_positive)
    messages: int = field(default=200, validator=_positive)
    parts: int = field(default=500, validator=_positive)
    question_characters: int = field(default=32_000, validator=_positive)
    answer_characters: int = field(default=400_000, validator=_positive)
    file_characters: int = field(default=2 * 1024 * 1024, validator=_positive)
    body_seconds: float = field(default=30.0, validator=_positive)


@frozen(kw_only=True)
class Question:
    """What a page asks, checked.

    Attributes:
        messages: The history in the wire's form, with allowed roles and parts only.
        seal: The sealed thread that the page sent back, not opened yet, or None.
        chat_id: The page's own name for the chat, or None.
        fields: What the page sent besides its messages, for the relay's ``ask``; trust none of
            it. Empty once the question was asked: it may be large.
    """

    messages: list[Wire]
    seal: str | None = None
    chat_id: str | None = None
    fields: Mapping[str, Any] = field(factory=dict[str, Any], repr=False)


async def read_question(request: Request, limits: RelayLimits, clock: Clock) -> Question:
    """Read *request* and return what it asks.

    Raises:
        RelayRefusal: It is not JSON, too large, too slow, or not what ``useChat`` sends.
        ClientDisconnect: The reader left before it was all there.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":  # also what makes browsers ask before they post across origins
        raise RelayRefusal(415, "Send the question as application/json.")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > limits.body_bytes):
        _too_large()
    try:
        async with clock.deadline(clock.now() + limits.body_seconds):
            raw = await _body(request, limits.body_bytes)
    except TimeoutError:
        raise RelayRefusal(408, "The question took too long to arrive.", _CLOSE) from None
    return _question(_parse(raw), limits)


_CLOSE = {"connection": "close"}  # the rest of the body is not going to be read


def _too_large() -> NoReturn:
    raise RelayRefusal(413, "The question is too large. Please start a new conversation.", _CLOSE)


async def _body(request: Request, limit_bytes: int) -> bytes:
    """Read the body, and stop at the first byte too many, whatever the headers promised."""
    pieces: list[bytes] = []
    length = 0
    async for piece in request.stream():
        length += len(piece)
        if length > limit_bytes:
            _too_large()
        pieces.append(piece)
    return b"".join(pieces)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _parse(raw: bytes) -> Wire:
    try:
        body = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise RelayRefusal(400, "The question is not valid JSON.") from None
    if not isinstance(body, dict):
        raise RelayRefusal(400, "The question must be a JSON object.")
    return cast("Wire", body)


def _question(body: Wire, limits: RelayLimits) -> Question:
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise RelayRefusal(400, "The question has no messages.")
    history = cast("list[object]", given)
    if len(history) > limits.messages:
        raise RelayRefusal(413, "This conversation is too long. Please start a new one.")
    messages = [message for one in history if (message := _message(one, limits)) is not None]
    if not messages or not _is_object(history[-1]) or messages[-1]["id"] != cast("Wire", history[-1])["id"]:
        raise RelayRefusal(400, "The last message has nothing to answer.")
    chat_id = body.get("id")
    return Question(
        messages=messages,
        seal=_seal(body, cast("list[Wire]", history)),
        chat_id=chat_id if isinstance(chat_id, str) else None,
        fields={name: value for name, value in body.items() if name != "messages"},
    )


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _message(given: object, limits: RelayLimits) -> Wire | None:
    """Return the part of a message that may pass; None when nothing of it may."""
    if not isinstance(given, dict):
        raise RelayRefusal(400, "A message must be an object.")
    message = cast("Wire", given)
    role, id_, parts = message.get("role"), message.get("id"), message.get("parts")
    if role not in ("user", "assistant"):
        raise RelayRefusal(400, "A message's role must be user or assistant.")
    if not isinstance(id_, str) or not id_ or not isinstance(parts, list):
        raise RelayRefusal(400, "A message needs an id and parts.")
    several = cast("list[object]", parts)
    if len(several) > limits.parts:
        _message_too_large()
    passed = [part for one in several if (part := _part(one)) is not None]
    _check_size(role, passed, limits)
    said = any(part["type"] != "step-start" for part in passed)
    return {"id": id_, "role": role, "parts": passed} if said else None


def _message_too_large() -> NoReturn:
    raise RelayRefusal(413, "A message is too long.")


def _check_size(role: str, parts: list[Wire], limits: RelayLimits) -> None:
    text = sum(len(part.get("text", "")) for part in parts)
    if text > (limits.question_characters if role == "user" else limits.answer_characters):
        _message_too_large()
    if sum(len(part["url"]) for part in parts if part["type"] == "file") > limits.file_characters:
        _message_too_large()


def _part(given: object) -> Wire | None:
    """Return what may pass of a part. Tools, data, and what a later release invents stay with the page."""
    if not isinstance(given, dict):
        raise RelayRefusal(400, "A part must be an object.")
    part = cast("Wire", given)
    kind = part.get("type")
    if not isinstance(kind, str):
        raise RelayRefusal(400, "A part needs a type.")
    fields = _PARTS.get(kind)
    if fields is None:
        return None
    passed: Wire = {"type": kind}
    for name, needed in fields.items():
        value = part.get(name)
        if isinstance(value, str):
            passed[name] = value
        elif needed or value is not None:
            raise RelayRefusal(400, f"A {kind} part's {name} must be a string.")
    if kind == "file" and not passed["url"].lower().startswith(("data:", "https://", "http://")):
        raise RelayRefusal(400, "A file's url must be a data: or a web address.")
    return passed


# The parts that the service documents, with their fields; True marks a required one.
_PARTS: Mapping[str, Mapping[str, bool]] = {
    "text": {"text": True},
    "reasoning": {"text": True},
    "source-url": {"sourceId": True, "url": True, "title": False},
    "file": {"mediaType": True, "url": True, "filename": False},
    "step-start": {},
}


def _seal(body: Wire, history: list[Wire]) -> str | None:
    """Find the sealed thread: sent by a page's own hook, else in the last assistant message that has one."""
    own = body.get("threadId")
    if own is not None:
        return _seal_text(own)
    for message in reversed(history):
        metadata = message.get("metadata")
        if message["role"] == "assistant" and isinstance(metadata, dict):
            found = cast("Wire", metadata).get("threadId")
            if found is not None:
                return _seal_text(found)
    return None


def _seal_text(found: object) -> str:
    if not isinstance(found, str):
        raise RelayRefusal(400, "The conversation's seal must be a string.")
    return found


# --- Fields that an app may let its pages choose --------------------------------------------------------


def _current_path(value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/") or len(value) > CURRENT_PATH_MAX_CHARACTERS:
        raise RelayRefusal(400, "currentPath must be a path of at most 200 characters.")
    return value


def _filter(value: object) -> object:
    return SearchFilter.from_wire(value)


def _context(value: object) -> object:
    if not isinstance(value, list):
        raise RelayRefusal(400, "context must be a list.")
    return [ContextItem.from_wire(one) for one in cast("list[object]", value)]


def page_options(fields: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return what the page chose of *names*, checked, as options of a question.

    Raises:
        RelayRefusal: One is not what the service takes.
    """
    chosen = {name: fields[name] for name in names if fields.get(name) is not None}
    try:
        return {PAGE_FIELDS[name][0]: PAGE_FIELDS[name][1](value) for name, value in chosen.items()}
    except ConfigurationError as error:
        wrong = str(error)
    raise RelayRefusal(400, f"{wrong[:150]}.")


PAGE_FIELDS: Mapping[str, tuple[str, Callable[[object], object]]] = {
    "currentPath": ("current_path", _current_path),
    "filter": ("filter", _filter),
    "context": ("context", _context),
}
