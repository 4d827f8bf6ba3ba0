"""Lasting storage for claims, conversations and quotas. Each step happens completely or not at all.

A store of your own implements :class:`Store`.
"""

from typing import TYPE_CHECKING, Any

from .memory import MemoryStore
from .store import Record, Snapshot, Store, TakeResult, Usage, Window

if TYPE_CHECKING:
    from .sqlite_store import SQLiteStore

__all__ = [
    "MemoryStore",
    "Record",
    "SQLiteStore",
    "Snapshot",
    "Store",
    "TakeResult",
    "Usage",
    "Window",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import sqlite_store  # loaded on first use, because few programs need it

    return getattr(sqlite_store, name)
