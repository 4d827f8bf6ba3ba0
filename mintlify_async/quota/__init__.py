"""Counts calls before they are sent. This package uses limits and windows, but nothing of HTTP."""

from typing import TYPE_CHECKING

from ..wrong_names import missing_names
from .quota import Limit, Quota, QuotaRemaining

__all__ = ["Limit", "Quota", "QuotaRemaining"]

if not TYPE_CHECKING:  # hidden from type checkers, so that they report a wrong name themselves
    __getattr__ = missing_names(__name__)
