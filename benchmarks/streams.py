"""The shape of an answer in; a row out: the CPU time an event costs each client, or the wait for the first.

CPU time is the process's own (user and system); the server has another
process, so what is counted is the client and its share of the kernel.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

from .bodies import SHAPES, Answer, script
from .rounds import Figure, Row, Work, figure, interleaved, ratios, shuffled
from .server import ServerAddress, running
from .subjects import FLOOR, SUBJECTS, Heard, Reader, Subject, available

__all__ = ["ROWS", "first_event", "one_answer"]

OURS = "mintlify-async"

#: row → title, runs of an answer in a round, ratios to stay under
ROWS = {
    "burst": (
        "one HTTP chunk an event, written at once",
        8,
        {"aiohttp": 2.6, "httpx-sse": 0.28, "openai": 0.11},
    ),
    "one": ("the whole answer as one HTTP chunk", 8, {}),
    "packets": ("cut in packets, one a read", 2, {}),
    "trickled": ("one event a packet, one a read", 1, {}),
    "deltas": ("100,000 deltas", 1, {}),
    "event": ("one event of 1 MB", 4, {}),
}


def check(heard: Heard, expected: Answer) -> None:
    """Hold what a subject read against what was sent: one that skips work is fast."""
    if heard.body_bytes:
        assert heard.body_bytes == len(expected.body), heard
        return
    assert heard.events == expected.events, (heard.events, expected.events)
    assert heard.text is None or heard.text == expected.text, heard.text


async def readers(
    stack: AsyncExitStack, server: ServerAddress, shape: str, subjects: list[Subject]
) -> dict[str, tuple[Reader, Answer]]:
    """Open each subject on *shape* and let it read one answer, which is checked whole."""
    found = {}
    for subject in subjects:
        if shape in subject.unable:
            continue
        name = f"named-{shape}" if subject.named else shape
        read, expected = await stack.enter_async_context(subject.opened(server, name)), script(name).answer
        check(await read(keep=True), expected)
        found[subject.name] = read, expected
    return found


def checked(read: Reader, expected: Answer) -> Work:
    """Return *read* as work that asserts how many events it saw, each time."""

    async def work() -> None:
        check(await read(), expected)

    return work


async def one_answer(shape: str, *, rounds: int, quick: bool = False) -> Row:
    """Measure microseconds of CPU an event, over a whole answer in *shape*."""
    title, repeat, reach = ROWS[shape]
    served = f"{shape}-brief" if quick and f"{shape}-brief" in SHAPES else shape
    async with AsyncExitStack() as stack:
        server = stack.enter_context(running())
        found = await readers(stack, server, served, available(SUBJECTS))
        works = {name: checked(read, expected) for name, (read, expected) in found.items()}
        samples = await interleaved(works, rounds=rounds, repeat=1 if quick else repeat)
    events = script(served).answer.events
    costs = {name: figure([1e6 * cost / events for cost in each]) for name, each in samples.items()}
    return Row(shape, f"CPU an event: {title}", "µs", costs, ratios(samples, OURS), reach, {})


async def first_event(*, rounds: int, quick: bool = False) -> list[Row]:
    """Measure milliseconds from the request to the first event, by the wall clock.

    In pairs: this package and each other client take turns, request by request, and nobody else runs
    meanwhile; and as a second row, for comparison, all of them in turns.
    """
    async with AsyncExitStack() as stack:
        server = stack.enter_context(running())
        found = await readers(stack, server, "brief", available(SUBJECTS))
        prime = await stack.enter_async_context(primer(server, "brief"))
        turns = 1 if quick else 40
        others = [name for name in found if name != OURS]
        pairs: dict[str, dict[str, list[float]]] = {name: {OURS: [], name: []} for name in others}
        crowd: dict[str, list[float]] = {name: [] for name in found}
        for number in range(rounds):
            for name in shuffled(others, number):
                await in_turns(pairs[name], found, prime, turns, number)
            await in_turns(crowd, found, prime, turns, number)
    shares = {name: ratios(pair, OURS)[name] for name, pair in pairs.items()}
    costs = {OURS: milliseconds(pairs[FLOOR.name][OURS])}
    costs |= {name: milliseconds(pair[name]) for name, pair in pairs.items()}
    title = "wait for the first event"
    return [
        Row("first", f"{title}, two clients in turns", "ms", costs, shares, {FLOOR.name: 1.15}, {}),
        Row(
            "first-crowd",
            f"{title}, {len(found)} clients in turns",
            "ms",
            {name: milliseconds(each) for name, each in crowd.items()},
            ratios(crowd, OURS),
            {},
            {},
        ),
    ]


def milliseconds(seconds: list[float]) -> Figure:
    """Return the figure of *seconds* in milliseconds."""
    return figure([1e3 * each for each in seconds])


async def in_turns(
    samples: dict[str, list[float]],
    found: dict[str, tuple[Reader, Answer]],
    prime: Work,
    turns: int,
    number: int,
) -> None:
    """Let those of *samples* ask in turns, *turns* times, in ever new orders; add their median waits."""
    waits: dict[str, list[float]] = {name: [] for name in samples}
    for turn in range(turns):
        for name in shuffled(list(samples), number * turns + turn):
            await prime()
            waits[name].append(await wait_for_first(found[name][0]))
    for name, each in waits.items():
        samples[name].append(figure(each).median)


async def wait_for_first(read: Reader) -> float:
    """Return the wait of one request, in seconds."""
    waits: list[float] = []
    start = time.perf_counter()
    await read(first=lambda: waits.append(time.perf_counter() - start))
    assert len(waits) == 1
    return waits[0]


@asynccontextmanager
async def primer(server: ServerAddress, shape: str) -> AsyncIterator[Work]:
    """Ask for the same answer with no client at all: what comes before each request that is measured.

    A wait depends on how long ago the server was asked last, and on whose code is in the processor's
    caches: with another request of the same subject before it, both are that subject's own doing, and
    the floor's wait alone is 170 or 300 µs.
    """
    address = urlsplit(server.url(shape))
    request = f"POST {address.path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n".encode()
    reader, writer = await asyncio.open_connection(address.hostname, address.port)

    async def prime() -> None:
        writer.write(request)
        await reader.readuntil(b"\r\n0\r\n\r\n")

    try:
        yield prime
    finally:
        writer.close()
        await writer.wait_closed()
