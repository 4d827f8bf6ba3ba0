"""A number of streams in; out: the memory of each, how long opening took, how late events came.

Each subject is measured in a process of its own (this module, run), against
the server in another: memory that one leaves behind would flatter the next.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from .instructions import counts_between_marks
from .instructions import row as instructions_row
from .rounds import Row, figure, in_process, ratios, shuffled
from .server import ServerAddress, running
from .shapes import MARK
from .subjects import BODY, HEADERS, httpx_options, session_for, slow_motion, trusting

__all__ = ["FOLLOWERS", "authority", "counted_opening", "open_streams", "resident"]

OPENING_AT_ONCE = 200
EVENTS_PER_SECOND = 2000.0
STAMPED = b'"delta":"'
#: figure → title, unit, ratios to stay under
FIGURES: dict[str, tuple[str, str, dict[str, float]]] = {
    "memory": ("memory of each", "KiB", {}),
    "opened": ("opened in", "s", {"aiohttp": 1.2}),
    "opened-cpu": ("CPU of opening", "s", {}),
    "p50": ("delay of an event, median", "ms", {}),
    "p99": ("delay of an event, p99", "ms", {"aiohttp": 3.0}),
}
Follow = Callable[["Stream"], Awaitable[None]]
T = TypeVar("T")


class Book:
    """What is noted of the streams: how many are open, how late each event was, and its order."""

    def __init__(self, streams: int) -> None:
        """Expect *streams* of them."""
        self.streams, self.open = streams, 0
        self.all_open = asyncio.Event()
        self.delays: list[float] = []

    def opened(self) -> None:
        """Note that one more has its first event."""
        self.open += 1
        if self.open == self.streams:
            self.all_open.set()

    def heard(self, delta: str, expected: int) -> None:
        """Note an event, which says its number and when it was written; hold it against its order."""
        late = time.monotonic()
        number, stamp = delta.split()
        assert int(number) == expected, (number, expected)
        self.delays.append(late - float(stamp))


class Stream:
    """One held stream as the book follows it: its turn to open, and how many of its events came."""

    def __init__(self, book: Book, opening: asyncio.Semaphore) -> None:
        """Note in *book*; *opening* bounds how many open at once."""
        self.book, self.opening, self.count = book, opening, 0

    def opened(self) -> None:
        """Note that it is open, and let the next one open."""
        self.opening.release()
        self.book.opened()

    def heard(self, delta: str) -> None:
        """Note an event."""
        self.book.heard(delta, self.count)
        self.count += 1


class Follower(NamedTuple):
    """A client that is compared: opened, it follows one held stream after the other, or many at once."""

    name: str
    needs: tuple[str, ...]
    opened: Callable[[ServerAddress], AbstractAsyncContextManager[Follow]]


@asynccontextmanager
async def ours(server: ServerAddress, *, slowed: bool = False) -> AsyncIterator[Follow]:
    """This package's text stream."""
    async with session_for(server, "held", **(slow_motion() if slowed else {})) as session:

        async def follow(stream: Stream) -> None:
            async with session.ask("?") as reply:
                stream.opened()
                async for delta in reply.text_stream:
                    stream.heard(delta)

        yield follow


@asynccontextmanager
async def bare_aiohttp(server: ServerAddress) -> AsyncIterator[Follow]:
    """aiohttp's ``iter_any``, its reads taken to be whole events."""
    import aiohttp

    options: dict[str, Any] = {"ssl": trusting(server.authority)} if server.authority else {}
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def follow(stream: Stream) -> None:
            async with session.post(server.url("held"), json=BODY, headers=HEADERS, **options) as response:
                stream.opened()
                async for data in response.content.iter_any():
                    for delta in stamps(data):
                        stream.heard(delta)

        yield follow


@asynccontextmanager
async def httpx(server: ServerAddress) -> AsyncIterator[Follow]:
    """httpx's ``aiter_bytes``, its reads taken to be whole events."""
    import httpx as package

    async with package.AsyncClient(**httpx_options(server)) as client:

        async def follow(stream: Stream) -> None:
            async with client.stream("POST", server.url("held"), json=BODY, headers=HEADERS) as response:
                stream.opened()
                async for data in response.aiter_bytes():
                    for delta in stamps(data):
                        stream.heard(delta)

        yield follow


def stamps(data: bytes) -> list[str]:
    """Return the deltas in *data*, with no more parsing than that takes."""
    return [piece.partition(b'"')[0].decode() for piece in data.split(STAMPED)[1:]]


FOLLOWERS = (
    Follower("mintlify-async", ("mintlify_async",), ours),
    Follower("aiohttp", ("aiohttp",), bare_aiohttp),
    Follower("httpx", ("httpx",), httpx),
)


async def follow_whole(follow: Follow, book: Book, opening: asyncio.Semaphore, rounds: int) -> None:
    """Open one stream when its turn comes, note each of its events until it ends, and count them."""
    await opening.acquire()
    stream = Stream(book, opening)
    await follow(stream)
    assert stream.count == rounds, (stream.count, rounds)


def resident() -> int:
    """Return the process's resident memory, in bytes."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def measure(follower: Follower, server: ServerAddress, streams: int, rounds: int) -> dict[str, float]:
    """Open *streams*, hear *rounds* events on each; return the figures."""
    async with follower.opened(server) as follow:
        await warm_up(follow, server)
        book, opening = Book(streams), asyncio.Semaphore(OPENING_AT_ONCE)
        before = resident()
        os.getloadavg()  # a mark for callgrind, see counted_opening; 1 µs
        begun, cpu = time.monotonic(), time.process_time()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(streams):
                tasks.create_task(follow_whole(follow, book, opening, rounds))
            await book.all_open.wait()
            took, cpu = time.monotonic() - begun, time.process_time() - cpu
            os.getloadavg()
            memory = (resident() - before) / streams
            await control(server, f"emit/{rounds}/{EVENTS_PER_SECOND}")
    assert len(book.delays) == streams * rounds
    late = sorted(book.delays)
    return {
        "memory": memory / 1024,
        "opened": took,
        "opened-cpu": cpu,
        "p50": 1e3 * late[len(late) // 2],
        "p99": 1e3 * late[len(late) * 99 // 100],
    }


async def warm_up(follow: Follow, server: ServerAddress) -> None:
    """Hear one event of one stream, so that what is made once is not counted."""
    book = Book(1)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow_whole(follow, book, asyncio.Semaphore(1), 1))
        await book.all_open.wait()
        await control(server, "emit/1/100")


async def control(server: ServerAddress, words: str) -> None:
    """Tell the server what to do."""
    import aiohttp

    options: dict[str, Any] = {"ssl": trusting(server.authority)} if server.authority else {}
    async with aiohttp.request("POST", f"{server.base_url}/control/{words}", **options) as response:
        assert response.status == 200


@contextmanager
def authority() -> Iterator[tuple[str, str]]:
    """Make a certificate authority and a certificate for loopback; give the files' names."""
    import trustme

    with tempfile.TemporaryDirectory() as folder:
        made, trusted, own = trustme.CA(), Path(folder, "authority.pem"), Path(folder, "server.pem")
        made.cert_pem.write_to_path(str(trusted))
        made.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(own))
        yield str(trusted), str(own)


def child(name: str, server: ServerAddress, streams: int, rounds: int, flags: list[str]) -> dict[str, float]:
    """Measure the subject *name* in a process of its own."""
    trusted = ["--authority", server.authority] if server.authority else []
    found: dict[str, float] = in_process(
        "benchmarks.held", name, server.base_url, streams, rounds, *trusted, *flags
    )
    return found


def open_streams(
    streams: int,
    *,
    rounds: int,
    events: int = 3,
    tls: bool = False,
    uvloop: bool = False,
    collector: bool = True,
) -> list[Row]:
    """Measure *streams* held open at once: one row a figure.

    Half of the time in which thousands are opened is the garbage collector's, which looks at all of them
    again and again while they grow; without the *collector* the clients' own work is left.
    """
    chosen = [one for one in FOLLOWERS if all(importlib.util.find_spec(name) for name in one.needs)]
    subjects = {"mintlify-async": "mintlify-async", "control": "mintlify-async"}
    subjects |= {one.name: one.name for one in chosen if one.name == "aiohttp" or streams <= 1000}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in subjects}
    flags = (["--uvloop"] if uvloop else []) + ([] if collector else ["--uncollected"])
    with serving(tls=tls) as server:
        for number in range(rounds):
            for label in shuffled(list(subjects), number):
                found[label].append(child(subjects[label], server, streams, events, flags))
    kind = ("-tls" if tls else "") + "".join(flag[1:] for flag in flags)
    return [held_row(f"open-{streams}{kind}", key, found) for key in found["aiohttp"][0]]


def counted_opening(streams: int, *, collector: bool = True) -> Row:
    """Count the instructions that opening each of *streams* takes: what noise hides in the time."""
    flags = ["--slowed"] if collector else ["--slowed", "--uncollected"]
    with running() as server:
        command = [str(streams), "1", *flags]
        counts = {
            name: counts_between_marks(["-m", "benchmarks.held", name, server.base_url, *command], MARK)
            for name in ("mintlify-async", "aiohttp")
        }
    title = f"instructions of opening one of {streams:,}" + ("" if collector else ", without the collector")
    costs = {name: opening / streams for name, (_, opening) in counts.items()}
    name = f"open-{streams}" + ("" if collector else "-uncollected")
    return instructions_row(f"{name}-instructions", title, costs, {"aiohttp": 1.2})


def held_row(name: str, key: str, found: dict[str, list[dict[str, float]]]) -> Row:
    """Return the row of one figure of the open streams."""
    samples = {label: [each[key] for each in every] for label, every in found.items()}
    costs = {label: figure(values) for label, values in samples.items()}
    title, unit, reach = FIGURES[key]
    return Row(
        f"{name}-{key}", f"{name}: {title}", unit, costs, ratios(samples, "mintlify-async"), dict(reach), {}
    )


@contextmanager
def serving(*, tls: bool) -> Iterator[ServerAddress]:
    """Run the server, with TLS or without."""
    if not tls:
        with running() as server:
            yield server
        return
    with authority() as files, running(files) as server:
        yield server


def main() -> None:
    """Measure the subject named on the command line and print its figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=[one.name for one in FOLLOWERS])
    parser.add_argument("base_url")
    parser.add_argument("streams", type=int)
    parser.add_argument("rounds", type=int)
    parser.add_argument("--authority")
    parser.add_argument("--uvloop", action="store_true")
    parser.add_argument("--uncollected", action="store_true", help="without the garbage collector")
    parser.add_argument("--slowed", action="store_true", help="the process runs in callgrind")
    options = parser.parse_args()
    if options.uncollected:
        gc.disable()
    follower = next(one for one in FOLLOWERS if one.name == options.name)
    if options.slowed and follower.opened is ours:
        follower = follower._replace(opened=partial(ours, slowed=True))
    server = ServerAddress(options.base_url, options.authority)
    work = measure(follower, server, options.streams, options.rounds)
    print(json.dumps(run(work, uvloop=options.uvloop)))


def run(work: Coroutine[Any, Any, T], *, uvloop: bool) -> T:
    """Run *work* on asyncio's own loop or on uvloop's."""
    if not uvloop:
        return asyncio.run(work)
    import uvloop as package

    return package.run(work)


if __name__ == "__main__":
    main()
