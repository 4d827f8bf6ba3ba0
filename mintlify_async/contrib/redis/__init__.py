"""A Redis that the workers of a company share comes in; their quota, ledger and conversations come out."""

from __future__ import annotations

from .conversations import RedisConversationStore
from .ledger import RedisLedger
from .quota import RedisQuotaStore

__all__ = ["RedisConversationStore", "RedisLedger", "RedisQuotaStore"]
