"""Quota, ledger and conversations on a Redis that several processes or machines share."""

from __future__ import annotations

from .conversations import RedisConversationStore
from .ledger import RedisLedger
from .quota import RedisQuotaStore

__all__ = ["RedisConversationStore", "RedisLedger", "RedisQuotaStore"]
