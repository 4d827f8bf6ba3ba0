"""Counts calls before they are sent. Knows limits and windows, nothing of HTTP."""

from .gate import Limit, QuotaRemaining
from .quota import Quota

__all__ = ["Limit", "Quota", "QuotaRemaining"]
