"""Optional parts, each with an extra: relay, stores on Redis and Postgres, tracing. The core imports none."""

from __future__ import annotations


def extra_missing(extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error for a part that cannot be imported, with the line that installs the extra."""
    return ModuleNotFoundError(
        f"{error}: mintlify_async.contrib.{extra} needs the extra {extra}; "
        f'run: pip install "mintlify-async[{extra}]"',
        name=error.name,
    )
