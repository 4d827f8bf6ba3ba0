"""Type guards for JSON values, which a page or the service may send in any shape."""

from __future__ import annotations

from typing import Any, TypeGuard

from .limits import ID_CHARACTERS

Wire = dict[str, Any]


def is_object(value: object) -> TypeGuard[Wire]:
    """Return whether *value* is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Return whether *value* is a JSON array."""
    return isinstance(value, list)


def is_id(value: object) -> TypeGuard[str]:
    """Return whether *value* is safe in a log line and a database: printable, neither empty nor long."""
    return isinstance(value, str) and 0 < len(value) <= ID_CHARACTERS and value.isprintable()
