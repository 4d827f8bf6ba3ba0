"""A command in; the instructions it executes out, counted by callgrind: a figure without noise.

What one event or request costs is the difference between a long and a short
run, so that starting the interpreter and importing cancel out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .bodies import script
from .calls import CALLERS
from .rounds import Figure, Row
from .server import running
from .shapes import MARK
from .subjects import SUBJECTS, available

__all__ = [
    "count",
    "counted_calls",
    "counted_first",
    "counted_import",
    "counted_streams",
    "counts_between_marks",
    "installed",
]

ROOT = Path(__file__).resolve().parent.parent
OURS = "mintlify-async"


def installed() -> bool:
    """Tell whether valgrind is there."""
    return shutil.which("valgrind") is not None


def count(arguments: list[str]) -> int:
    """Return the instructions that ``python ARGUMENTS`` executes, in user space."""
    said = callgrind(arguments, "--callgrind-out-file=/dev/null")
    found = re.search(r"Collected : (\d+)", said)
    assert found, said
    return int(found[1])


def counts_between_marks(arguments: list[str], mark: str) -> list[int]:
    """Return the instructions of ``python ARGUMENTS`` up to each call of the C function *mark*.

    The first count is what came before the first call; what comes after the last is left out.
    """
    with tempfile.TemporaryDirectory() as directory:
        callgrind(arguments, f"--callgrind-out-file={directory}/counts", f"--dump-before={mark}")
        files = sorted(Path(directory).glob("counts.*"), key=lambda path: int(path.suffix[1:]))
        found = [re.search(r"^totals: (\d+)", path.read_text(), re.MULTILINE) for path in files]
    return [int(totals[1]) for totals in found if totals]


def callgrind(arguments: list[str], *options: str) -> str:
    """Run ``python ARGUMENTS`` under callgrind and return what that says."""
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", *options, sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def difference(kind: str, what: str, subject: str, base_url: str, few: int, many: int) -> float:
    """Return the instructions of one more run of *what*."""
    # First without valgrind: a bytecode cache that is written in one of the two runs would spoil both.
    subprocess.run([sys.executable, *work(kind, what, subject, 1, base_url)], cwd=ROOT, check=True)
    counts = [count(work(kind, what, subject, times, base_url)) for times in (few, many)]
    return (counts[1] - counts[0]) / (many - few)


def work(kind: str, what: str, subject: str, times: int, base_url: str) -> list[str]:
    """Return Python's arguments for *what*, done *times* times by *subject*."""
    return ["-m", "benchmarks.counted", kind, what, subject, str(times), base_url]


def row(name: str, title: str, costs: dict[str, float], reach: dict[str, float]) -> Row:
    """Return a row of figures without spread."""
    ratios = {other: costs[OURS] / cost for other, cost in costs.items() if other != OURS}
    return Row(name, title, "instructions", flat(costs), flat(ratios), reach, {})


def flat(values: dict[str, float]) -> dict[str, Figure]:
    """Return *values* as figures whose quartiles are the value itself."""
    return {name: Figure(value, value, value) for name, value in values.items()}


def counted_streams(shape: str, subjects: set[str]) -> Row:
    """Count the instructions an event costs, over a whole answer in *shape*."""
    events = script(shape).answer.events
    with running() as server:
        costs = {
            one.name: difference("stream", shape, one.name, server.base_url, 1, 3) / events
            for one in available(SUBJECTS)
            if one.name in subjects
        }
    reach = {"aiohttp": 1.4, "httpx-sse": 0.33, "openai": 0.18} if shape == "trickled" else {}
    return row(f"{shape}-instructions", f"instructions an event: {shape}", costs, reach)


def counted_first(subjects: set[str], times: int = 15) -> Row:
    """Count the instructions from the request to the first event: the least of *times* answers.

    The least, because the loop goes round once more for an event that comes a moment after its headers.
    """
    costs = {}
    with running() as server:
        for one in available(SUBJECTS):
            if one.name in subjects:
                asked = work("first", "brief", one.name, times, server.base_url)
                costs[one.name] = float(min(counts_between_marks(asked, MARK)[1::2]))
    return row("first-instructions", "instructions until the first event", costs, {"aiohttp": 1.15})


def counted_import(code: str) -> Row:
    """Count the instructions of *code* alone."""
    cost = count(["-I", "-c", code]) - count(["-I", "-c", "pass"])
    return row("import-instructions", f"instructions of {code}", {OURS: float(cost)}, {})


def counted_calls(call: str, subjects: set[str]) -> Row:
    """Count the instructions that the request *call* costs."""
    with running() as server:
        costs = {
            one.name: difference("call", call, one.name, server.base_url, 20, 120)
            for one in available(CALLERS)
            if one.name in subjects
        }
    reach = {"aiohttp": 1.15} if call == "get" else {}
    return row(f"{call}-instructions", f"instructions a request: {call} a job", costs, reach)
