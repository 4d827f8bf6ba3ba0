"""Checks of numbers that users pass. Each error names the argument."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from ..errors import ConfigurationError, printable

__all__ = ["LARGEST", "check_number", "check_seconds", "is_number"]

LARGEST: Final = 1e300
"""Largest number that is sent or counted with: an int may be too large for a float, and for JSON."""


def check_seconds(value: object, name: str, *, zero: bool = False, none: str | None = None) -> None:
    """Check a length of time in seconds.

    Args:
        value: The argument.
        name: Its name, for the error.
        zero: Whether 0 is allowed. Then the time must also be finite.
        none: What None does, where it is allowed; "means no limit", say.

    Raises:
        ConfigurationError: It is not a number, or out of range.
    """
    if value is None and none is not None:
        return
    if isinstance(value, int | float) and not isinstance(value, bool):
        edge = 0 if zero else math.inf
        if 0 < value < LARGEST or value == edge:
            return
    expectation = "a finite number of seconds, 0 or more" if zero else "a number of seconds above 0"
    hint = f"; None {none}" if none is not None else ""
    raise ConfigurationError(f"{name} must be {expectation}{hint}; got {shown(value)}", field=name)


def is_seconds(instance: object, attribute: Any, value: object) -> None:
    """Check a field that holds a length of time above 0, in seconds."""
    check_seconds(value, attribute.name)


def is_seconds_or_none(instance: object, attribute: Any, value: object) -> None:
    """Check a length of time above 0, in seconds. None means no limit."""
    check_seconds(value, attribute.name, none="means no limit")


def check_number(
    value: object,
    name: str,
    least: float,
    *,
    most: float = math.inf,
    whole: bool = False,
    none: bool = False,
) -> None:
    """Check a number from *least* to *most*: a *whole* one, or None if *none*.

    Raises:
        ConfigurationError: It is something else.
    """
    kinds = int if whole else int | float
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        kind = "a whole number" if whole else "a number" if most == math.inf else "a finite number"
        hint = ", or None" if none else ""
        raise ConfigurationError(
            f"{name} must be {kind}, {least:g} or more{hint}; got {shown(value)}", field=name
        )


def is_number(least: float, **rules: Any) -> Callable[[Any, Any, Any], None]:
    """Return a check of a field that holds a number; *rules* as for :func:`check_number`."""

    def check(instance: object, attribute: Any, value: object) -> None:
        check_number(value, attribute.name, least, **rules)

    return check


def shown(value: object) -> str:
    """Return *value* as an error shows it."""
    try:
        return printable(repr(value), 40)
    except ValueError:  # Python refuses to write an int of thousands of digits
        return "a longer one"
