"""Checks of the objects and functions that users pass; each error names the argument and what to pass."""

from __future__ import annotations

import inspect
from os import PathLike, fspath
from typing import Any, TypeVar

from attrs import field, frozen

from ..errors import ConfigurationError, printable

__all__ = [
    "OBSERVER",
    "QUOTA",
    "SESSION",
    "Kind",
    "check_function",
    "check_type",
    "is_plain_function",
]

T = TypeVar("T")


@frozen
class Kind:
    """A kind of object that an argument takes. Any object that has its methods is one.

    Args:
        words: Its name, with an article.
        methods: The methods that it must have.
        example: What to pass, for the error.
        in_file: The class that keeps it in a file, or "".
    """

    words: str
    methods: tuple[str, ...]
    example: str
    in_file: str = field(default="", kw_only=True)
    plain: tuple[str, ...] = field(default=(), kw_only=True)  # the methods that must not be async

    def check(self, value: T, name: str, *, required: bool = False) -> T:
        """Return *value* when it has the methods, or is None and not *required*.

        Raises:
            ConfigurationError: It is something else; the message names what to pass.
        """
        if value is None and not required:
            return value
        missing = [method for method in self.methods if not callable(getattr(value, method, None))]
        if isinstance(value, type) and not missing:
            raise _wrong(name, f"must be an object, not {_shown(value)}: pass {value.__name__}(…)")
        if missing:
            given: object = value
            instead = self._instead_of(given)
            some = len(missing) < len(self.methods) and not isinstance(given, str | PathLike)
            lacks = f" (it has no {', '.join(missing)})" if some else ""
            raise _wrong(name, f"must be {self.words}, not {_shown(given)}{lacks}: pass {instead}")
        for method in self.plain:
            if inspect.iscoroutinefunction(getattr(value, method)):
                raise _wrong(name, f"must have a plain method {method}; that of {_shown(value)} is async")
        return value

    def _instead_of(self, value: object) -> str:
        if self.in_file and isinstance(value, str | PathLike):
            path: str | bytes = fspath(value)  # pyright: ignore[reportUnknownArgumentType] - str or bytes
            if isinstance(path, str) and "://" not in path:  # an address may hold a password
                return f"{self.in_file}({printable(repr(path), 80)})"
        return self.example


OBSERVER = Kind("an observer", ("start",), "OpenTelemetryObserver()", plain=("start",))
QUOTA = Kind("a Quota", ("acquire", "block", "left"), "Quota()")
SESSION = Kind("a MintlifySession", ("ask", "conversation", "create_job"), "the session that you have opened")


def check_type(value: T, kind: type, name: str) -> T:
    """Return *value* when it is None or a *kind*.

    Raises:
        ConfigurationError: It is something else.
    """
    if value is not None and not isinstance(value, kind):
        raise _wrong(name, f"must be {kind.__name__}(…) or None, not {_shown(value)}")
    return value


def check_function(value: T, name: str, *, plain: bool = True) -> T:
    """Return *value* when it is None or a function; with *plain*, not an async one.

    Raises:
        ConfigurationError: It is something else.
    """
    if value is not None and not (is_plain_function(value) if plain else callable(value)):
        wanted = "a plain function, not an async one" if callable(value) else "a function"
        raise _wrong(name, f"must be {wanted}; got {_shown(value)}")
    return value


def is_plain_function(given: object) -> bool:
    """Return whether *given* can be called and is not a coroutine function."""
    if not callable(given) or inspect.iscoroutinefunction(given):
        return False
    return not inspect.iscoroutinefunction(type(given).__call__)


def _shown(value: Any) -> str:
    """Return what *value* is, without its text, which may be a secret."""
    if value is None or value is True or value is False:
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if inspect.isroutine(value):
        return f"the function {value.__name__}"
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"


def _wrong(name: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"{name} {why}", field=name)
