"""Measures with interleaved rounds, medians and quartiles, instructions, and separate processes."""

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
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from operator import truediv
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
OURS, CONTROL = "mintlify-async", "control"
MARK = "getloadavg"  # nothing else calls this function of libc, so callgrind writes its counts there
MARKED = """
import os, time; marks = [time.process_time_ns()]; os.getloadavg()
{}
marks.append(time.process_time_ns()); os.getloadavg()
print(f'{{{{"marks": {{marks}}}}}}')
"""  # imports nothing that the code in its place might
# Without the first two, each read of a process, of 256 KiB, may cost two page faults by chance.
STEADY = {"MALLOC_MMAP_THRESHOLD_": "1048576", "MALLOC_TRIM_THRESHOLD_": "2097152", "PYTHONHASHSEED": "0"}
Samples = dict[str, list[float]]
cpu_at_marks: list[int] = []


class Effort(NamedTuple):
    """The amount of work in *rounds* of each comparison. A *small* run is for tests and shows nothing."""

    rounds: int = 5
    small: bool = False

    def counted(self) -> str:
        """Return the counted units. Small runs, and runs without valgrind, count no instructions."""
        return "ns of CPU" if self.small or shutil.which("valgrind") is None else "instructions"


class Row(NamedTuple):
    """The cost of each subject, in *unit*, and our cost ÷ each other's (median, lower and upper quartile)."""

    name: str
    title: str
    unit: str
    costs: Samples
    ratios: Samples


def figure(samples: list[float]) -> list[float]:
    low, middle, high = statistics.quantiles(samples * 2 if len(samples) < 2 else samples, method="inclusive")
    return [float(f"{each:.5g}") for each in (middle, low, high)]


def row_of(name: str, title: str, unit: str, samples: Samples, *, ratios: bool = True) -> Row:
    others = {subject: each for subject, each in samples.items() if ratios and subject != OURS}
    # Round by round, as the machine's speed drifts.
    shares = {subject: figure([*map(truediv, samples[OURS], each)]) for subject, each in others.items()}
    return Row(name, title, unit, {subject: figure(each) for subject, each in samples.items()}, shares)


def rounds(names: Iterable[str], effort: Effort) -> Iterator[str]:
    """Yield all names in each round. In a fixed order, a subject would always follow the same other."""
    for number in range(effort.rounds):
        yield from random.Random(number).sample(list(names), len(list(names)))


async def interleaved(works: Mapping[str, Callable[[], Awaitable[object]]], effort: Effort) -> Samples:
    """Run each work in each round, in a new order. Return seconds of CPU per run, by round."""
    samples: Samples = {name: [] for name in works}
    repeat = 1 if effort.small else 8
    for work in works.values():
        await work()  # connections, caches, compiled patterns
    gc.collect()
    gc.freeze()  # no subject pays for the modules that another one imported
    for name in rounds(works, effort):
        gc.collect()
        await works[name]()  # not counted, as the caches have data of the subject before
        start = time.process_time()
        for _ in range(repeat):
            await works[name]()
        samples[name].append((time.process_time() - start) / repeat)
    gc.unfreeze()
    return samples


def child(work: Callable[..., Any] | str, given: dict[str, Any]) -> list[str]:
    if isinstance(work, str):
        return [sys.executable, "-I", "-c", MARKED.format(work)]
    return [sys.executable, "-m", "benchmarks.measuring", work.__module__, work.__name__, json.dumps(given)]


def in_process(work: Callable[..., Any] | str, key: str = "result", **given: Any) -> Any:
    """Run *work* in its own process. Return its result, which goes through JSON."""
    return json.loads(subprocess.check_output(child(work, given), cwd=ROOT, env=os.environ | STEADY))[key]


def in_processes(work: Any, effort: Effort, by: str, names: Iterable[str], **given: Any) -> dict[str, Any]:
    """Run *work* in each round with each name as its argument *by*, each in its own process."""
    found: dict[str, list[Any]] = {name: [] for name in names}
    for name in rounds(found, effort):
        found[name].append(in_process(work, **{by: name}, **given))
    return found


def mark() -> None:
    cpu_at_marks.append(time.process_time_ns())
    os.getloadavg()


def between_marks(work: Callable[..., Any] | str, effort: Effort, **given: Any) -> list[float]:
    """Run *work* in its own process. Return its cost from each mark to the next, in user space."""
    if effort.counted() != "instructions":
        return [float(later - earlier) for earlier, later in pairwise(in_process(work, "marks", **given))]
    with tempfile.TemporaryDirectory() as folder:
        options = ["-q", "--tool=callgrind", f"--callgrind-out-file={folder}/out", f"--dump-before={MARK}"]
        command = ["valgrind", *options, *child(work, given)]
        subprocess.run(command, cwd=ROOT, env=os.environ | STEADY, stdout=subprocess.DEVNULL, check=True)
        files = sorted(Path(folder).glob("out.*"), key=lambda path: int(path.suffix[1:]))
        totals = [re.search(r"^totals: (\d+)", path.read_text(), re.MULTILINE) for path in files]
    return [float(found[1]) for found in totals[1:] if found]  # without the cost before the first mark


if __name__ == "__main__":
    module, function, options = sys.argv[1:]
    result = asyncio.run(getattr(importlib.import_module(module), function)(**json.loads(options)))
    measuring = importlib.import_module("benchmarks.measuring")  # this file is __main__ here
    print(json.dumps({"result": result, "marks": measuring.cpu_at_marks}))
