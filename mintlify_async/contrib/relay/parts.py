"""Checks the parts of messages that a page sends: their fields, lengths and addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .json_values import Wire, is_object
from .limits import ADDRESS_CHARACTERS, NAME_CHARACTERS
from .refusals import RelayRefusal

_CONTROL = [*map(chr, range(0x20)), "\x7f"]  # browsers leave some out: java\nscript: is a script
_ABSOLUTE = re.compile(r"https?://", re.IGNORECASE)


def _has_control(value: str) -> bool:
    return not value.isprintable() and any(map(value.__contains__, _CONTROL))


def is_web_address(value: object) -> bool:
    """Return whether *value* is a path or an address that a browser opens as a page, and not too long."""
    if not isinstance(value, str) or len(value) > ADDRESS_CHARACTERS or _has_control(value):
        return False
    # A pattern for this took the square of the length: 24 ms for 2,000 blanks.
    scheme, colon, _ = value.lstrip().partition(":")
    return not colon or scheme.lower() in ("http", "https") or any(map(scheme.__contains__, "/?#"))


def is_file_address(value: object) -> bool:
    """Return whether *value* holds a file, or is the web address of one."""
    if isinstance(value, str) and value[:5].lower() == "data:":
        return value.isascii()
    return isinstance(value, str) and _ABSOLUTE.match(value) is not None and is_web_address(value)


def is_name(value: object) -> bool:
    """Return whether *value* is a string that is short enough for a title, a file's name or a source's id."""
    return isinstance(value, str) and len(value) <= NAME_CHARACTERS


# The parts that the service documents, with their fields; True marks a required field.
_FIELDS: Mapping[str, Mapping[str, bool]] = {
    "text": {"text": True},
    "reasoning": {"text": True},
    "source-url": {"sourceId": True, "url": True, "title": False},
    "file": {"mediaType": True, "url": True, "filename": False},
    "step-start": {},
}
_NAMES = ("sourceId", "title", "mediaType", "filename")  # texts and files are counted for each message
_ADDRESSES = {"source-url": is_web_address, "file": is_file_address}
_OR_DATA = {"source-url": "", "file": " or a data: URL"}


def read_part(part: object) -> Wire | None:
    """Return the allowed fields of a part; None for tools, data, and types of later releases.

    Raises:
        RelayRefusal: It is not a part, a field is missing or too long, or an address is not
            a web address.
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
    for name, needed in fields.items():
        value = part.get(name)
        if isinstance(value, str):
            if name in _NAMES and not is_name(value):
                raise RelayRefusal(400, f"A {kind} part's {name} is too long.")
            # Half a character must not end the chat. For U+FFFD in its place it would take 1 µs each.
            passed[name] = value.encode("utf-8", "replace").decode()
        elif needed or value is not None:
            raise RelayRefusal(400, f"A {kind} part's {name} must be a string.")
    if kind in _ADDRESSES and not _ADDRESSES[kind](passed["url"]):
        raise RelayRefusal(400, f"A {kind} part's url must be a web address{_OR_DATA[kind]}.")
    return passed
