"""Finds the words of a failure in JSON of any shape, in text, and tells a web page from them. No I/O.

The service documents no shape of its errors, and proxies answer in their own. So the words under the usual
names come first, then sentences under other names. If there are no words, the JSON itself is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, cast

from ..errors import printable

_USUAL: Final = (
    *("error", "fault", "errors", "title", "message", "msg", "errortext", "errormessage", "faultstring"),
    *("detail", "details", "description", "errordescription", "reason", "explanation", "hint", "issues"),
)
"""The usual names of words in small letters without marks, in the order in which their words are shown."""

_ECHOES: Final = frozenset(
    {
        *("body", "context", "ctx", "data", "input", "instance", "messages", "params", "path", "prompt"),
        *("query", "received", "request", "stack", "stacktrace", "timestamp", "trace", "url", "value"),
    }
)
"""The names of what is no explanation: often a copy of the request, which does not belong in a log."""

_MOST_WORDS: Final = 20
"""How many texts are joined."""

_MOST_CHARACTERS: Final = 64 * 1024
"""The longest body that is read as JSON. Only the start of a longer one is shown."""

_PAGE: Final = re.compile(
    r"(?:(?><!--.{0,2000}?-->|<\?xml[^>]{0,200}\?>)\s*+){0,20}+"  # never tries a comment at another length
    r"<(?:!doctype\s+html|(?:html|head|body|title|meta|script|h1|p|div|center)[\s>/])",
    re.IGNORECASE | re.DOTALL,
)


def is_web_page(body: str) -> bool:
    """Return whether *body* starts like an HTML page."""
    return _PAGE.match(body.lstrip("\ufeff \t\r\n")) is not None


def words_in(value: Any) -> str:
    """Return the words in a JSON value, parted by semicolons; empty if there are none.

    >>> words_in({"error": {"type": "overloaded_error", "message": "Overloaded"}, "hint": "Try later"})
    'Overloaded; Try later'
    """
    words = _words(value, named=not isinstance(value, dict))
    return "; ".join(dict.fromkeys(islice(words, _MOST_WORDS)))


def server_words(body: str) -> str:
    """Return the words of an error body as one printable line of at most 200 characters; none for HTML."""
    words = "" if is_web_page(body) else body.strip()
    if len(body) <= _MOST_CHARACTERS:
        with suppress(ValueError, RecursionError):  # it is no JSON
            value = json.loads(body)
            words = words_in(value) or (words if value else "")
    return printable(words)


def _words(value: Any, *, named: bool) -> Iterator[str]:
    """Yield the words in *value*. All texts count if it is *named* like words, else sentences only."""
    if isinstance(value, str):
        text = value.strip()
        if text and (named or " " in text):
            yield text
    elif isinstance(value, list):
        for item in cast("Sequence[Any]", value):
            yield from _words(item, named=named)
    elif isinstance(value, dict):
        yield from _words_of_fields(cast("Mapping[str, Any]", value), named=named)


def _words_of_fields(fields: Mapping[str, Any], *, named: bool) -> Iterator[str]:
    names = {name: re.sub("[^a-z]", "", name.lower()) for name in fields}
    usual_names = [name for name in names if names[name] in _USUAL]
    for name in sorted(usual_names, key=lambda name: _USUAL.index(names[name])):
        for text in _words(fields[name], named=True):
            named = False  # so the other fields need not explain it
            yield text
    for name, plain_name in names.items():
        if plain_name in _USUAL or plain_name in _ECHOES:
            continue
        # Such as {"errors": {"fp": ["required"]}}.
        yield from (f"{name}: {text}" if named else text for text in _words(fields[name], named=named))
