"""Counts calls before they are sent. It uses limits and windows, but nothing of HTTP."""

from typing import TYPE_CHECKING

from ..wrong_names import missing_names
from .counted_limits import Limit, QuotaRemaining
from .quota import Quota

__all__ = ["Limit", "Quota", "QuotaRemaining"]

if not TYPE_CHECKING:  # a type checker reports the mistake without it
    __getattr__ = missing_names(__name__)
