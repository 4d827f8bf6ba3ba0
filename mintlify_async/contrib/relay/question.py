"""Reads and checks the question in a page's request.

Any client can send such a request, so only the fields that a list in this file names reach the service.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from attrs import evolve, field, frozen

from mintlify_async import ConfigurationError, ContextItem, SearchFilter

from .json_values import Wire, is_id, is_list, is_object
from .limits import CONTEXT_ITEMS, CURRENT_PATH_MAX_CHARACTERS, RelayLimits
from .parts import is_name, read_part
from .refusals import RelayRefusal

if TYPE_CHECKING:
    from starlette.requests import Request

    from .request_body import BodyReader


@frozen(kw_only=True)
class Question:
    """The checked question of a page.

    Attributes:
        messages: The history as JSON objects, with allowed roles and parts only.
        seal: The sealed thread that the page sent, not opened yet, or None.
        chat_id: The id that the page gave the chat, or None.
        message_id: The message that is to be edited or answered again; None if there is none, or no store.
        fields: The other fields that the page sent, unchecked, for the relay's ``ask``. Empty after the
            question was asked, because they may be large.
    """

    messages: list[Wire]
    seal: str | None = None
    chat_id: str | None = None
    message_id: str | None = None
    fields: Mapping[str, Any] = field(factory=dict[str, Any], repr=False)


async def read_question(request: Request, bodies: BodyReader, *, stored: bool = False) -> Question:
    """Read the question from *request*; only its newest message when the others are *stored*.

    Raises:
        RelayRefusal: The request is not JSON, too large, too slow, or not in the form of ``useChat``.
        ClientDisconnect: The reader left before the whole request had arrived.
    """
    body = await bodies.read(request, "question", advice=" Please start a new conversation.")
    question = _newest(body, bodies.limits) if stored else _question(body, bodies.limits)
    await asyncio.sleep(0)  # asking takes its time, too
    return question


def _question(body: Wire, limits: RelayLimits) -> Question:
    history: object = body.get("messages")
    if not is_list(history) or not history:
        raise RelayRefusal(400, "The question has no messages.")
    if len(history) > limits.messages:
        _conversation_too_long()
    messages = [message for one in history if (message := _message(one, limits)) is not None]
    _check_together(history, messages, limits)
    chat_id = body.get("id")
    if chat_id is not None and not is_id(chat_id):
        raise RelayRefusal(400, "The chat's id must be a short text.")
    return Question(
        messages=messages,
        seal=_seal(body, history),
        chat_id=chat_id,
        fields={name: value for name, value in body.items() if name != "messages"},
    )


def _conversation_too_long() -> NoReturn:
    raise RelayRefusal(413, "This conversation is too long. Please start a new one.")


def _check_together(history: Sequence[Any], messages: Sequence[Wire], limits: RelayLimits) -> None:
    """Check the messages together: *history* is what the page sent, *messages* what is passed on."""
    if len({message["id"] for message in history}) < len(history):
        raise RelayRefusal(400, "Two messages have the same id.")
    if not messages or messages[-1]["id"] != history[-1]["id"]:
        raise RelayRefusal(400, "The last message has nothing to answer.")
    if messages[-1]["role"] == "user" and not any(map(_asks, messages[-1]["parts"])):
        raise RelayRefusal(400, "The question is empty.")
    parts = sum(len(message["parts"]) for message in messages)
    if parts > limits.parts or sum(map(_all_characters, messages)) > limits.characters:
        _conversation_too_long()


def _asks(part: Wire) -> bool:
    """Return whether a part of a question says something."""
    return part["type"] == "file" or bool(part.get("text", "").strip())


def _characters(message: Wire) -> int:
    return sum(len(part.get("text", "")) for part in message["parts"])


def _all_characters(message: Wire) -> int:
    """Return the length of the texts, addresses and names of a message, its files aside."""
    return sum(len(value) for part in message["parts"] if part["type"] != "file" for value in part.values())


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
    if not is_id(id_) or not is_list(parts):
        raise RelayRefusal(400, "A message needs a short id and parts.")
    passed = [part for one in parts if (part := read_part(one)) is not None]
    made: Wire = {"id": id_, "role": role, "parts": passed}
    _check_size(made, limits)
    return made if any(part["type"] != "step-start" for part in passed) else None


def _check_size(message: Wire, limits: RelayLimits) -> None:
    most = limits.question_characters if message["role"] == "user" else limits.answer_characters
    files = sum(len(part["url"]) for part in message["parts"] if part["type"] == "file")
    if _characters(message) > most or files > limits.file_characters:
        raise RelayRefusal(413, "A message is too long.")


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


def _current_path(value: object, limits: RelayLimits) -> str:
    if not isinstance(value, str) or not value.startswith("/") or len(value) > CURRENT_PATH_MAX_CHARACTERS:
        raise RelayRefusal(400, "currentPath must be a path of at most 200 characters.")
    return value


def _filter(value: object, limits: RelayLimits) -> object:
    chosen = SearchFilter.from_wire(value)
    if chosen.groups:  # what the reader is allowed to see
        raise RelayRefusal(400, "filter may name a version and a language only.")
    if not (is_name(chosen.version or "") and is_name(chosen.language or "")):
        raise RelayRefusal(400, "filter has a text that is too long.")
    return chosen


def _context(value: object, limits: RelayLimits) -> object:
    if not is_list(value) or len(value) > CONTEXT_ITEMS:
        raise RelayRefusal(400, f"context must be a list of at most {CONTEXT_ITEMS} items.")
    items = [evolve(ContextItem.from_wire(one), extra={}) for one in value]  # known fields only
    if sum(len(text) for item in items for text in item.to_wire().values()) > limits.question_characters:
        raise RelayRefusal(413, "context is too long.")
    return items


def merged_options(own: Mapping[str, Any], page: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``session.ask``: the app's *own* replace the *page*'s, in a filter, too."""
    own = {name: value for name, value in own.items() if value is not None or name not in page}
    mine = own.get("filter")
    if isinstance(mine, SearchFilter):
        mine = mine.to_wire()
    if isinstance(mine, Mapping) and "filter" in page:
        own["filter"] = {**page["filter"].to_wire(), **mine}
    return {**page, **own}


def page_options(fields: Mapping[str, Any], names: Collection[str], limits: RelayLimits) -> dict[str, Any]:
    """Return the fields in *names* that the page sent, checked, as arguments of ``session.ask``.

    Raises:
        RelayRefusal: The service does not accept a field's value.
    """
    chosen = {name: fields[name] for name in names if fields.get(name) is not None}
    if not chosen:
        return {}
    try:
        json.dumps(chosen, ensure_ascii=False).encode()  # raises for half a character
        return {PAGE_FIELDS[name][0]: PAGE_FIELDS[name][1](value, limits) for name, value in chosen.items()}
    except UnicodeEncodeError:
        wrong = "the question has half of a surrogate pair"
    except ConfigurationError as error:
        wrong = str(error)
    raise RelayRefusal(400, f"{wrong[:150]}.")


PAGE_FIELDS: Mapping[str, tuple[str, Callable[[object, RelayLimits], object]]] = {
    "currentPath": ("current_path", _current_path),
    "filter": ("filter", _filter),
    "context": ("context", _context),
}
