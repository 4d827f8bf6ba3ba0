"""Every fault fifty times against one session: nothing grows, and a healthy call works afterwards."""

from __future__ import annotations

import asyncio
import gc
import re
from collections import Counter
from pathlib import Path

import anyio
import pytest

from mintlify_async import MintlifyError
from mintlify_async.testing import LocalService
from tests.support import fault_catalogue as catalogue

pytestmark = pytest.mark.sweep

TIMES = 50
OURS = re.compile(r"mintlify_async\.(?!testing)|aiohttp\.(client|connector|streams)|_?asyncio\.")
FAULTS = {
    **{f"no answer: {name}": (catalogue.LOST[name], None) for name in catalogue.LOST},
    **{
        f"body: {name}": (catalogue.BROKEN_BODIES[name], None)
        for name in catalogue.BROKEN_BODIES
        if name != "a bomb"
    },
    **{f"stream: {name}": (fault, catalogue.BODY) for name, fault in catalogue.STREAM_CUTS.items()},
}


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def living():
    """Count the objects of the client's side: ours, aiohttp's client's, asyncio's tasks and timers."""
    gc.collect()
    things = [thing for thing in gc.get_objects() if not was_called_off(thing)]
    kinds = Counter(f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in things)
    return Counter({kind: n for kind, n in kinds.items() if OURS.match(kind)})


def was_called_off(thing):
    """Return whether *thing* is a cancelled timer: the loop drops them when it holds more than 100."""
    return type(thing) is asyncio.TimerHandle and thing.cancelled()


async def settle(service):
    """Let both sides finish: connections that are closed, timers that were called off."""
    with anyio.fail_after(20):
        while service.connections or service.answering:
            await asyncio.sleep(0.001)


async def fail_once(session, service, fault, body):
    """Play *fault* once: over a stream when there is a *body*, else over a look at a job."""
    if body is not None:
        service.script.ask(body=body, fault=fault)
        call = session.ask("x").run()
    else:
        service.script.create_job(fault=fault)
        call = session.create_job("x")
    with pytest.raises(MintlifyError):
        await call


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors in /proc")
@pytest.mark.parametrize("name", FAULTS)
async def test_fifty_times_in_a_row(name, virtual):
    """Descriptors, tasks and objects are what they were; then the session still works."""
    fault, body = FAULTS[name]
    async with LocalService() as service, service.session() as session:
        for _ in range(5):  # caches fill
            await fail_once(session, service, fault, body)
        await settle(service)
        before, files = living(), descriptors()
        for _ in range(TIMES):
            await fail_once(session, service, fault, body)
        await settle(service)
        assert descriptors() <= files
        assert {kind: n for kind, n in (living() - before).items() if n > 2} == {}
        assert (await session.ask("How do I log in?")).text
        assert (await session.create_job("x")).id
