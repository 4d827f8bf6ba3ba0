"""Secrets: values that no ``repr`` shows, and masks over keys in texts and JSON values.

Containers print the ``repr`` of their values, and tracebacks the ``repr`` of locals.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

__all__ = ["MASK", "mask_service_keys"]

T = TypeVar("T")

MASK: Final = "****"
"""The text that replaces a secret."""

THREAD_KEY: Final = "threadKey"
"""The name of the thread's secret in JSON."""


class Secret(str):
    """A string that ``repr`` does not show.

    Any string made from it is a plain string, for example ``"Bearer " + secret``. Make it a Secret again.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{MASK}'"


class _Refused:
    """Replaces a secret of a wrong type. It contains only the type's name."""

    __slots__ = ("type_name",)

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name

    def __repr__(self) -> str:
        return f"'{MASK}'"


class _SecretFunction:
    """Calls a function that returns a secret. Unlike a partial function, it does not show the arguments."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    def __call__(self) -> Any:
        return self._function()

    def __repr__(self) -> str:
        return "<a function that returns a secret>"


def hidden(value: T) -> T | Secret:
    """Return an object for *value*, a secret of any type, that does not show it.

    A string becomes a :class:`Secret`. None and awaitables are not changed, and a function can be called. For
    a value of another type, only :func:`type_name` works.
    """
    if value is None or isinstance(value, Secret | _Refused | _SecretFunction) or inspect.isawaitable(value):
        return value
    if isinstance(value, str):
        return Secret(value)
    return cast("T", _SecretFunction(value) if callable(value) else _Refused(type(value).__name__))


def type_name(value: object) -> str:
    """Return the name of the type of *value*.

    If *value* was replaced by a ``_Refused``, return the original type's name.
    """
    return value.type_name if isinstance(value, _Refused) else type(value).__name__


def mask_keys(content: Any) -> Any:
    """Return *content* with every thread key masked. Without thread keys, return the same object.

    >>> mask_keys({"threadKey": "secret", "n": 1})
    {'threadKey': '****', 'n': 1}
    """
    return _without_keys(content, lambda fields: {**fields, THREAD_KEY: MASK})


def drop_keys(content: Any) -> Any:
    """Return *content* without thread keys. If there are none, return the same object."""
    return _without_keys(content, lambda fields: {k: v for k, v in fields.items() if k != THREAD_KEY})


def _without_keys(content: Any, treat: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if isinstance(content, list):
        items = cast("Sequence[Any]", content)
        treated = [_without_keys(item, treat) for item in items]
        return treated if any(a is not b for a, b in zip(treated, items, strict=True)) else items
    if not isinstance(content, dict):
        return content
    fields = cast("dict[str, Any]", content)
    replacements: dict[str, Any] = {}
    for name, item in fields.items():
        if isinstance(item, (dict, list)) and (replacement := _without_keys(item, treat)) is not item:
            replacements[name] = replacement
    if replacements:
        fields = {**fields, **replacements}
    return fields if fields.get(THREAD_KEY) is None else treat(fields)


_KEY_IN_TEXT: Final = re.compile(
    r"""(threadKey(?:\\*["'])?\s*[:=]\s*)"""
    r"""(?:(?P<quote>\\*["'])(?:(?!(?<!\\)(?P=quote)).)+|(?:[^"'\\\s,}&]|\\+(?:/|u[0-9a-fA-F]{4}))+)"""
)
"""A thread's key: a JSON string, which may contain escapes, or else one word."""

_ESCAPED_ASCII: Final = re.compile(r"u00[2-7]|%[2-7]")

_UNESCAPED: Final = re.compile(r"[\w.~-]*", re.ASCII)
"""A key of characters that only ``\\uXXXX`` or ``%XX`` can write in another form."""


def mask_secret(text: str, secret: str) -> str:
    r"""Return *text* with *secret* masked: plain, JSON-escaped or URL-encoded. The JSON may be nested or cut.

    >>> mask_secret(r'{"error": "a\/b\u002bc"}', "a/b+c")
    '{"error": "****"}'
    """
    text = text.replace(secret, MASK)
    if "\\" not in text and "%" not in text:  # every other form contains one of them
        return text
    if _UNESCAPED.fullmatch(secret) and not _ESCAPED_ASCII.search(text):
        return text
    return _every_form(secret).sub(MASK, text)


@lru_cache(maxsize=64)  # lru_cache does not show the arguments
def _every_form(secret: str) -> re.Pattern[str]:
    # One atomic group matches a run of backslashes, including the backslashes of a following escape. If each
    # backslash had its own group, there would be exponentially many ways to divide a long run.
    return re.compile("".join(map(_run_and_next, re.finditer(r"(\\*)([^\\]?)", secret))))


def _run_and_next(match: re.Match[str]) -> str:
    """Return a pattern for a run of backslashes and the next character, in all their forms."""
    length, character = len(match[1]), match[2]
    if not length:
        return _forms(character)
    is_own = match.string.startswith("u005c", match.start(2))  # the backslash is part of the key
    backslash = r"\\|%(?i:5c)" if is_own else r"\\|%(?i:5c)|u(?i:005c)"
    return f"(?>(?:{backslash}){{{length},{8 * length + 7}}}){_forms(character, escape='')}"


def _forms(character: str, escape: str = r"\\{1,7}") -> str:
    """Return a pattern for *character*: plain, escaped in JSON (also nested JSON), or encoded in a URL.

    *escape* matches the backslashes before an escape. It is empty if they were already matched.
    """
    if not character:
        return ""
    # Each nesting doubles the backslashes. The maximum of seven backslashes keeps the search linear.
    units = character.encode("utf-16-be", "surrogatepass")
    codes = [f"u(?i:{units[at : at + 2].hex()})" for at in range(0, len(units), 2)]
    escaped = escape + r"\\{1,7}".join(codes)
    quoted = "".join(f"%(?i:{byte:02x})" for byte in character.encode("utf-8", "surrogatepass"))
    plain = re.escape(character)
    if escape and not character.isalnum():
        plain = rf"\\{{0,7}}{plain}"
    return f"(?:{escaped}|{plain}|{quoted})"


def mask_text(text: str, key: str | None = None) -> str:
    """Return *text* with thread keys and all copies of *key* masked. It may be cut, and need not be JSON.

    >>> mask_text('{"threadKey":"secr')
    '{"threadKey":"****'
    """
    if key:
        text = mask_secret(text, key)
    return _KEY_IN_TEXT.sub(_masked_key, text) if THREAD_KEY in text else text


def _masked_key(match: re.Match[str]) -> str:
    return f"{match[1]}{match['quote'] or ''}{MASK}"


# A key starts a word. After a JSON escape such as \\n, the letter n is not part of the word.
_SERVICE_KEY: Final = re.compile(r"(?:\b|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4}))mint_[A-Za-z0-9_-]{8,}")


def mask_service_keys(text: str) -> str:
    """Return *text* with every key of the service masked, whether it is known here or not."""
    return _SERVICE_KEY.sub(f"mint_{MASK}", text) if "mint_" in text else text
