"""What outlives a process: creation claims and conversations. Each step happens whole or not at all.

A store of your own implements :class:`Ledger` or :class:`ConversationStore`.
"""

from .conversations import (
    ConversationStore,
    MemoryConversationStore,
    SQLiteConversationStore,
    StoredConversation,
    StoredTurn,
    check_name,
    check_revision,
    first_revision,
    store_conflict,
)
from .format_version import unknown_version
from .ledger import Claim, Ledger, MemoryLedger, SQLiteLedger, check_job_id, no_open_claim

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
