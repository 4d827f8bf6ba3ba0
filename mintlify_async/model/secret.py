"""Values that no ``repr`` shows, because containers and tracebacks print the ``repr`` of locals."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

__all__ = ["MASK"]

T = TypeVar("T")

MASK: Final = "****"
"""The text that replaces a secret."""


class Secret(str):
    """A string that ``repr`` does not show.

    Any string made from it is a plain string, for example ``"Bearer " + secret``. Make that a Secret again.
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

    A string becomes a :class:`Secret`. None and awaitables stay as they are, and a function can be called.
    For a value of another type, only :func:`type_name` works.
    """
    if value is None or isinstance(value, Secret | _Refused | _SecretFunction) or inspect.isawaitable(value):
        return value
    if isinstance(value, str):
        return Secret(value)
    return cast("T", _SecretFunction(value) if callable(value) else _Refused(type(value).__name__))


def type_name(value: object) -> str:
    """Return the name of the type of *value*, which may be hidden."""
    return value.type_name if isinstance(value, _Refused) else type(value).__name__
