"""Shared by tests that check requests in aioresponses."""

from __future__ import annotations

JOB = {"id": "job_1", "status": "active"}


def sent(web, index=0):
    """Return the arguments of the only request, or of the one at *index*."""
    calls = [call for calls in web.requests.values() for call in calls]
    return calls[index].kwargs


STREAM = 'data: {"type":"start"}\n\ndata: {"type":"finish"}\n\ndata: [DONE]\n\n'


ASK = "https://api.mintlify.com/discovery/v2/assistant/acme-docs/message"
