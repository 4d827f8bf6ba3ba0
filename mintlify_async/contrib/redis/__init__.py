"""Quota, ledger, conversations and running answers on a Redis that several processes or machines share."""

from __future__ import annotations

from .redis_store import RedisStore
from .streams import RedisStreamStore

__all__ = ["RedisStore", "RedisStreamStore"]
