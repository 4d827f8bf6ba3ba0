"""How it is measured: interleaved rounds, medians and quartiles, instructions, processes of their own."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
OURS, CONTROL = "mintlify-async", "control"
MARK = "getloadavg"  # a function of libc that nothing else calls: callgrind writes its counts there
MARKED = """
import os, time
marks = [time.process_time_ns()]; os.getloadavg()
{}
marks.append(time.process_time_ns()); os.getloadavg()
print(f'{{{{"marks": {{marks}}}}}}')
"""  # imports nothing that the code in its place might
Work = Callable[[], Awaitable[object]]
Samples = Mapping[str, list[float]]
cpu_at_marks: list[int] = []


class Effort(NamedTuple):
    """How much is done: the *rounds* of each comparison; a *small* run is for the tests and shows nothing."""

    rounds: int = 5
    small: bool = False

    def counts(self) -> bool:
        """Tell whether instructions are counted: not in small runs, and not without valgrind."""
        return not self.small and shutil.which("valgrind") is not None


class Row(NamedTuple):
    """What each subject costs, in *unit*, and our cost ÷ each other's: [median, lower and upper quartile]."""

    name: str
    title: str
    unit: str
    costs: dict[str, list[float]]
    ratios: dict[str, list[float]]


def figure(samples: list[float]) -> list[float]:
    """Return the median and the quartiles of *samples*."""
    if len(samples) < 2:
        return samples * 3
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return [middle, low, high]


def row_of(name: str, title: str, unit: str, samples: Samples, base: str | None = OURS) -> Row:
    """Return the row of *samples*, of which each subject has one per round.

    The ratios are taken round by round, as the machine's speed drifts; without a *base* there are none.
    """
    others = {} if base is None else {name: each for name, each in samples.items() if name != base}
    ratios = {
        name: figure([ours / its for ours, its in zip(samples[base or ""], each, strict=True)])
        for name, each in others.items()
    }
    return Row(name, title, unit, {name: figure(each) for name, each in samples.items()}, ratios)


def shuffled(names: Iterable[str], number: int) -> list[str]:
    """Return the order of a round: in a fixed one, a subject would always follow the same other."""
    return random.Random(number).sample(list(names), len(list(names)))


async def interleaved(works: Mapping[str, Work], effort: Effort, repeat: int = 8) -> dict[str, list[float]]:
    """Run each work in each round, in an order of its own; return seconds of CPU per run, by round."""
    samples: dict[str, list[float]] = {name: [] for name in works}
    repeat = 1 if effort.small else repeat
    for work in works.values():
        await work()  # connections, caches, compiled patterns
    gc.collect()
    gc.freeze()  # no subject pays for the modules that another one imported
    for number in range(effort.rounds):
        for name in shuffled(works, number):
            gc.collect()
            await works[name]()  # not counted: the processor's caches hold what the subject before left
            start = time.process_time()
            for _ in range(repeat):
                await works[name]()
            samples[name].append((time.process_time() - start) / repeat)
    gc.unfreeze()
    return samples


# A process of its own --------------------------------------------------------------------------------


def child(work: Callable[..., Any] | str, given: Mapping[str, Any]) -> list[str]:
    """Return the command that runs the coroutine function *work* with *given*, or a line of code."""
    if isinstance(work, str):
        return [sys.executable, "-I", "-c", MARKED.format(work)]
    name = ["benchmarks.measuring", work.__module__, work.__name__]
    return [sys.executable, "-m", *name, json.dumps(given)]


def in_process(work: Callable[..., Any] | str, key: str = "result", **given: Any) -> Any:
    """Run *work* in a process of its own; return its result, which goes through JSON."""
    done = subprocess.run(child(work, given), cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)[key]


def mark() -> None:
    """Mark a place in a process that :func:`between_marks` runs."""
    cpu_at_marks.append(time.process_time_ns())
    os.getloadavg()


def between_marks(work: Callable[..., Any] | str, effort: Effort, **given: Any) -> list[float]:
    """Run *work* in a process of its own; return what it costs from each mark to the next.

    That is instructions in user space, or nanoseconds of CPU where nothing counts instructions.
    """
    if not effort.counts():
        marks = in_process(work, "marks", **given)
        return [float(later - earlier) for earlier, later in pairwise(marks)]
    with tempfile.TemporaryDirectory() as folder:
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", f"--dump-before={MARK}"]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [*tool, *child(work, given)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        files = sorted(Path(folder).glob("out.*"), key=lambda path: int(path.suffix[1:]))
        totals = [re.search(r"^totals: (\d+)", path.read_text(), re.MULTILINE) for path in files]
    return [float(found[1]) for found in totals[1:] if found]  # without what came before the first mark


if __name__ == "__main__":
    module, function, options = sys.argv[1:]
    result = asyncio.run(getattr(importlib.import_module(module), function)(**json.loads(options)))
    measuring = importlib.import_module("benchmarks.measuring")  # this file is __main__ here
    print(json.dumps({"result": result, "marks": measuring.cpu_at_marks}))
