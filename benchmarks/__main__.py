"""``python -m benchmarks``: run rows, print them, write JSON and the chart."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from . import environment

if TYPE_CHECKING:
    from .rounds import Row

HERE = Path(__file__).resolve().parent
CHARTED = ("burst", "trickled-instructions", "imports-instructions")
COUNTED = {"mintlify-async", "aiohttp", "httpx-sse", "openai"}
CALLED = {"mintlify-async", "aiohttp", "httpx", "openai"}


class Effort(NamedTuple):
    """How much is done: *rounds* of each comparison; *quick* is for the tests and shows nothing."""

    rounds: int
    quick: bool


def streams(shape: str) -> Callable[[Effort], Iterable[Row]]:
    """Return the row of one shape of answer."""

    def run(effort: Effort) -> list[Row]:
        from .streams import one_answer

        return [asyncio.run(one_answer(shape, rounds=effort.rounds, quick=effort.quick))]

    return run


def first(effort: Effort) -> list[Row]:
    """Return the rows of the first event."""
    from .first import first_event

    return first_event(rounds=effort.rounds, quick=effort.quick)


def calls(effort: Effort) -> Iterator[Row]:
    """Measure the rows of requests."""
    from .calls import requests

    for call, n in (("get", 1), ("get", 5 if effort.quick else 200), ("create", 1)):
        yield asyncio.run(requests(call, n, rounds=effort.rounds, quick=effort.quick))


def counted(effort: Effort) -> Iterator[Row]:
    """Measure the rows that callgrind counts."""
    from .held import counted_opening
    from .instructions import counted_calls, counted_first, counted_import, counted_streams, installed

    if not installed():
        print("valgrind is not installed: no instructions are counted", file=sys.stderr)
        return
    if effort.quick:
        yield counted_import("import mintlify_async")
        yield counted_first({"mintlify-async"}, times=1)
        yield counted_opening(2)
        return
    for shape in ("burst", "trickled"):
        yield counted_streams(shape, COUNTED)
    yield counted_first(COUNTED)
    for call in ("get", "create"):
        yield counted_calls(call, CALLED)
    for streams in (1_000, 5_000, 10_000):
        yield counted_opening(streams)
    yield counted_opening(2_000, collector=False)


def imported(effort: Effort) -> Iterator[Row]:
    """Measure the rows of imports and of the command's help."""
    from . import imports, instructions

    counts = instructions.installed() and not effort.quick
    yield from imports.imports(rounds=effort.rounds, counted=counts)
    yield imports.command_help(rounds=effort.rounds)
    yield asyncio.run(imports.local_service(rounds=effort.rounds))
    crowd = 20 if effort.quick else 1000
    yield asyncio.run(imports.local_service_streams(rounds=min(effort.rounds, 3), streams=crowd))


def held(effort: Effort) -> Iterator[Row]:
    """Measure the rows of open streams, plain."""
    from .held import open_streams

    if effort.quick:
        yield from open_streams(10, rounds=1, events=2)
        return
    for streams in (1_000, 5_000, 10_000):
        yield from open_streams(streams, rounds=effort.rounds)
    yield from open_streams(10_000, rounds=effort.rounds, collector=False)


def held_tls(effort: Effort) -> Iterator[Row]:
    """Measure the rows of open streams over TLS, on asyncio's loop and on uvloop's."""
    from .held import open_streams

    streams = 4 if effort.quick else 1_000
    for uvloop in (False,) if effort.quick else (False, True):
        yield from open_streams(streams, rounds=effort.rounds, events=2, tls=True, uvloop=uvloop)


def jobs(effort: Effort) -> list[Row]:
    """Return the row of jobs that are waited for."""
    from .waiting import waited_jobs

    if effort.quick:
        return [waited_jobs(20, rounds=1, seconds=0.1)]
    return [waited_jobs(10_000, rounds=effort.rounds)]


def grown(effort: Effort) -> list[Row]:
    """Return the row of growth."""
    from .growth import growth

    return [growth(rounds=min(effort.rounds, 5), quick=effort.quick)]


ROWS: dict[str, Callable[[Effort], Iterable[Row]]] = {
    **{name: streams(name) for name in ("burst", "one", "packets", "trickled", "deltas", "event")},
    "first": first,
    "requests": calls,
    "imports": imported,
    "instructions": counted,
    "growth": grown,
    "streams": held,
    "tls": held_tls,
    "jobs": jobs,
}


def arguments(given: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help=f"which to run: {', '.join(ROWS)}; all by default"
    )
    parser.add_argument("--env", action="store_true", help="build .bench-env with the peers, and run there")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds of each comparison (7)")
    parser.add_argument("--quick", action="store_true", help="a small run of each row, for the tests")
    parser.add_argument("--json", type=Path, help="write the figures here; rows it holds already stay")
    parser.add_argument("--chart", type=Path, help="draw the chart here, from the figures in --json")
    parser.add_argument(
        "--profile", nargs="?", const="burst", metavar="SHAPE", help="show where the time goes"
    )
    options = parser.parse_args(given)
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    return options


def main(given: list[str]) -> int:
    """Run what the command line asks for."""
    options = arguments(given)
    if options.env and not environment.inside():
        return environment.enter([word for word in given if word != "--env"])
    if options.profile:
        from .profiling import profile

        print(profile(options.profile))
        return 0
    run_rows(options)
    if options.chart:
        from .chart import draw
        from .report import load

        rows = load(options.json)
        draw([rows[name] for name in CHARTED if name in rows], options.chart)
    return 0


def run_rows(options: argparse.Namespace) -> None:
    """Run the rows asked for, print each as it is done, and write it."""
    from .report import save, table

    effort = Effort(1 if options.quick else options.rounds, options.quick)
    for name in options.rows or ([] if options.chart else ROWS):
        for row in ROWS[name](effort):
            print(table(row), flush=True)
            if options.json:
                save([row], options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
