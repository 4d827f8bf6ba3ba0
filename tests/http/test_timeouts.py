"""The limits on time: checked where they are given, kept whatever happens."""

from __future__ import annotations

import asyncio

import pytest

from mintlify_async import (
    APIConnectionError,
    APITimeoutError,
    OutcomeUnknownError,
    StreamInterruptedError,
    Timeouts,
)
from mintlify_async.testing import Raw
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
        ("get_job", None, "request", 10),
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


START = [
    {"type": "start"},
    {"type": "text-start", "id": "0"},
    {"type": "text-delta", "id": "0", "delta": "Hi"},
]
END = [{"type": "text-end", "id": "0"}, {"type": "finish"}]


@pytest.mark.parametrize(
    ("limits", "events", "pause", "phase", "at"),
    [
        ({"first_event": 5, "idle": 5}, [*START, 3600.0, *END], 8, "idle", 13),
        ({"first_event": 5, "idle": None, "total": 20}, [*START, 3600.0, *END], 8, "total", 20),
        ({"first_event": 5, "idle": None}, [*START, *END, 3600.0], 8, None, 9),
        ({"first_event": 5, "idle": None}, [*START, 60.0, *END, 3600.0], 0, None, 61),
        ({"first_event": 5, "idle": 100}, [*START, *END, 3600.0], 8, None, 9),
    ],
)
async def test_a_limit_counts_after_a_timer_that_went_off_for_nobody(
    virtual, service, limits, events, pause, phase, at
):
    """The consumer works longer than the first event may take: every later limit still ends the answer."""
    service.script.ask(events=events)
    error = None
    async with service.session(timeouts=Timeouts(**limits)) as session, session.ask("x") as reply:
        await anext(reply)
        await asyncio.sleep(pause)
        try:
            async for _ in reply:
                pass
        except StreamInterruptedError as failure:
            error = failure.__cause__
    assert virtual.now() == pytest.approx(at, abs=0.1)
    assert getattr(error, "phase", None) == phase
