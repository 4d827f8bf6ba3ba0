"""JSON text and JSON values: reads text strictly, bounds nesting, masks thread keys, checks what is sent.

Nothing here knows the classes of the package. An error never repeats the text that was read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, cast

from ..errors import ConfigurationError, printable

__all__ = ["as_object"]

MASK: Final = "***"
"""Replaces a thread's key."""

THREAD_KEY: Final = "threadKey"
"""The name of the thread's secret in JSON."""

# Real answers stay under 20 levels. A value that is nested deeper than the interpreter's stack allows
# could be parsed but not printed, copied or sent again.
MAX_DEPTH: Final = 200
"""Deepest nesting of JSON that is accepted."""

EXCERPT_CHARACTERS: Final = 2000
"""How much of a text that cannot be used an error keeps."""

_TOO_DEEP: Final = f"is nested deeper than {MAX_DEPTH}"


class DecodeProblem(ValueError):  # noqa: N818 - internal: each caller turns it into an error of its own
    """Describes the fault of a JSON text or value, without repeating the text."""


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)

scan_text: Final[Callable[[str, int], tuple[str, int]]] = cast("Any", json.decoder).scanstring
"""The standard decoder's string scanner, from behind the quote: ``(text, start)`` to ``(string, end)``."""


def decode_json(data: str) -> Any:
    """Return the JSON value in *data*, as strictly as JavaScript reads it.

    Raises:
        DecodeProblem: It is not JSON (NaN and Infinity are not), or nested deeper than 200.
    """
    problem = _TOO_DEEP
    try:
        content = _DECODER.decode(data)
        if not _too_deep(data, content):
            return content
    except RecursionError:
        pass
    except ValueError as error:
        problem = f"is not JSON ({error})"
    # Raised outside of the block: the decoder's error holds the text and must not become the context.
    raise DecodeProblem(problem)


def _too_deep(text: str, content: Any) -> bool:
    """Return whether *content*, read from *text*, is nested deeper than :data:`MAX_DEPTH`."""
    if len(text) <= 2 * MAX_DEPTH or text.count("{") + text.count("[") <= MAX_DEPTH:
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


_CONTAINERS: Final = (dict, list)


def mask_keys(content: Any) -> Any:
    """Return *content* with every thread key in it masked; the same object when there is none.

    >>> mask_keys({"threadKey": "secret", "n": 1})
    {'threadKey': '***', 'n': 1}
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


_KEY_IN_TEXT: Final = r"""(threadKey(?:\\*["'])?\s*[:=]\s*(?:\\*["'])?)[^"'\\\s,}&]+"""


def mask_text(text: str, key: str | None = None) -> str:
    """Return *text*, JSON or not and perhaps cut, with thread keys masked, and *key* wherever it occurs.

    >>> mask_text('{"threadKey":"secr')
    '{"threadKey":"***'
    """
    if key:
        text = text.replace(key, MASK)
    return re.sub(_KEY_IN_TEXT, rf"\g<1>{MASK}", text) if THREAD_KEY in text else text


def require_text(content: object, field: str, *, empty: bool = False) -> str:
    """Return *content* if it is a string.

    Raises:
        ConfigurationError: It is not a string, or it is empty and *empty* is False.
    """
    if not isinstance(content, str):
        raise ConfigurationError(f"{field} must be a string, not {type(content).__name__}", field=field)
    if not content and not empty:
        raise ConfigurationError(f"{field} must not be empty", field=field)
    return content


def require_whole(text: str, field: str) -> str:
    """Return *text* if all its characters are whole.

    Raises:
        ConfigurationError: It has half of a surrogate pair, which UTF-8 cannot express.
    """
    if not _is_whole(text):
        raise ConfigurationError(f"{field} {_HALF}", field=field)
    return text


_HALF: Final = "has half of a surrogate pair, which is no character; remove it"
_HALF_PAIR: Final = re.compile(r"[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")


def _is_whole(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:  # it may have both halves of each pair: JSON text joins them
        return _HALF_PAIR.search(text) is None
    return True


_LONGEST_INT_BITS: Final = 13_000
"""Python refuses to write a longer whole number (4,300 digits)."""


def require_json(content: object, field: str, *, sent: bool = False) -> None:
    """Check that *content* can be sent as JSON.

    Args:
        content: The value.
        field: Its name, for the error.
        sent: Whether it is sent as it is. Numbers must then be finite, and characters complete.

    Raises:
        ConfigurationError: It holds something that JSON cannot express, or is nested deeper than 200.
            The error names the place, such as ``filter.since``.
    """
    problem = _problem(content, sent, MAX_DEPTH)
    if problem is not None:
        place, words = problem
        place = field if words == _TOO_DEEP else field + place
        raise ConfigurationError(f"{place} {words}", field=place)


def _problem(item: object, sent: bool, depth: int) -> tuple[str, str] | None:
    """Return the place in *item* of what is not JSON, and why. None if all of it is."""
    words: str | None = None
    members: Iterable[tuple[Any, object]] = ()
    match item:
        case None:
            pass
        case str():
            words = _HALF if sent and not _is_whole(item) else None
        case list() | tuple():
            members = enumerate(cast("Sequence[object]", item))
        case dict():
            members = cast("dict[Any, object]", item).items()
            words = next(filter(None, (_name_problem(name, sent) for name, _ in members)), None)
        case float():
            words = "must be a finite number" if sent and not isfinite(item) else None
        case int():
            words = "has too many digits to be written" if item.bit_length() > _LONGEST_INT_BITS else None
        case _:
            words = f"is of type {type(item).__name__}, which JSON cannot express"
    if depth < 0:
        words = _TOO_DEEP
    if words is not None:
        return "", words
    for step, member in members:
        problem = _problem(member, sent, depth - 1)
        if problem is not None:
            at = f"[{step}]" if isinstance(step, int) else f".{printable(step, 40)}"
            return at + problem[0], problem[1]
    return None


def _name_problem(name: object, sent: bool) -> str | None:
    if not isinstance(name, str):
        return f"has a key that is not a string: {printable(repr(name), 40)}"
    return f"has a key that {_HALF}" if sent and not _is_whole(name) else None
