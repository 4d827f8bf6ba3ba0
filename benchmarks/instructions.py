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
from pathlib import Path

from .bodies import script
from .calls import CALLERS
from .rounds import Figure, Row
from .server import running
from .subjects import SUBJECTS, available

__all__ = ["count", "counted_calls", "counted_import", "counted_streams", "installed"]

ROOT = Path(__file__).resolve().parent.parent
OURS = "mintlify-async"


def installed() -> bool:
    """Tell whether valgrind is there."""
    return shutil.which("valgrind") is not None


def count(arguments: list[str]) -> int:
    """Return the instructions that ``python ARGUMENTS`` executes, in user space."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, *arguments]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found, done.stderr
    return int(found[1])


def difference(kind: str, what: str, subject: str, base_url: str, few: int, many: int) -> float:
    """Return the instructions of one more run of *what*."""

    def command(times: int) -> list[str]:
        return ["-m", "benchmarks.counted", kind, what, subject, str(times), base_url]

    # First without valgrind: a bytecode cache that is written in one of the two runs would spoil both.
    subprocess.run([sys.executable, *command(1)], cwd=ROOT, check=True)
    return (count(command(many)) - count(command(few))) / (many - few)


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
