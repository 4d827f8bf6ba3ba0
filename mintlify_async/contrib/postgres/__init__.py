"""Quota, ledger and conversations in a Postgres database that several processes or machines share."""

from __future__ import annotations

from .postgres_store import PostgresStore

__all__ = ["PostgresStore"]
