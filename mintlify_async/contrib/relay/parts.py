"""The parts of messages that a page may send: their fields, how long these are, where addresses may lead."""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import frozen

from mintlify_async.messages import clean_text

from .json_values import Wire, is_object
from .limits import ADDRESS_CHARACTERS, MEDIA_TYPE_CHARACTERS, NAME_CHARACTERS
from .refusals import RelayRefusal

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # browsers leave some of them out: java\nscript: is a script
_SCHEME = re.compile(r"\s*([^/?#:]*):")
_ABSOLUTE = re.compile(r"https?://", re.IGNORECASE)


def is_web_address(value: object) -> bool:
    """Return whether *value* is a path or an address that a browser opens as a page, and not too long."""
    if not isinstance(value, str) or len(value) > ADDRESS_CHARACTERS or _CONTROL.search(value):
        return False
    scheme = _SCHEME.match(value)
    return scheme is None or scheme[1].lower() in ("http", "https")


def is_file_address(value: object) -> bool:
    """Return whether *value* holds a file, or is the web address of one."""
    if isinstance(value, str) and value[:5].lower() == "data:":
        return value.isascii()
    return isinstance(value, str) and _ABSOLUTE.match(value) is not None and is_web_address(value)


def is_name(value: object) -> bool:
    """Return whether *value* is a string that is short enough for a title or a file's name."""
    return isinstance(value, str) and len(value) <= NAME_CHARACTERS


@frozen
class _Field:
    """One field of a part.

    Args:
        needed: Whether the part needs it.
        most: The largest number of characters; None for texts and files, which are counted for each message.
    """

    needed: bool = True
    most: int | None = None


# The parts that the service documents.
_FIELDS: Mapping[str, Mapping[str, _Field]] = {
    "text": {"text": _Field()},
    "reasoning": {"text": _Field()},
    "source-url": {
        "sourceId": _Field(most=ADDRESS_CHARACTERS),
        "url": _Field(most=ADDRESS_CHARACTERS),
        "title": _Field(needed=False, most=NAME_CHARACTERS),
    },
    "file": {
        "mediaType": _Field(most=MEDIA_TYPE_CHARACTERS),
        "url": _Field(),
        "filename": _Field(needed=False, most=NAME_CHARACTERS),
    },
    "step-start": {},
}
_ADDRESSES = {"source-url": is_web_address, "file": is_file_address}
_OR_DATA = {"source-url": "", "file": " or a data: URL"}


def read_part(part: object) -> Wire | None:
    """Return the allowed fields of a part; None for tools, data, and types of later releases.

    Raises:
        RelayRefusal: It is not a part, a field is missing or too long, or an address leads elsewhere than to
            the web.
    """
    if not is_object(part):
        raise RelayRefusal(400, "A part must be an object.")
    kind = part.get("type")
    if not isinstance(kind, str):
        raise RelayRefusal(400, "A part needs a type.")
    fields = _FIELDS.get(kind)
    if fields is None:
        return None
    passed: Wire = {"type": kind}
    for name, field in fields.items():
        value = part.get(name)
        if isinstance(value, str):
            if field.most is not None and len(value) > field.most:
                raise RelayRefusal(400, f"A {kind} part's {name} is too long.")
            passed[name] = clean_text(value)  # half a character in an answer must not end the chat
        elif field.needed or value is not None:
            raise RelayRefusal(400, f"A {kind} part's {name} must be a string.")
    if kind in _ADDRESSES and not _ADDRESSES[kind](passed["url"]):
        raise RelayRefusal(400, f"A {kind} part's url must be a web address{_OR_DATA[kind]}.")
    return passed
