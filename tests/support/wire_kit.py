"""Shared by tests that check requests in aioresponses."""

from __future__ import annotations

JOB = {"id": "job_1", "status": "active"}
