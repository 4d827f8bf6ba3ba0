"""Virtual time: it moves when everything waits, and stands still while anything can run."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from anyio import CapacityLimiter, to_thread

from mintlify_async import StateError
from mintlify_async.runtime import clock
from mintlify_async.testing import LocalService
from mintlify_async.testing.virtual_clock import EPOCH, virtual_time
from tests.support.fault_catalogue import Endless

pytestmark = pytest.mark.skipif(
    os.environ.get("MINTLIFY_ASYNC_LOOP") == "uvloop", reason="uvloop's time cannot be made virtual"
)


async def test_a_day_passes_at_once() -> None:
    """``asyncio.sleep``, ``asyncio.timeout``, ``call_later`` and the loop's time are virtual.

    The date starts on the first day of 2026, and is the computer's again after the block.
    """
    began, calls = time.monotonic(), []
    with virtual_time() as virtual:
        assert clock.now() == EPOCH
        loop = asyncio.get_running_loop()
        loop.call_later(3600, lambda: calls.append(virtual.now()))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7200):
                await asyncio.sleep(86_400)
        before = loop.time()
        await asyncio.sleep(86_400)
        assert (calls, loop.time() - before, virtual.now()) == ([3600.0], 86_400.0, 93_600.0)
        assert clock.now() == EPOCH + 93_600
    assert abs(clock.now() - time.time()) < 5
    assert time.monotonic() - began < 5


async def test_the_loops_time_never_goes_back() -> None:
    """Neither when a block begins nor after it, so that what measures time outside the block is right."""
    loop = asyncio.get_running_loop()
    times = [loop.time()]
    for _ in range(3):
        with virtual_time() as virtual:
            times.append(loop.time())
            assert virtual.now() == 0.0
            await asyncio.sleep(1_000_000)
            times.append(loop.time())
        times.append(loop.time())
        await asyncio.sleep(0.01)  # real again
        times.append(loop.time())
    assert times == sorted(times)
    assert times[-1] - times[-2] < 60


async def test_twice_on_one_loop_is_refused() -> None:
    """A second block inside the first would have a time of its own."""
    with virtual_time(), pytest.raises(StateError, match="already"), virtual_time():
        pass


def in_asyncios_thread() -> object:
    return asyncio.to_thread(time.sleep, 0.02)


def in_anyios_thread() -> object:
    return to_thread.run_sync(time.sleep, 0.02)


def looking_up_a_name() -> object:
    return asyncio.get_running_loop().getaddrinfo("localhost", 80)


@pytest.mark.parametrize("work", [in_asyncios_thread, in_anyios_thread, looking_up_a_name])
async def test_it_stands_still_while_a_thread_works(work) -> None:
    """A thread is not late because the loop has nothing to do."""
    with virtual_time() as virtual:
        async with asyncio.timeout(0.001):
            await work()
        assert virtual.now() == 0.0


async def test_the_loop_of_another_thread_keeps_its_own_time() -> None:
    """One thread at a time can be virtual, beside a real one."""
    real: list[float] = []

    async def other() -> None:
        start = time.monotonic()
        await asyncio.sleep(0.05)
        real.append(time.monotonic() - start)

    with virtual_time():
        thread = threading.Thread(target=asyncio.run, args=[other()])
        thread.start()
        await asyncio.sleep(10_000)
        await asyncio.to_thread(thread.join)
    assert real[0] >= 0.04


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="needs Linux")
async def test_it_stands_still_while_the_kernel_holds_bytes_back() -> None:
    """Bytes that were sent arrive before the next moment comes, although nothing is readable at first."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    slow = (2_000).to_bytes(4, "little")  # bytes a second, as BBR may send them
    sender.setsockopt(socket.SOL_SOCKET, 47, slow)  # SO_MAX_PACING_RATE
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with virtual_time() as virtual:
        _, writer = await asyncio.open_connection(sock=sender)
        reader, other = await asyncio.open_connection(sock=receiver)
        async with asyncio.timeout(0.001):
            for _ in range(20):
                writer.write(b"ten bytes!")
                await asyncio.sleep(0)
            assert len(await reader.readexactly(200)) == 200
        assert virtual.now() == 0.0
        for one in (writer, other):
            one.close()
            await one.wait_closed()


async def test_it_goes_on_when_nobody_reads() -> None:
    """A full connection whose other end does not read stops nothing."""
    with virtual_time() as virtual:
        async with LocalService() as service, service.session() as session:
            service.script.ask(fault=Endless(b":" + b"x" * 100_000 + b"\n\n"))
            async with session.ask("How do I log in?") as reply:
                await asyncio.sleep(3600)
                with pytest.raises(Exception, match="no event"):
                    await reply
        assert virtual.now() >= 3600


@pytest.mark.parametrize("way", ["own limiter", "wrap_future", "to_thread", "executor"])
@pytest.mark.usefixtures("virtual")
async def test_the_time_stands_still_while_a_thread_works(way):
    """However its result comes back to the loop. A limit of 10 s is not reached in 50 real milliseconds."""

    def work() -> str:
        time.sleep(0.05)
        return "done"

    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            async with asyncio.timeout(10):
                if way == "own limiter":
                    assert await to_thread.run_sync(work, limiter=CapacityLimiter(1)) == "done"
                elif way == "wrap_future":
                    assert await asyncio.wrap_future(pool.submit(work)) == "done"
                elif way == "to_thread":
                    assert await asyncio.to_thread(work) == "done"
                else:
                    assert await asyncio.get_running_loop().run_in_executor(pool, work) == "done"
    started = asyncio.get_running_loop().time()
    await asyncio.sleep(60)  # idle threads do not stop it
    assert asyncio.get_running_loop().time() == started + 60


@pytest.mark.usefixtures("virtual")
async def test_a_future_that_no_thread_runs_stops_the_time_for_a_moment_only():
    """A program may complete it on the loop itself."""
    future = Future[int]()
    asyncio.get_running_loop().call_later(30, future.set_result, 1)
    assert await asyncio.wrap_future(future) == 1
