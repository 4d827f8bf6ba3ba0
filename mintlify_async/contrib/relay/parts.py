"""Checks the parts of messages that a page sends: their fields, lengths and addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mintlify_async.messages import clean_text

from .json_values import Wire, is_object
from .limits import ADDRESS_CHARACTERS, NAME_CHARACTERS
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
            passed[name] = clean_text(value)  # half a character in an answer must not end the chat
        elif needed or value is not None:
            raise RelayRefusal(400, f"A {kind} part's {name} must be a string.")
    if kind in _ADDRESSES and not _ADDRESSES[kind](passed["url"]):
        raise RelayRefusal(400, f"A {kind} part's url must be a web address{_OR_DATA[kind]}.")
    return passed
