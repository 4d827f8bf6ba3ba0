"""``python -m benchmarks``: run rows, print them as one report, write ``results.json`` and the chart."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from . import chat, held, relay, report, rows
from .measuring import Effort, Row

HERE = Path(__file__).resolve().parent
ROWS: dict[str, Callable[[Effort], Iterator[Row]]] = {
    **{name: getattr(rows, name) for name in ("burst", "shapes", "live", "first", "request", "growth")},
    "import": rows.imports,
    "streams": held.streams,
    "jobs": held.jobs,
    "relay": relay.relays,
    "conversation": chat.conversation,
    "message": chat.message,
}


def main(given: list[str], folder: Path = HERE) -> None:
    """Run what the command line asks for; files go to *folder*."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "rows", nargs="*", metavar="row", help=f"which to run: {', '.join(ROWS)}; all by default"
    )
    parser.add_argument(
        "--small", action="store_true", help="prove that the rows work; the figures say nothing"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each comparison (5)")
    parser.add_argument(
        "--json", action="store_true", help="write results.json and chart.svg; other rows stay"
    )
    options = parser.parse_args(given)
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    if options.small and options.json:
        parser.error("the figures of a small run are not worth writing: leave --small or --json out")
    effort = Effort(1 if options.small else options.rounds, options.small)
    if not options.small and not effort.counts():
        print("valgrind is not installed: CPU time stands for instructions, with its noise", file=sys.stderr)
    for name in options.rows or ROWS:
        found = []
        for row in ROWS[name](effort):
            print(report.table(row), flush=True)
            found.append(row)
        if options.json:
            report.draw(report.save(found, folder / "results.json"), folder / "chart.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
