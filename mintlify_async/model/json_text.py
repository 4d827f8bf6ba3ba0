"""JSON text and JSON values: reads text strictly, bounds nesting, masks thread keys, checks what is sent.

Nothing here knows the classes of the package; an error never repeats the text that was read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, cast

from ..errors import ConfigurationError

MASK: Final = "***"
"""Replaces a thread's key."""

THREAD_KEY: Final = "threadKey"
"""The name of the thread's secret in JSON."""

# Real answers stay under 20 levels. A value that is nested deeper than the interpreter's stack allows
# could be parsed but not printed, copied or sent again.
MAX_DEPTH: Final = 200
"""Deepest nesting of JSON that is accepted."""

SHALLOW: Final = 2 * MAX_DEPTH
"""A JSON text of so many characters cannot exceed :data:`MAX_DEPTH`: each level has two brackets."""


class DecodeProblem(ValueError):  # noqa: N818 - internal: each caller turns it into an error of its own
    """Says what is wrong with a JSON text or value, without repeating it."""


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)

# ``raw_decode`` calls this scanner, too, through layers that cost more than the scan of a short event.
scan_json: Final[Callable[[str, int], tuple[Any, int]]] = cast("Any", _DECODER).scan_once
"""The standard decoder's scanner: ``(text, start)`` to ``(value, end)``."""

scan_text: Final[Callable[[str, int], tuple[str, int]]] = cast("Any", json.decoder).scanstring
"""The standard decoder's string scanner, from behind the quote: ``(text, start)`` to ``(string, end)``."""


def decode_json(data: str) -> Any:
    """Return the JSON value in *data*, as strictly as JavaScript reads it.

    Raises:
        DecodeProblem: It is not JSON (NaN and Infinity are not), or nested deeper than 200.
    """
    problem = f"is nested deeper than {MAX_DEPTH}"
    try:
        content = _DECODER.decode(data)
        if not too_deep(data, content):
            return content
    except RecursionError:
        pass
    except ValueError as error:
        problem = f"is not JSON ({error})"
    # Raised outside of the block: the decoder's error holds the text and must not become the context.
    raise DecodeProblem(problem)


def too_deep(text: str, content: Any) -> bool:
    """Return whether *content*, read from *text*, is nested deeper than :data:`MAX_DEPTH`."""
    if len(text) <= SHALLOW or text.count("{") + text.count("[") <= MAX_DEPTH:
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
    return _without_keys(content, lambda kept: {**kept, THREAD_KEY: MASK})


def drop_keys(content: Any) -> Any:
    """Return *content* without the thread keys in it; the same object when there is none."""
    return _without_keys(content, lambda kept: {k: v for k, v in kept.items() if k != THREAD_KEY})


def _without_keys(content: Any, treat: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if isinstance(content, list):
        items = cast("Sequence[Any]", content)
        treated = [_without_keys(item, treat) for item in items]
        return treated if any(a is not b for a, b in zip(treated, items, strict=True)) else items
    if not isinstance(content, dict):
        return content
    inside = cast("dict[str, Any]", content)
    changed: dict[str, Any] = {}
    for name, item in inside.items():
        if isinstance(item, _CONTAINERS) and (new := _without_keys(item, treat)) is not item:
            changed[name] = new
    if changed:
        inside = {**inside, **changed}
    return inside if inside.get(THREAD_KEY) is None else treat(inside)


_KEY_IN_TEXT: Final = r"""(threadKey(?:\\*["'])?\s*[:=]\s*(?:\\*["'])?)[^"'\\\s,}&]+"""


def mask_text(text: str, key: str | None = None) -> str:
    """Return *text*, JSON or not and perhaps cut, with thread keys masked, and *key* wherever it occurs.

    >>> mask_text('{"threadKey":"secr')
    '{"threadKey":"***'
    """
    if key:
        text = text.replace(key, MASK)
    return re.sub(_KEY_IN_TEXT, rf"\g<1>{MASK}", text)


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


def require_json(content: object, field: str) -> None:
    """Check that *content* can be sent as JSON.

    Raises:
        ConfigurationError: It holds something that JSON cannot express, or is nested deeper than 200.
    """
    level: list[object] = [content]
    for _ in range(MAX_DEPTH + 1):
        for item in level:
            if not (item is None or isinstance(item, str | int | float | list | dict)):
                kind = type(item).__name__
                raise ConfigurationError(f"{field} holds a {kind}, which is not JSON", field=field)
            if isinstance(item, dict) and not all(
                isinstance(name, str) for name in cast("Mapping[object, Any]", item)
            ):
                raise ConfigurationError(
                    f"{field} holds an object with a key that is not a string", field=field
                )
        level = [inside for item in level for inside in _inside(item)]
        if not level:
            return
    raise ConfigurationError(f"{field} is nested deeper than {MAX_DEPTH}", field=field)
