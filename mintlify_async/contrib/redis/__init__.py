"""A Redis that the workers of a company share comes in; their quota, ledger and conversations come out."""

from __future__ import annotations

from .quota import RedisQuotaStore

__all__ = ["RedisQuotaStore"]
