"""Counts calls before they are sent. Knows limits and windows, nothing of HTTP.

A store of your own implements :class:`QuotaStore`.
"""

from .memory_store import MemoryQuotaStore
from .quota import Lease, Quota, QuotaScope
from .store import QuotaStore
from .windows import Limit, QuotaGate, QuotaRemaining, QuotaVerdict, QuotaWindow

__all__ = [
    "Lease",
    "Limit",
    "MemoryQuotaStore",
    "Quota",
    "QuotaGate",
    "QuotaRemaining",
    "QuotaScope",
    "QuotaStore",
    "QuotaVerdict",
    "QuotaWindow",
]
