"""Lasting storage for claims, conversations and quotas. Each step happens completely or not at all.

A store of your own implements :class:`Store`.
"""

from .memory import MemoryStore
from .sqlite_store import SQLiteStore
from .store import Record, Snapshot, Store, TakeResult, Usage, Window

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
