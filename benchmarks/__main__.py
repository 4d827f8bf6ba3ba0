"""``python -m benchmarks``: run rows, print them as one report, write ``results.json``."""

import argparse
import sys
from pathlib import Path

from . import held, relay, report, rows
from .measuring import Effort

ALL = [rows.burst, rows.shapes, rows.live, rows.first, rows.request, rows.growth, rows.imports, held.streams]
ALL += [held.jobs, relay.relays, rows.conversation, rows.message]
ROWS = {{"imports": "import", "relays": "relay"}.get(row.__name__, row.__name__): row for row in ALL}


def main(given: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="row", help=f"{', '.join(ROWS)}; all by default")
    parser.add_argument("--small", action="store_true", help="prove that the rows work; figures say nothing")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each comparison (5)")
    parser.add_argument("--json", action="store_true", help="write results.json")
    options = parser.parse_args(given)
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    if options.small and options.json:
        parser.error("the figures of a small run are not worth writing: leave --small or --json out")
    effort = Effort(1 if options.small else options.rounds, options.small)
    for name in options.rows or ROWS:
        found = list(ROWS[name](effort))
        print("\n".join(map(report.table, found)), flush=True)
        if options.json:
            report.save(found, Path(__file__).with_name("results.json"))


if __name__ == "__main__":
    main(sys.argv[1:])
