"""Optional modules, each with an extra: relay, Redis and Postgres stores, tracing. The core imports none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..wrong_names import missing_names


def extra_missing(extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error for an optional module that cannot be imported. It says how to install the extra."""
    return ModuleNotFoundError(
        f"{error}: mintlify_async.contrib.{extra} needs the extra {extra}; "
        f'run: pip install "mintlify-async[{extra}]"',
        name=error.name,
    )


if not TYPE_CHECKING:  # hidden from type checkers, so that they report a wrong name themselves
    __getattr__ = missing_names(__name__)
