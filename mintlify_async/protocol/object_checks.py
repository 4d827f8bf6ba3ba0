"""Checks of objects that a type checker lets pass, or where people slip. Each error names the argument."""

from __future__ import annotations

import inspect

from ..errors import ConfigurationError


def check_type(value: object, kind: type, name: str) -> None:
    """Check that *value* is None or a *kind*, such as the Timeouts of this package.

    Raises:
        ConfigurationError: It is something else.
    """
    if value is not None and not isinstance(value, kind):
        type_name = type(value).__name__
        raise ConfigurationError(f"{name} must be {kind.__name__}(…) or None; got {type_name}", field=name)


def check_function(value: object, name: str) -> None:
    """Check that *value* is None or a plain function. Nobody would await an async one.

    Raises:
        ConfigurationError: It is something else.
    """
    if value is not None and (not callable(value) or inspect.iscoroutinefunction(value)):
        raise ConfigurationError(
            f"{name} must be a plain function, not async; got {type(value).__name__}", field=name
        )
