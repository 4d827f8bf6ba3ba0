"""Bodies of answers: the limits on reading them, and what it costs to watch these."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mintlify_async import APIStatusError, APITimeoutError, StreamInterruptedError, Timeouts
from mintlify_async.testing import LocalService, VirtualClock
from mintlify_async.testing.faults import Cut, Raw

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(*events: dict[str, Any]) -> bytes:
    """Return *events* as one chunk of a body."""
    data = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)
    return b"%x\r\n%s\r\n" % (len(data), data)


START = chunk({"type": "start"}, {"type": "text-start", "id": "0"})
DELTA = chunk({"type": "text-delta", "id": "0", "delta": "x"})
FINISH = chunk({"type": "text-end", "id": "0"}, {"type": "finish"}) + b"0\r\n\r\n"


class CountingClock:
    """A session's view of *clock*, which counts the timers that are set and those that still wait."""

    def __init__(self, clock):
        self.clock, self.timers = clock, list[Any]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.clock, name)

    def call_at(self, at: float, callback: Callable[[], object]) -> Any:
        """Set a timer."""
        self.timers.append(self.clock.call_at(at, callback))
        return self.timers[-1]

    @property
    def set_timers(self) -> int:
        """How many timers were set."""
        return len(self.timers)

    @property
    def waiting(self) -> list[Any]:
        """The timers that have neither gone off nor been cancelled."""
        return [timer for timer in self.timers if timer.callback is not None]


async def read_all(*pieces: bytes | float, pause: float = 0.0, **limits: Any) -> CountingClock:
    """Read an answer sent in *pieces*, with a *pause* after each event; return the session's clock."""
    clock = VirtualClock()
    counting = CountingClock(clock)
    async with LocalService(clock=clock) as service:
        service.script.ask(fault=Raw([HEAD, START, *pieces], how="hang"))
        async with service.session(clock=counting, timeouts=Timeouts(**limits)) as session:
            async with session.ask("x") as reply:
                async for _ in reply:
                    if pause:
                        await clock.sleep(pause)
            assert not counting.waiting
    return counting


async def test_a_silence_costs_nothing_until_its_limit():
    """A silent stream is looked at when a limit is due, and every two minutes."""
    silent = await read_all(3600.0, FINISH, idle=4000)
    assert silent.set_timers <= 3600 / 120 + 4
    assert (await read_all(100.0, FINISH)).set_timers <= 4


@pytest.mark.parametrize("wait", [0.0, 1.0, 30.0])
async def test_a_short_limit_on_silence_counts_from_the_data_on(wait):
    """It ends the answer when it is due, however long the limit on the first event is."""
    clock = VirtualClock()
    async with LocalService(clock=clock) as service:
        service.script.ask(fault=Raw([HEAD, wait, START], how="hang"))
        async with service.session(timeouts=Timeouts(idle=2.0)) as session:
            with pytest.raises(StreamInterruptedError, match="idle"):
                await session.ask("x")
            assert clock.now() == pytest.approx(wait + 2.0, abs=0.1)


async def test_a_tiny_limit_on_silence_does_not_keep_the_loop_busy():
    """Until the first event, it is looked at a thousand times per second at most."""
    clock = VirtualClock()
    counting = CountingClock(clock)
    async with LocalService(clock=clock) as service:
        service.script.ask(fault=Raw([HEAD], how="hang"))
        limits = Timeouts(idle=1e-9, first_event=0.1)
        async with service.session(clock=counting, timeouts=limits) as session:
            with pytest.raises(APITimeoutError, match="first_event"):
                await session.ask("x")
    assert counting.set_timers <= 110


async def test_data_that_arrives_sets_no_timer():
    """However many events there are, and for however long, the timer is set again only when it is due."""
    busy = await read_all(*[0.05, DELTA] * 200, FINISH)
    assert busy.set_timers <= 3
    assert (await read_all(*[2.0, DELTA] * 200, FINISH)).set_timers <= 3 + 400 / 60


async def test_an_answer_that_is_not_read_is_not_watched():
    """While the program works on an event, no timer goes off again and again."""
    slow = await read_all(DELTA, FINISH, pause=3600.0)
    assert slow.clock.now() > 3 * 3600
    assert slow.set_timers <= 12


async def test_no_timer_outlives_the_body():
    """When an answer is read, left or broken, its timer is gone: none keeps the loop awake."""
    assert not (await read_all(FINISH)).waiting
    for broken in ([b"zz\r\n"], [30.0]):
        clock = VirtualClock()
        counting = CountingClock(clock)
        async with LocalService(clock=clock) as service:
            service.script.ask(fault=Raw([HEAD, START, *broken], how="hang"))
            async with service.session(clock=counting, timeouts=Timeouts(idle=20)) as session:
                with pytest.raises(StreamInterruptedError):
                    await session.ask("x")
                assert not counting.waiting


@pytest.mark.parametrize("idle", [50.0, None])
@pytest.mark.parametrize("silence", [0.0, 30.0])
async def test_a_dead_connection_is_noticed_within_the_limit(silence, idle):
    """A malformed chunk, which aiohttp does not report, is noticed when the limit on silence is due."""
    clock = VirtualClock()
    async with LocalService(clock=clock) as service:
        service.script.ask(fault=Raw([HEAD, START, silence, b"zz\r\n"], how="hang"))
        async with service.session(timeouts=Timeouts(idle=idle)) as session:
            with pytest.raises(StreamInterruptedError):
                await session.ask("x")
            assert clock.now() <= silence + (idle or 120.0)


async def test_a_stalled_error_page_does_not_outlast_the_deadline():
    """Reading an error page takes two seconds at most, and never longer than the call's deadline."""
    clock = VirtualClock()
    async with LocalService(clock=clock) as service:
        service.script.any(status=403, body=b'{"error": "no"} and more', fault=Cut(5, "hang"), times=None)
        async with service.session(timeouts=Timeouts(request=1, first_event=1)) as session:
            for call in (session.create_job("x"), session.job("job_1").refresh(), session.ask("x").run()):
                before = clock.now()
                with pytest.raises(APIStatusError):
                    await call
                assert clock.now() - before <= 1


@pytest.mark.parametrize("depth", [300, 900, 940, 960, 980, 3000, 9000])
async def test_an_error_page_may_be_nested_to_any_depth(service, depth):
    """Deeply nested JSON in an error page does not hide its status."""
    body = b'{"error":' * depth + b'"x"' + b"}" * depth
    service.script.any(status=404, body=body, times=None)
    async with service.session() as session:
        for call in (session.create_job("x"), session.job("j").refresh(), session.ask("x").run()):
            with pytest.raises(APIStatusError):
                await call
