"""Bodies of answers: the limits on reading them, and what it costs to watch these."""

from __future__ import annotations

import asyncio

import pytest

from mintlify_async import NotFoundError, PermissionDeniedError, StreamInterruptedError, Timeouts
from mintlify_async.http.live_response import LiveResponse
from mintlify_async.testing import Cut, Raw
from mintlify_async.testing.raw_connection import chunk
from tests.support.fault_catalogue import ALL, BODY, WHOLE_EVENTS, call, script

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
START = chunk(BODY[:WHOLE_EVENTS])
DELTA = chunk(b'data: {"type":"text-delta","id":"0","delta":"x"}\n\n')
FINISH = chunk(BODY[WHOLE_EVENTS:]) + b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "most"),
    [([3600.0, FINISH], 4), ([0.05, DELTA] * 200 + [FINISH], 3), ([2.0, DELTA] * 200 + [FINISH], 10)],
)
async def test_events_do_not_each_set_an_alarm(virtual, service, monkeypatch, pieces, most):
    """However many events there are, the alarm is set again only when it is due, and none is left."""
    loop = asyncio.get_running_loop()
    alarms, call_at = [], loop.call_at

    def noted(when, callback, *arguments, **options):
        handle = call_at(when, callback, *arguments, **options)
        if isinstance(getattr(callback, "__self__", None), LiveResponse):
            alarms.append(handle)
        return handle

    monkeypatch.setattr(loop, "call_at", noted)
    service.script.ask(fault=Raw([HEAD, START, *pieces], how="hang"))
    async with service.session(timeouts=Timeouts(idle=4000)) as session:
        await session.ask("x")
    assert len(alarms) <= most
    assert not [alarm for alarm in alarms if not alarm.cancelled() and alarm.when() > loop.time()]


@pytest.mark.parametrize("wait", [0.0, 1.0, 30.0])
async def test_a_short_limit_on_silence_counts_from_the_data_on(virtual, service, wait):
    """It ends the answer when it is due, however long the limit on the first event is."""
    service.script.ask(fault=Raw([HEAD, wait, START], how="hang"))
    async with service.session(timeouts=Timeouts(idle=2.0)) as session:
        started = virtual.now()
        with pytest.raises(StreamInterruptedError, match="idle"):
            await session.ask("x")
        assert virtual.now() - started == pytest.approx(wait + 2.0, abs=0.1)


@pytest.mark.parametrize("idle", [50.0, None])
@pytest.mark.parametrize("silence", [0.0, 30.0])
async def test_a_malformed_chunk_is_noticed_at_once(virtual, service, silence, idle):
    """The parser closes the connection and does not tell the body; what had arrived is kept."""
    service.script.ask(fault=Raw([HEAD, START, silence, b"zz\r\n"], how="hang"))
    async with service.session(timeouts=Timeouts(idle=idle)) as session:
        started = virtual.now()
        with pytest.raises(StreamInterruptedError, match="connection") as caught:
            await session.ask("x")
        assert virtual.now() - started <= silence + 0.1
        assert caught.value.events_seen == 3


@pytest.mark.parametrize("operation", ALL)
@pytest.mark.parametrize(("limit", "longest"), [(1, 1.0), (60, 2.1)])
async def test_an_error_page_that_stalls_is_not_waited_for(virtual, service, operation, limit, longest):
    """It is read for two seconds at most, and never longer than the call's limit; its status counts."""
    script(service, operation, status=403, body=b'{"error": "no"} and more', fault=Cut(5, "hang"))
    async with service.session(timeouts=Timeouts(request=limit, first_event=limit)) as session:
        started = virtual.now()
        with pytest.raises(PermissionDeniedError):
            await call(session, operation)
        assert virtual.now() - started <= longest


@pytest.mark.parametrize("operation", ALL)
@pytest.mark.parametrize("depth", [300, 960, 9000])
async def test_an_error_page_may_be_nested_to_any_depth(service, session, operation, depth):
    """Deeply nested JSON in an error page does not hide its status."""
    body = b'{"error":' * depth + b'"x"' + b"}" * depth
    script(service, operation, status=404, body=body)
    with pytest.raises(NotFoundError):
        await call(session, operation)
