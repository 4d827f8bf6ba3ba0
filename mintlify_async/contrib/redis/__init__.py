"""Quota, ledger, conversations and running answers on a Redis that several processes or machines share."""

from __future__ import annotations

from .conversations import RedisConversationStore
from .ledger import RedisLedger
from .quota import RedisQuotaStore
from .streams import RedisStreamStore

__all__ = ["RedisConversationStore", "RedisLedger", "RedisQuotaStore", "RedisStreamStore"]
