"""Checks of objects and functions that no type checker sees. Each error names the argument."""

from __future__ import annotations

import inspect
from typing import TypeVar

from ..errors import ConfigurationError

__all__ = ["check_function", "check_type"]

T = TypeVar("T")


def check_type(value: T, kind: type, name: str) -> T:
    """Return *value* when it is None or a *kind*, such as the Timeouts of this package.

    Raises:
        ConfigurationError: It is something else.
    """
    if value is not None and not isinstance(value, kind):
        type_name = type(value).__name__
        raise ConfigurationError(f"{name} must be {kind.__name__}(…) or None; got {type_name}", field=name)
    return value


def check_function(value: T, name: str, *, plain: bool = True) -> T:
    """Return *value* when it is None or a function; with *plain*, not an async one, which nobody would await.

    Raises:
        ConfigurationError: It is something else.
    """
    if value is None:
        return value
    is_async = inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(
        getattr(type(value), "__call__", None)  # noqa: B004 - of the class: that of an object is bound
    )
    if not callable(value) or (plain and is_async):
        expectation = "a plain function, not an async one" if callable(value) else "a function"
        raise ConfigurationError(f"{name} must be {expectation}; got {type(value).__name__}", field=name)
    return value
