"""The watchdog of open streams: it begins with a read, ends with the last stream, and does not spin."""

from __future__ import annotations

from mintlify_async.http.idle_watchdog import SHORTEST, IdleWatchdog
from mintlify_async.testing import VirtualClock


class Stream:
    """A stream whose limit is always due in *seconds*."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.checks = 0

    def check_limits(self, now):
        self.checks += 1
        return now + self.seconds if self.checks < 1000 else None

    def close_with_session(self):
        raise AssertionError

    def close_from_anywhere(self, *, report):
        raise AssertionError


async def test_no_timer_outlives_the_last_stream():
    """It checks twice a second while a stream is open; then no timer is left."""
    clock = VirtualClock()
    watchdog, stream = IdleWatchdog(clock), Stream(60.0)
    watchdog.add(stream)
    watchdog.start(None)
    await clock.sleep(2.1)
    assert stream.checks == 4
    watchdog.forget(stream)
    await clock.sleep(2.1)
    assert (stream.checks, watchdog.running) == (4, False)


async def test_a_limit_that_is_due_at_once_does_not_keep_the_loop_busy():
    """A stream that is always due is checked a thousand times a second at most."""
    clock = VirtualClock()
    watchdog, stream = IdleWatchdog(clock), Stream(0.0)
    watchdog.add(stream)
    watchdog.start(SHORTEST)
    await clock.sleep(10 * SHORTEST)
    watchdog.stop()
    assert 5 <= stream.checks <= 12
