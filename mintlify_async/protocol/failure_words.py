"""Finds the message of a failure in JSON of any form or in text, and detects web pages. No I/O.

The service does not document the form of its errors, and proxies have their own. So texts under the usual
names come first, then sentences under other names. Without such texts, the JSON itself is shown.
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
"""The usual names of a message, in lower case without punctuation. Their order is the order of the output."""

_ECHOES: Final = frozenset(
    {
        *("body", "context", "ctx", "data", "input", "instance", "messages", "params", "path", "prompt"),
        *("query", "received", "request", "stack", "stacktrace", "timestamp", "trace", "url", "value"),
    }
)
"""Names of fields without an explanation. Often they copy the request, which must not get into a log."""

_MOST_WORDS: Final = 20
"""Maximum number of texts that are joined."""

_MOST_CHARACTERS: Final = 64 * 1024
"""Maximum length of a body that is read as JSON. Of a longer body, only the start is shown."""

_PAGE: Final = re.compile(
    r"(?:(?><!--.{0,2000}?-->|<\?xml[^>]{0,200}\?>)\s*+){0,20}+"  # does not try a comment at another length
    r"<(?:!doctype\s+html|(?:html|head|body|title|meta|script|h1|p|div|center)[\s>/])",
    re.IGNORECASE | re.DOTALL,
)


def is_web_page(body: str) -> bool:
    """Return whether *body* starts like an HTML page."""
    return _PAGE.match(body.lstrip("\ufeff \t\r\n")) is not None


def words_in(value: Any) -> str:
    """Return the texts of a message in a JSON value, separated by semicolons. Empty if there are none.

    >>> words_in({"error": {"type": "overloaded_error", "message": "Overloaded"}, "hint": "Try later"})
    'Overloaded; Try later'
    """
    words = _words(value, named=not isinstance(value, dict))
    return "; ".join(dict.fromkeys(islice(words, _MOST_WORDS)))


def server_words(body: str) -> str:
    """Return the message in an error body as one printable line of at most 200 characters. Empty for HTML."""
    words = "" if is_web_page(body) else body.strip()
    if len(body) <= _MOST_CHARACTERS:
        with suppress(ValueError, RecursionError):  # the body is not JSON
            value = json.loads(body)
            words = words_in(value) or (words if value else "")
    return printable(words)


def _words(value: Any, *, named: bool) -> Iterator[str]:
    """Yield the texts in *value*: all if it is *named* like a message, otherwise sentences only."""
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
            named = False  # a usual name had a text, so only sentences of the other fields are used
            yield text
    for name, plain_name in names.items():
        if plain_name in _USUAL or plain_name in _ECHOES:
            continue
        # Example: {"errors": {"fp": ["required"]}}.
        yield from (f"{name}: {text}" if named else text for text in _words(fields[name], named=named))
