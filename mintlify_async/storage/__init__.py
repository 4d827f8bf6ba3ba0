"""What outlives a process: creation claims and conversations. Each step happens whole or not at all.

A store of your own implements :class:`Ledger` or :class:`ConversationStore`.
"""

from typing import TYPE_CHECKING, Any

from .format_version import unknown_version
from .ledger import Claim, Ledger, MemoryLedger, SQLiteLedger, check_job_id, check_name, no_open_claim

if TYPE_CHECKING:
    from .conversations import (
        ConversationStore,
        MemoryConversationStore,
        SQLiteConversationStore,
        StoredConversation,
        StoredTurn,
        check_revision,
        first_revision,
        store_conflict,
    )

__all__ = [
    "Claim",
    "ConversationStore",
    "Ledger",
    "MemoryConversationStore",
    "MemoryLedger",
    "SQLiteConversationStore",
    "SQLiteLedger",
    "StoredConversation",
    "StoredTurn",
    "check_job_id",
    "check_name",
    "check_revision",
    "first_revision",
    "no_open_claim",
    "store_conflict",
    "unknown_version",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import conversations  # loaded on first use: a session needs the ledgers alone

    return getattr(conversations, name)
