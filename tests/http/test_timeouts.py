"""The limits on time: checked where they are given, kept whatever happens."""

from __future__ import annotations

import asyncio

import pytest

from mintlify_async import APIConnectionError, APITimeoutError, OutcomeUnknownError, Timeouts
from mintlify_async.testing.faults import Raw
from tests.support.fault_catalogue import ALL, call, script


async def test_infinite_limits_work(service):
    """An infinite limit is no limit; aiohttp itself cannot round infinity."""
    inf = float("inf")
    async with service.session(timeouts=Timeouts(connect=inf, request=inf, first_event=inf)) as session:
        assert (await session.create_job("x")).id
        assert (await session.ask("x")).text


@pytest.mark.parametrize("operation", ALL)
async def test_endless_interim_answers_end_with_the_deadline(virtual, service, session, operation):
    """Endless 1xx answers end with the deadline."""
    script(service, operation, fault=Raw([b"HTTP/1.1 100 Continue\r\n\r\n", 1.0] * 500))
    before = virtual.now()
    with pytest.raises((OutcomeUnknownError, APIConnectionError)):
        await call(session, operation)
    assert virtual.now() - before < 61


@pytest.mark.parametrize(
    ("operation", "timeout", "phase", "seconds"),
    [
        ("create_job", 5, "request", 5),
        ("get_job", None, "request", 60),
        ("ask", 5, "total", 5),
        ("ask", None, "first_event", 60),
    ],
)
async def test_a_key_function_that_hangs_ends_with_the_limit_of_the_call(
    virtual, service, operation, timeout, phase, seconds
):
    """The error names the limit, and says that nothing was sent."""
    hang = asyncio.Event().wait
    async with service.session(admin_key=hang, assistant_key=hang) as session:
        calls = {
            "create_job": lambda: session.create_job("x", timeout=timeout),
            "get_job": lambda: session.job("j").refresh(),
            "ask": lambda: session.ask("x", timeout=timeout).run(),
        }
        with pytest.raises(APITimeoutError) as caught:
            await calls[operation]()
    assert (caught.value.phase, caught.value.seconds, caught.value.sent) == (phase, seconds, "no")
    assert virtual.now() == pytest.approx(seconds, abs=0.01)
    assert len(service.requests) == 0
