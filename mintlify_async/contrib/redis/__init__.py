"""Quota, ledger, conversations and running answers on a Redis that several processes or machines share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...wrong_names import missing_names
from .redis_store import RedisStore
from .redis_stream_store import RedisStreamStore

__all__ = ["RedisStore", "RedisStreamStore"]

if not TYPE_CHECKING:  # hidden from type checkers, so that they report a wrong name themselves
    __getattr__ = missing_names(__name__)
