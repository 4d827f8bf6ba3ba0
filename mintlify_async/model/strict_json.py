"""JSON text and JSON values: strict parsing, limited nesting, complete characters.

This module uses no class of the package. An error never repeats the text that was read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, Literal, cast

from ..argument_checks import MAX_DEPTH, TOO_DEEP

__all__ = ["as_object", "whole_characters"]

EXCERPT_CHARACTERS: Final = 2000
"""Number of characters of an unusable text that an error keeps."""


class DecodeProblem(ValueError):  # noqa: N818 - internal: each caller turns it into its own error
    """Describes what is wrong with a JSON text or value, without repeating the text."""


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


_WHITE_SPACE: Final = " \t\n\r"  # of JSON: RFC 8259, 2
_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)

scan_text: Final[Callable[[str, int], tuple[str, int]]] = cast("Any", json.decoder).scanstring
"""The standard decoder's scanner for text after a quote: ``(text, start)`` to ``(string, end)``."""


def decode_json(data: str, error: Callable[[str], Exception] = DecodeProblem) -> Any:
    """Return the JSON value in *data*, as strictly as JavaScript reads it.

    Raises:
        DecodeProblem: *data* is not JSON (NaN and Infinity are not JSON), or is nested deeper than 200.
            *error* takes the message, and returns the exception to raise instead.
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
    # Raised outside the block, because the decoder's error contains the text and must not become the context.
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
    """Return a copy of *content* if it is a JSON object, else None."""
    return {**cast("Mapping[str, Any]", content)} if isinstance(content, Mapping) else None


def json_safe(content: Any) -> Any:
    """Return a copy of *content* that is valid JSON. Infinity and NaN become None.

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
    r"""Return *text* with surrogate pairs joined. Lone surrogates, which UTF-8 cannot express, become U+FFFD.

    >>> whole_characters("\ud83d\ude00 \ud83d") == "\U0001f600 \ufffd"
    True
    """
    return text if text.isascii() else _joined(text, "replace")


def join_surrogates(text: str) -> str:
    r"""Return *text* with surrogate pairs joined. Lone surrogates are not changed.

    >>> join_surrogates("\ud83d\ude00") == "\U0001f600"
    True
    """
    return text if text.isascii() else _joined(text, "surrogatepass")


def _joined(text: str, lone_half: Literal["replace", "surrogatepass"]) -> str:
    """Return *text* with surrogate pairs joined. Lone surrogates are handled as *lone_half* says."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", lone_half)
    return text
