"""Reads the question in the body of a web page's request, and checks the fields of the body.

Any client can send such a request, so only the fields that are listed in this file reach the service. Before
each loop over values of the body, their number is checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from attrs import field, frozen

from mintlify_async.argument_checks import CURRENT_PATH_MAX_CHARACTERS as PATH_CHARACTERS
from mintlify_async.argument_checks import check_field, check_number
from mintlify_async.model.strict_json import whole_characters

from .refusal_texts import TOO_LONG_TEXT, RelayRefusal

if TYPE_CHECKING:
    pass

Wire = dict[str, Any]

ID_CHARACTERS = 200  # ids from useChat have 16 characters, and ids from the service have fewer than 100
ADDRESS_CHARACTERS = 2_000  # browsers and servers accept little more
NAME_CHARACTERS = 1_000  # a title, a file's name, a media type, a source's id
MOST_PARTS = 1_500  # of all messages that are sent, because the session checks each part


@frozen(kw_only=True)
class QuestionLimits:
    """The limits of a web page's request. :class:`.Relay` documents the fields."""

    max_body_bytes: int = field(validator=check_field(check_number, least=1))
    max_characters: int = field(validator=check_field(check_number, least=1))
    max_messages: int = field(validator=check_field(check_number, least=1))
    max_file_characters: int = field(validator=check_field(check_number, least=1))

    def check(self, messages: Sequence[Wire]) -> None:
        """Check the *messages* that are sent to the service together.

        Raises:
            RelayRefusal: There are too many messages, or they are too long.
        """
        parts = [part for message in messages for part in message["parts"]]
        files = sum(len(part["url"]) for part in parts if part["type"] == "file")
        texts = sum(map(_characters, parts))
        over = len(messages) > self.max_messages or len(parts) > MOST_PARTS
        if over or texts > self.max_characters or files > self.max_file_characters:
            raise RelayRefusal(413, TOO_LONG_TEXT)


@frozen(kw_only=True)
class PageQuestion:
    """The checked question of a web page.

    Attributes:
        messages: The history as JSON objects, with only allowed roles and parts.
        ids: The ids of all messages that the web page sent.
        seal: The sealed thread that the web page sent, which is not opened yet, or None.
        chat_id: The chat's id from the web page, or None.
        message_id: The message to edit or to answer again. None without such a message, or without a store.
        current_path: The documentation page that the user is reading, or None.
        fields: The other fields that the web page sent, unchecked, for the relay's ``ask``.
    """

    messages: list[Wire]
    ids: Collection[str] = ()
    seal: str | None = None
    chat_id: str | None = None
    message_id: str | None = None
    current_path: str | None = None
    fields: Mapping[str, Any] = field(factory=dict[str, Any], repr=False)


# --- The question -------------------------------------------------------------------------------------


def read_question(body: Wire, limits: QuestionLimits, *, stored: bool) -> PageQuestion:
    """Return the question in *body*. With *stored*, only its newest message is read.

    Raises:
        RelayRefusal: *body* does not have the form of ``useChat``, or exceeds a limit.
    """
    history: object = body.get("messages")
    if stored:
        history = _newest(body, history)
    elif not is_list(history) or not history:
        raise RelayRefusal(400, "The question has no messages.")
    messages = _messages(history, limits)
    target = body.get("messageId") if stored else None
    if not (target is None or isinstance(target, str)):
        raise RelayRefusal(400, "messageId must be a string.")
    chat_id = body.get("id")
    if not (chat_id is None or is_id(chat_id)):
        raise RelayRefusal(400, "The chat's id must be a short text.")
    path = body.get("currentPath")
    if not (path is None or _is_path(path)):
        raise RelayRefusal(400, f"currentPath must be a path of at most {PATH_CHARACTERS} characters.")
    return PageQuestion(
        messages=messages,
        ids={message["id"] for message in cast("list[Wire]", history)},
        seal=None if stored else _seal(body, history),
        chat_id=chat_id,
        message_id=target,
        current_path=path,
        fields={name: value for name, value in body.items() if name not in ("messages", "message")},
    )


def _newest(body: Wire, history: object) -> list[object]:
    """Return the ``message``, or the last of ``messages``. For another answer, the body may have neither."""
    newest: object = body.get("message", history[-1] if is_list(history) and history else None)
    if newest is None and body.get("trigger") == "regenerate-message":
        return []
    if not (is_object(newest) and newest.get("role") == "user"):
        raise RelayRefusal(400, "The newest message must be the user's.")
    return [newest]


def _messages(history: list[object], limits: QuestionLimits) -> list[Wire]:
    if len(history) > limits.max_messages:
        raise RelayRefusal(413, TOO_LONG_TEXT)
    messages = list(map(_message, history))
    if len({message["id"] for message in messages}) < len(messages):
        raise RelayRefusal(400, "Two messages have the same id.")
    if messages and not _asks(messages[-1]):
        raise RelayRefusal(400, "The question is empty.")
    messages = [message for message in messages if any(p["type"] != "step-start" for p in message["parts"])]
    limits.check(messages)
    return messages


def _message(message: object) -> Wire:
    """Return a copy of a message with only the allowed parts."""
    if not is_object(message):
        raise RelayRefusal(400, "A message must be an object.")
    role, id_ = message.get("role"), message.get("id")
    parts: object = message.get("parts")
    if role not in ("user", "assistant"):
        raise RelayRefusal(400, "A message's role must be user or assistant.")
    if not is_id(id_) or not is_list(parts):
        raise RelayRefusal(400, "A message needs a short id and parts.")
    return {"id": id_, "role": role, "parts": [part for one in parts if (part := read_part(one)) is not None]}


def _asks(message: Wire) -> bool:
    """Return whether the last message has content. It may also be an answer that the service continues."""
    if message["role"] == "assistant":
        return any(part["type"] != "step-start" for part in message["parts"])
    return any(part["type"] == "file" or part.get("text", "").strip() for part in message["parts"])


def _characters(part: Wire) -> int:
    """Return the length of a part's texts, URLs and names, without a file's URL, which is the file."""
    others = ("type", "url") if part["type"] == "file" else ("type",)
    return sum(len(value) for name, value in part.items() if name not in others)


def _seal(body: Wire, history: list[Any]) -> str | None:
    """Return the sealed thread: the ``threadId`` of the request, or of the newest answer that has one."""
    metadata = [message.get("metadata") for message in reversed(history) if message["role"] == "assistant"]
    tokens = [body.get("threadId"), *(data.get("threadId") for data in metadata if is_object(data))]
    token = next((token for token in tokens if token is not None), None)
    if not (token is None or isinstance(token, str)):
        raise RelayRefusal(400, "The conversation's seal must be a string.")
    return token


def _is_path(value: object) -> TypeGuard[str]:
    return (
        isinstance(value, str)
        and value.startswith("/")
        and len(value) <= PATH_CHARACTERS
        and value == value.encode("utf-8", "replace").decode()  # no request may contain a lone surrogate
    )


# JSON values that a page or the service may send in any form --------------------------------------------


def is_object(value: object) -> TypeGuard[Wire]:
    """Return whether *value* is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Return whether *value* is a JSON array."""
    return isinstance(value, list)


def is_id(value: object) -> TypeGuard[str]:
    """Return whether *value* is safe in a log line and a database: printable, not empty and not long."""
    return isinstance(value, str) and 0 < len(value) <= ID_CHARACTERS and value.isprintable()


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # browsers drop some of them, so java\nscript: would run
_ABSOLUTE = re.compile(r"https?://", re.IGNORECASE)


def is_web_address(value: object) -> bool:
    """Return whether *value* is a path or a URL that a browser opens as a page, and is not too long."""
    if not isinstance(value, str) or len(value) > ADDRESS_CHARACTERS or _CONTROL.search(value):
        return False
    # A regular expression would take quadratic time: 24 ms for 2,000 blanks.
    scheme, colon, _ = value.lstrip().partition(":")
    return not colon or scheme.lower() in ("http", "https") or any(map(scheme.__contains__, "/?#"))


def is_file_address(value: object) -> bool:
    """Return whether *value* is a ``data:`` URL, or the web URL of a file."""
    if isinstance(value, str) and value[:5].lower() == "data:":
        return value.isascii()
    return isinstance(value, str) and _ABSOLUTE.match(value) is not None and is_web_address(value)


def is_name(value: object) -> bool:
    """Return whether *value* is a string that is short enough for a title, a file name or a source's id."""
    return isinstance(value, str) and len(value) <= NAME_CHARACTERS


def _is_objects(value: object) -> bool:
    """Return whether *value* is an object of objects, as provider metadata must be."""
    return is_object(value) and all(map(is_object, value.values()))


_CHECKS: Mapping[str, Callable[[object], bool]] = {
    "messageMetadata": is_object,
    "providerMetadata": _is_objects,
    "url": is_web_address,
    **dict.fromkeys(("providerExecuted", "dynamic", "transient"), lambda value: isinstance(value, bool)),
    **dict.fromkeys(("input", "output", "data"), lambda value: True),
    **dict.fromkeys(("sourceId", "title", "mediaType", "filename"), is_name),
}
"""Maps the name of a field to its check. Any other field is a string."""


def is_field(kind: str, name: str, value: object) -> bool:
    """Return whether *value* may be the field *name* of a part or an event of *kind*."""
    if kind == "file" and name == "url":
        return is_file_address(value)
    check = _CHECKS.get(name)
    return isinstance(value, str) if check is None else check(value)


def shapes(fields: Mapping[str, str]) -> dict[str, list[tuple[str, bool]]]:
    """Return the fields of each kind: each field's name, and whether a question mark makes it optional."""
    return {
        kind: [(name.rstrip("?"), name.endswith("?")) for name in names.split()]
        for kind, names in fields.items()
    }


# The parts that the service documents.
_PARTS = shapes(
    {
        "text": "text",
        "reasoning": "text",
        "source-url": "sourceId url title?",
        "file": "mediaType url filename?",
        "step-start": "",
    }
)


def read_part(part: object) -> Wire | None:
    """Return the allowed fields of a part. Return None for tools, data, and types of later releases.

    Raises:
        RelayRefusal: *part* is not a part, or a field is missing, too long or of the wrong type.
    """
    kind = part.get("type") if is_object(part) else None
    if not (is_object(part) and isinstance(kind, str)):
        raise RelayRefusal(400, "A part must be an object with a type.")
    if kind not in _PARTS:
        return None
    checked_part: Wire = {"type": kind}
    for name, optional in _PARTS[kind]:
        value: Any = part.get(name)
        if optional and value is None:
            continue
        if not is_field(kind, name, value):
            raise RelayRefusal(400, f"A {kind} part's {name} is missing, too long or invalid.")
        checked_part[name] = whole_characters(value)  # a lone surrogate must not end the chat
    return checked_part
