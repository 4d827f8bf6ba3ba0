"""A number of rounds in; rows out: how long each client's users wait for the first event, by the wall clock.

In each round, those that are compared have a process of their own (this module, run), as in the program
of a user who has chosen one: where a process's memory happens to lie, and what else is in it, moves the
ratio by as much as the code does, while within one process its quartiles are a hundredth apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

from .rounds import Figure, Row, Work, figure, in_process, ratios, shuffled
from .server import ServerAddress, running
from .streams import readers
from .subjects import FLOOR, OURS, SUBJECTS, Reader, available

__all__ = ["first_event"]

TURNS = 100


def first_event(*, rounds: int, quick: bool = False) -> list[Row]:
    """Measure milliseconds from the request to the first event.

    In pairs: this package and each other client take turns, request by request, and nobody else runs
    meanwhile; and as a second row, for comparison, all of them in turns.
    """
    turns = 1 if quick else TURNS
    names = [subject.name for subject in available(SUBJECTS)]
    pairs: dict[str, dict[str, list[float]]] = {
        name: {OURS.name: [], name: []} for name in names if name != OURS.name
    }
    crowd: dict[str, list[float]] = {name: [] for name in names}
    with running() as server:
        for number in range(rounds):
            for name in shuffled(list(pairs), number):
                add(pairs[name], child(server, number, turns, list(pairs[name])))
            add(crowd, child(server, number, turns, names))
    shares = {name: ratios(pair, OURS.name)[name] for name, pair in pairs.items()}
    costs = {OURS.name: milliseconds(pairs[FLOOR.name][OURS.name])}
    costs |= {name: milliseconds(pair[name]) for name, pair in pairs.items()}
    crowd_costs = {name: milliseconds(each) for name, each in crowd.items()}
    title = "wait for the first event"
    return [
        Row("first", f"{title}, two clients in turns", "ms", costs, shares, {FLOOR.name: 1.15}, {}),
        Row(
            "first-crowd",
            f"{title}, {len(names)} clients in turns",
            "ms",
            crowd_costs,
            ratios(crowd, OURS.name),
            {},
            {},
        ),
    ]


def child(server: ServerAddress, number: int, turns: int, names: list[str]) -> dict[str, float]:
    """Return the median waits of *names*, in seconds, measured in a process that has only those."""
    waits: dict[str, float] = in_process("benchmarks.first", server.base_url, number, turns, *names)
    return waits


def add(samples: dict[str, list[float]], waits: dict[str, float]) -> None:
    """Add one round's *waits* to the *samples* of the same clients."""
    for name, wait in waits.items():
        samples[name].append(wait)


def milliseconds(seconds: list[float]) -> Figure:
    """Return the figure of *seconds* in milliseconds."""
    return figure([1e3 * each for each in seconds])


async def in_turns(server: ServerAddress, number: int, turns: int, names: list[str]) -> dict[str, float]:
    """Let *names* ask in turns, *turns* times, in ever new orders; return their median waits."""
    waits: dict[str, list[float]] = {name: [] for name in names}
    async with AsyncExitStack() as stack:
        chosen = [subject for subject in SUBJECTS if subject.name in waits]
        found = await readers(stack, server, "brief", chosen)
        prime = await stack.enter_async_context(primer(server, "brief"))
        for turn in range(turns):
            for name in shuffled(names, number * turns + turn):
                await prime()
                waits[name].append(await wait_for_first(found[name][0]))
    return {name: figure(each).median for name, each in waits.items()}


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


def main() -> None:
    """Measure the clients named on the command line and print their waits as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("base_url")
    parser.add_argument("number", type=int)
    parser.add_argument("turns", type=int)
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    work = in_turns(ServerAddress(options.base_url), options.number, options.turns, options.names)
    print(json.dumps(asyncio.run(work)))


if __name__ == "__main__":
    main()
