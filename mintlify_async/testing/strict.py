"""JSON objects that a person wrote in, attrs values out: cattrs, told to coerce nothing.

By itself cattrs makes ``"None"`` of null and True of ``"false"``; in a script file that
hides the mistake, so a value of another type is an error that names its field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from cattrs import BaseValidationError, Converter, transform_error

from ..errors import ConfigurationError, printable
from .http_answer import Piece

__all__ = ["read_strictly"]

T = TypeVar("T")


def read_strictly(content: Mapping[str, Any], kind: type[T], where: str) -> T:
    """Return *content* as a *kind*; *where* begins the message of an error.

    Raises:
        ConfigurationError: A field is unknown, missing, or of another type.
    """
    try:
        return _CONVERTER.structure(dict(content), kind)
    except BaseValidationError as error:
        mistakes = transform_error(error, path=where, format_exception=_words)
    raise ConfigurationError("; ".join(mistakes), field=where)


def _words(error: BaseException, kind: type | None) -> str:
    # cattrs' own words quote the value; ours say what is wanted.
    if isinstance(error, KeyError):
        return "it is missing"
    if isinstance(error, ConfigurationError | TypeError):
        return str(error)
    return printable(str(error))


def _exactly(*kinds: type) -> Any:
    names = " or ".join(kind.__name__ for kind in kinds)

    def check(value: object, _: type) -> Any:
        if type(value) in kinds:
            return value
        raise TypeError(f"must be {names}, not {type(value).__name__}")

    return check


def _bytes(value: object, _: type) -> bytes:
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"must be text, not {type(value).__name__}")


def _piece(value: object, _: type) -> bytes | float:
    # The fault itself makes a pause of a number.
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return _bytes(value, bytes)


def _make_converter() -> Converter:
    converter = Converter(forbid_extra_keys=True)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _exactly(float, int))
    converter.register_structure_hook(bytes, _bytes)
    converter.register_structure_hook_func(lambda kind: kind == Piece, _piece)
    return converter


_CONVERTER = _make_converter()
