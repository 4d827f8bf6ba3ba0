"""Counts calls before they are sent. Knows limits and windows, nothing of HTTP."""
