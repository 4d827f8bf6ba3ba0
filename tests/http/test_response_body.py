"""Bodies of error answers: read for a bounded time, whatever they hold."""

from __future__ import annotations

import pytest

from mintlify_async import APIStatusError, Timeouts
from mintlify_async.testing import LocalService, VirtualClock
from mintlify_async.testing.faults import Cut


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
