"""The limits on time: checked where they are given, kept whatever happens."""

from __future__ import annotations

import asyncio

import pytest

from mintlify_async import (
    APIConnectionError,
    APITimeoutError,
    OutcomeUnknownError,
    Timeouts,
)
from mintlify_async.testing import LocalService
from mintlify_async.testing.faults import Raw
from mintlify_async.testing.loop_time import virtual_time


async def test_infinite_limits_work(service):
    """An infinite limit is no limit; aiohttp itself cannot round infinity."""
    inf = float("inf")
    async with service.session(timeouts=Timeouts(connect=inf, request=inf, first_event=inf)) as session:
        assert (await session.create_job("x")).id
        assert (await session.ask("x")).text


async def test_endless_interim_answers_end_with_the_deadline():
    """Endless 1xx answers end with the deadline."""
    with virtual_time() as time:
        async with LocalService() as service:
            service.script.any(fault=Raw([b"HTTP/1.1 100 Continue\r\n\r\n", 1.0] * 500), times=None)
            async with service.session() as session:
                for call in (session.create_job("x"), session.job("job_1").refresh(), session.ask("x").run()):
                    before = time.now()
                    with pytest.raises((OutcomeUnknownError, APIConnectionError)):
                        await call
                    assert time.now() - before < 61


@pytest.mark.parametrize(
    ("operation", "timeout", "phase", "seconds"),
    [
        ("create_job", 5, "request", 5),
        ("get_job", None, "request", 60),
        ("ask", 5, "total", 5),
        ("ask", None, "first_event", 60),
    ],
)
async def test_a_key_function_that_hangs_ends_with_the_limit_of_the_call(operation, timeout, phase, seconds):
    """The error names the limit, and says that nothing was sent."""

    async def hang():
        await asyncio.Event().wait()

    with virtual_time() as time:
        async with LocalService() as service:
            async with service.session(admin_key=hang, assistant_key=hang) as session:
                calls = {
                    "create_job": lambda: session.create_job("x", timeout=timeout),
                    "get_job": lambda: session.job("j").refresh(),
                    "ask": lambda: session.ask("x", timeout=timeout).run(),
                }
                with pytest.raises(APITimeoutError) as caught:
                    await calls[operation]()
            assert (caught.value.phase, caught.value.seconds, caught.value.sent) == (phase, seconds, "no")
            assert time.now() == pytest.approx(seconds, abs=0.01)
            assert len(service.requests) == 0
