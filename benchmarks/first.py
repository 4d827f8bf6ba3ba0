"""A number of rounds in; rows out: how long each client's users wait for the first event, by the wall clock.

Each round is a process of its own (this module, run). Where a process's memory happens to lie, and what has
grown in it before, moves the ratio by as much as the code does: 1.12 to 1.16 from one process to the next,
while within each the quartiles are a hundredth apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from .bodies import Answer
from .rounds import Figure, Row, Work, figure, ratios, shuffled
from .server import ServerAddress, running
from .streams import readers
from .subjects import FLOOR, OURS, SUBJECTS, Reader, available

__all__ = ["first_event"]

ROOT = Path(__file__).resolve().parent.parent
TURNS = 40


class Round(NamedTuple):
    """The seconds that one round's clients waited: in pairs with this package, and all of them in turns."""

    pairs: dict[str, dict[str, float]]
    crowd: dict[str, float]


def first_event(*, rounds: int, quick: bool = False) -> list[Row]:
    """Measure milliseconds from the request to the first event.

    In pairs: this package and each other client take turns, request by request, and nobody else runs
    meanwhile; and as a second row, for comparison, all of them in turns.
    """
    with running() as server:
        found = [child(server, number, 1 if quick else TURNS) for number in range(rounds)]
    pairs = {name: by_client([each.pairs[name] for each in found]) for name in found[0].pairs}
    crowd = by_client([each.crowd for each in found])
    shares = {name: ratios(pair, OURS.name)[name] for name, pair in pairs.items()}
    costs = {OURS.name: milliseconds(pairs[FLOOR.name][OURS.name])}
    costs |= {name: milliseconds(pair[name]) for name, pair in pairs.items()}
    crowd_costs = {name: milliseconds(each) for name, each in crowd.items()}
    title = "wait for the first event"
    return [
        Row("first", f"{title}, two clients in turns", "ms", costs, shares, {FLOOR.name: 1.15}, {}),
        Row(
            "first-crowd",
            f"{title}, {len(crowd)} clients in turns",
            "ms",
            crowd_costs,
            ratios(crowd, OURS.name),
            {},
            {},
        ),
    ]


def child(server: ServerAddress, number: int, turns: int) -> Round:
    """Measure the round *number* in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.first", server.base_url, str(number), str(turns)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return Round(*json.loads(done.stdout))


def by_client(found: list[dict[str, float]]) -> dict[str, list[float]]:
    """Return each client's waits, round by round."""
    return {name: [each[name] for each in found] for name in found[0]}


def milliseconds(seconds: list[float]) -> Figure:
    """Return the figure of *seconds* in milliseconds."""
    return figure([1e3 * each for each in seconds])


async def one_round(server: ServerAddress, number: int, turns: int) -> Round:
    """Let all clients ask in turns, then each beside this package; return their median waits."""
    async with AsyncExitStack() as stack:
        found = await readers(stack, server, "brief", available(SUBJECTS))
        prime = await stack.enter_async_context(primer(server, "brief"))
        crowd = await in_turns(list(found), found, prime, turns, number)
        others = [name for name in found if name != OURS.name]
        pairs = {
            name: await in_turns([OURS.name, name], found, prime, turns, number)
            for name in shuffled(others, number)
        }
    return Round(pairs, crowd)


async def in_turns(
    names: list[str], found: dict[str, tuple[Reader, Answer]], prime: Work, turns: int, number: int
) -> dict[str, float]:
    """Let *names* ask in turns, *turns* times, in ever new orders; return their median waits."""
    waits: dict[str, list[float]] = {name: [] for name in names}
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
    """Measure one round against the server named on the command line and print its waits as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("base_url")
    parser.add_argument("number", type=int)
    parser.add_argument("turns", type=int)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(one_round(ServerAddress(options.base_url), options.number, options.turns))))


if __name__ == "__main__":
    main()
