"""Type guards for JSON values, which a page or the service may send in any shape."""

from __future__ import annotations

from typing import Any, TypeGuard

Wire = dict[str, Any]


def is_object(value: object) -> TypeGuard[Wire]:
    """Return whether *value* is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Return whether *value* is a JSON array."""
    return isinstance(value, list)
