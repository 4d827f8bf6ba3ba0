"""Permanent storage for claims, conversations and quotas. Each step happens completely or not at all.

Your own store implements :class:`Store`.
"""

from typing import TYPE_CHECKING

from ..wrong_names import missing_names
from .memory_store import MemoryStore
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

if not TYPE_CHECKING:  # hidden from type checkers, so that they report a wrong name themselves
    __getattr__ = missing_names(__name__)
