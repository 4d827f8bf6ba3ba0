"""JSON text and JSON values: reads text strictly, bounds nesting, masks thread keys, completes characters.

Nothing here knows the classes of the package. An error never repeats the text that was read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any, Final, Literal, cast

from ..checks import MAX_DEPTH, TOO_DEEP
from .secret import MASK

__all__ = ["as_object", "whole_characters"]

THREAD_KEY: Final = "threadKey"
"""The name of the thread's secret in JSON."""

EXCERPT_CHARACTERS: Final = 2000
"""How much of a text that cannot be used an error keeps."""


class DecodeProblem(ValueError):  # noqa: N818 - internal: each caller turns it into an error of its own
    """Describes the fault of a JSON text or value, without repeating the text."""


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


_WHITE_SPACE: Final = " \t\n\r"  # of JSON: RFC 8259, 2
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)

scan_text: Final[Callable[[str, int], tuple[str, int]]] = cast("Any", json.decoder).scanstring
"""The standard decoder's string scanner, from behind the quote: ``(text, start)`` to ``(string, end)``."""


def decode_json(data: str, error: Callable[[str], Exception] = DecodeProblem) -> Any:
    """Return the JSON value in *data*, as strictly as JavaScript reads it.

    Raises:
        DecodeProblem: It is not JSON (NaN and Infinity are not), or nested deeper than 200. *error* makes
            another exception of the same words.
    """
    problem = TOO_DEEP
    try:
        text = data.strip(_WHITE_SPACE)
        content, end = _DECODER.raw_decode(text)
        if end < len(text):
            raise json.JSONDecodeError("Extra data", text, end)
        if len(data) <= 2 * MAX_DEPTH or not _too_deep(data, content):
            return content
    except RecursionError:
        pass
    except ValueError as fault:
        problem = f"is not JSON ({fault})"
    # Raised outside of the block: the decoder's error holds the text and must not become the context.
    raise error(problem)


def _too_deep(text: str, content: Any) -> bool:
    """Return whether *content*, read from *text*, is nested deeper than :data:`MAX_DEPTH`."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return False
    level: list[Any] = [content]
    for _ in range(MAX_DEPTH + 1):
        level = [inside for item in level for inside in _inside(item) if isinstance(inside, dict | list)]
        if not level:
            return False
    return True


def _inside(content: Any) -> Sequence[Any]:
    if isinstance(content, dict):
        return list(cast("dict[str, Any]", content).values())
    return cast("Sequence[Any]", content) if isinstance(content, list) else ()


def as_object(content: object) -> dict[str, Any] | None:
    """Return a copy of *content* when it is a JSON object, else None."""
    return {**cast("Mapping[str, Any]", content)} if isinstance(content, Mapping) else None


def json_safe(content: Any) -> Any:
    """Return a copy of *content* that is valid JSON: infinity and NaN become None.

    >>> json_safe({"a": [1, float("inf")]})
    {'a': [1, None]}
    """
    if isinstance(content, str):
        return content
    if isinstance(content, float):
        return content if isfinite(content) else None
    if isinstance(content, Mapping):
        return {str(k): json_safe(v) for k, v in cast("Mapping[object, Any]", content).items()}
    if isinstance(content, list | tuple):
        return [json_safe(item) for item in cast("list[Any]", content)]
    return content


def whole_characters(text: str) -> str:
    r"""Return *text* with surrogate pairs joined, and U+FFFD for a lone half, which UTF-8 cannot express.

    >>> whole_characters("\ud83d\ude00 \ud83d") == "\U0001f600 \ufffd"
    True
    """
    return text if text.isascii() else _joined(text, "replace")


def join_surrogates(text: str) -> str:
    r"""Return *text* with surrogate pairs joined. Lone halves stay.

    >>> join_surrogates("\ud83d\ude00") == "\U0001f600"
    True
    """
    return text if text.isascii() else _joined(text, "surrogatepass")


def _joined(text: str, lone_half: Literal["replace", "surrogatepass"]) -> str:
    """Return *text* with surrogate pairs joined. *lone_half* says what becomes of a half without another."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", lone_half)
    return text


_CONTAINERS: Final = (dict, list)


def mask_keys(content: Any) -> Any:
    """Return *content* with every thread key in it masked; the same object when there is none.

    >>> mask_keys({"threadKey": "secret", "n": 1})
    {'threadKey': '****', 'n': 1}
    """
    return _without_keys(content, lambda fields: {**fields, THREAD_KEY: MASK})


def drop_keys(content: Any) -> Any:
    """Return *content* without the thread keys in it; the same object when there is none."""
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
        if isinstance(item, _CONTAINERS) and (replacement := _without_keys(item, treat)) is not item:
            replacements[name] = replacement
    if replacements:
        fields = {**fields, **replacements}
    return fields if fields.get(THREAD_KEY) is None else treat(fields)


_KEY_IN_TEXT: Final = re.compile(
    r"""(threadKey(?:\\*["'])?\s*[:=]\s*)"""
    r"""(?:(?P<quote>\\*["'])(?:(?!(?<!\\)(?P=quote)).)+|(?:[^"'\\\s,}&]|\\+(?:/|u[0-9a-fA-F]{4}))+)"""
)
"""A thread's key: in quotation marks up to the closing one, over escapes, or else one word."""

_ESCAPED_ASCII: Final = re.compile(r"u00[2-7]|%[2-7]")

_UNESCAPED: Final = re.compile(r"[\w.~-]*", re.ASCII)
"""A key that only ``\\uXXXX`` or ``%XX`` can write otherwise."""


def mask_secret(text: str, secret: str) -> str:
    r"""Return *text* with *secret* masked in every form that JSON and URLs give it, also cut or nested JSON.

    >>> mask_secret(r'{"error": "a\/b\u002bc"}', "a/b+c")
    '{"error": "****"}'
    """
    text = text.replace(secret, MASK)
    if "\\" not in text and "%" not in text:  # every other form has one of them
        return text
    if _UNESCAPED.fullmatch(secret) and not _ESCAPED_ASCII.search(text):
        return text
    return _every_form(secret).sub(MASK, text)


@lru_cache(maxsize=64)  # its arguments show nowhere
def _every_form(secret: str) -> re.Pattern[str]:
    # A run of backslashes is one atomic group, which also takes those of the escape behind it. If each one
    # had its own forms, a long run could be divided between them in exponentially many ways.
    return re.compile("".join(map(_run_and_next, re.finditer(r"(\\*)([^\\]?)", secret))))


def _run_and_next(found: re.Match[str]) -> str:
    """Return a pattern of the forms of some backslashes and of the character behind them."""
    length, character = len(found[1]), found[2]
    if not length:
        return _forms(character)
    is_own = found.string.startswith("u005c", found.start(2))  # of the key itself, and no escape
    backslash = r"\\|%(?i:5c)" if is_own else r"\\|%(?i:5c)|u(?i:005c)"
    return f"(?>(?:{backslash}){{{length},{8 * length + 7}}}){_forms(character, escape='')}"


def _forms(character: str, escape: str = r"\\{1,7}") -> str:
    """Return a pattern of the forms of *character*: itself, escaped in JSON (within JSON), or in a URL.

    *escape* is the pattern of the backslashes before an escape. It is empty if they are matched already.
    """
    if not character:
        return ""
    # Each nesting doubles the backslashes; a bound keeps the search linear.
    units = character.encode("utf-16-be", "surrogatepass")
    codes = [f"u(?i:{units[at : at + 2].hex()})" for at in range(0, len(units), 2)]
    escaped = escape + r"\\{1,7}".join(codes)
    quoted = "".join(f"%(?i:{byte:02x})" for byte in character.encode("utf-8", "surrogatepass"))
    plain = re.escape(character)
    if escape and not character.isalnum():
        plain = rf"\\{{0,7}}{plain}"
    return f"(?:{escaped}|{plain}|{quoted})"


def mask_text(text: str, key: str | None = None) -> str:
    """Return *text*, JSON or not and perhaps cut, with thread keys masked, and *key* wherever it occurs.

    >>> mask_text('{"threadKey":"secr')
    '{"threadKey":"****'
    """
    if key:
        text = mask_secret(text, key)
    return _KEY_IN_TEXT.sub(_masked_key, text) if THREAD_KEY in text else text


def _masked_key(match: re.Match[str]) -> str:
    return f"{match[1]}{match['quote'] or ''}{MASK}"
