"""The local service for commands in this process. They wait 0.01 s between polls and between attempts."""

from __future__ import annotations

import pytest

from mintlify_async import PollPolicy, RetryPolicy
from mintlify_async.testing import JobLife, LocalService


@pytest.fixture
def no_waits(monkeypatch):
    delay = RetryPolicy.delay
    monkeypatch.setattr(PollPolicy, "delay", lambda *_: 0.01)
    monkeypatch.setattr(RetryPolicy, "delay", lambda *args, **options: delay(*args, **options) and 0.01)


@pytest.fixture
async def service(no_waits):
    async with LocalService(life=JobLife(looks=["active", "completed"])) as service:
        yield service
