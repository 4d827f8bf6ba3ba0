"""Reads and checks the question in a page's request.

Anyone can send such a request, so nothing of it reaches the service unless a list in this file names it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from attrs import evolve, field, frozen

from mintlify_async import ConfigurationError, ContextItem, SearchFilter
from mintlify_async.messages import clean_text

from .json_values import Wire, is_list, is_object
from .refusals import RelayRefusal
from .request_body import read_body

if TYPE_CHECKING:
    from starlette.requests import Request

    from mintlify_async.runtime.clock import Clock

CURRENT_PATH_MAX_CHARACTERS = 200  # the limit of the service's interface


def _positive(instance: object, attribute: Any, value: float) -> None:
    if not value > 0:
        raise ConfigurationError(f"{attribute.name} must be above 0", field=attribute.name)


@frozen(kw_only=True)
class RelayLimits:
    """How much a page may send. A larger request is refused with 413 before the service is asked.

    Args:
        body_bytes: The size of the whole request, in bytes, counted while it arrives. ``useChat`` sends the
            whole history each time, with tool results.
        messages: The number of messages in the history.
        parts: The number of parts of one message, including those that are dropped.
        question_characters: The length of the text of one message of the user.
        answer_characters: The length of the text of one message of the assistant.
        file_characters: The length of all file URLs of one message; a ``data:`` URL holds the file.
        body_seconds: How long the request's body may take to arrive, in seconds.

    Raises:
        ConfigurationError: A limit is not above 0.
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
    """The question of a page, checked.

    Attributes:
        messages: The history as JSON objects, with allowed roles and parts only.
        seal: The sealed thread that the page sent, not opened yet, or None.
        chat_id: The id that the page gave the chat, or None.
        message_id: The message that is to be edited or answered again; None for none and without a store.
        fields: The other fields that the page sent, unchecked, for the relay's ``ask``. Empty after the
            question was asked, because they may be large.
    """

    messages: list[Wire]
    seal: str | None = None
    chat_id: str | None = None
    message_id: str | None = None
    fields: Mapping[str, Any] = field(factory=dict[str, Any], repr=False)


async def read_question(
    request: Request, limits: RelayLimits, clock: Clock, *, stored: bool = False
) -> Question:
    """Read the question from *request*; only its newest message when the others are *stored*.

    Raises:
        RelayRefusal: The request is not JSON, too large, too slow, or not in the form of ``useChat``.
        ClientDisconnect: The reader left before the whole request had arrived.
    """
    raw = await read_body(
        request,
        "question",
        clock,
        max_bytes=limits.body_bytes,
        seconds=limits.body_seconds,
        advice=" Please start a new conversation.",
    )
    body = _parse(raw)
    return _newest(body, limits) if stored else _question(body, limits)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _parse(raw: bytes) -> Wire:
    try:
        body = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise RelayRefusal(400, "The question is not valid JSON.") from None
    if not is_object(body):
        raise RelayRefusal(400, "The question must be a JSON object.")
    return body


def _question(body: Wire, limits: RelayLimits) -> Question:
    history: object = body.get("messages")
    if not is_list(history) or not history:
        raise RelayRefusal(400, "The question has no messages.")
    if len(history) > limits.messages:
        raise RelayRefusal(413, "This conversation is too long. Please start a new one.")
    messages = [message for one in history if (message := _message(one, limits)) is not None]
    last = history[-1]
    if not messages or not is_object(last) or messages[-1]["id"] != last["id"]:
        raise RelayRefusal(400, "The last message has nothing to answer.")
    chat_id = body.get("id")
    return Question(
        messages=messages,
        seal=_seal(body, history),
        chat_id=chat_id if isinstance(chat_id, str) else None,
        fields={name: value for name, value in body.items() if name != "messages"},
    )


def _newest(body: Wire, limits: RelayLimits) -> Question:
    """Return the question ``message``, or the last of ``messages``; a page may ask again without either."""
    history: object = body.get("messages")
    given: object = body.get("message", history[-1] if is_list(history) and history else None)
    rest = {name: value for name, value in body.items() if name not in ("message", "messages", "threadId")}
    target, again = body.get("messageId"), body.get("trigger") == "regenerate-message"
    if target is not None and not isinstance(target, str):
        raise RelayRefusal(400, "messageId must be a string.")
    if given is None and again:
        chat_id = body.get("id")
        question = Question(messages=[], chat_id=chat_id if isinstance(chat_id, str) else None, fields=rest)
    else:
        question = _question({**rest, "messages": [] if given is None else [given]}, limits)
        if question.messages[0]["role"] != "user":
            raise RelayRefusal(400, "The newest message must be the user's.")
    return evolve(question, message_id=target)


def _message(message: object, limits: RelayLimits) -> Wire | None:
    """Return a copy of a message with the allowed parts only; None when no part is allowed."""
    if not is_object(message):
        raise RelayRefusal(400, "A message must be an object.")
    role, id_ = message.get("role"), message.get("id")
    parts: object = message.get("parts")
    if role not in ("user", "assistant"):
        raise RelayRefusal(400, "A message's role must be user or assistant.")
    if not isinstance(id_, str) or not id_ or not is_list(parts):
        raise RelayRefusal(400, "A message needs an id and parts.")
    if len(parts) > limits.parts:
        _message_too_large()
    passed = [part for one in parts if (part := _part(one)) is not None]
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


def _part(part: object) -> Wire | None:
    """Return the allowed fields of a part; None for tools, data, and types of later releases."""
    if not is_object(part):
        raise RelayRefusal(400, "A part must be an object.")
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
            passed[name] = clean_text(value)  # half a character in an answer must not end the chat
        elif needed or value is not None:
            raise RelayRefusal(400, f"A {kind} part's {name} must be a string.")
    if kind == "file" and not passed["url"].lower().startswith(("data:", "https://", "http://")):
        raise RelayRefusal(400, "A file's url must be a data: or a web address.")
    return passed


# The parts that the service documents, with their fields; True marks a required field.
_PARTS: Mapping[str, Mapping[str, bool]] = {
    "text": {"text": True},
    "reasoning": {"text": True},
    "source-url": {"sourceId": True, "url": True, "title": False},
    "file": {"mediaType": True, "url": True, "filename": False},
    "step-start": {},
}


def _seal(body: Wire, history: list[object]) -> str | None:
    """Return the sealed thread: the request's ``threadId``, or else that of the last answer that has one."""
    own = body.get("threadId")
    if own is not None:
        return _seal_text(own)
    for message in reversed(history):
        if not is_object(message) or message["role"] != "assistant":
            continue
        metadata: object = message.get("metadata")
        if is_object(metadata) and metadata.get("threadId") is not None:
            return _seal_text(metadata["threadId"])
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
    if not is_list(value):
        raise RelayRefusal(400, "context must be a list.")
    return [evolve(ContextItem.from_wire(one), extra={}) for one in value]  # known fields only


def page_options(fields: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the fields in *names* that the page sent, checked, as arguments of ``session.ask``.

    Raises:
        RelayRefusal: The service does not accept a field's value.
    """
    chosen = {name: fields[name] for name in names if fields.get(name) is not None}
    try:
        json.dumps(chosen, ensure_ascii=False).encode()  # raises for half a character
        return {PAGE_FIELDS[name][0]: PAGE_FIELDS[name][1](value) for name, value in chosen.items()}
    except UnicodeEncodeError:
        wrong = "the question has half of a surrogate pair"
    except ConfigurationError as error:
        wrong = str(error)
    raise RelayRefusal(400, f"{wrong[:150]}.")


PAGE_FIELDS: Mapping[str, tuple[str, Callable[[object], object]]] = {
    "currentPath": ("current_path", _current_path),
    "filter": ("filter", _filter),
    "context": ("context", _context),
}
