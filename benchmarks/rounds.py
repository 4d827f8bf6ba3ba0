"""Pieces of work in; what each costs out: interleaved rounds, medians, ratios and their spread.

A machine's speed drifts, so subjects are never measured one after the other:
each round runs all of them, in an order of its own, and a ratio is taken
within a round. The control (the same code under two names) shows what of a
ratio is noise.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Figure", "Row", "figure", "in_process", "interleaved", "ratios", "shuffled"]

ROOT = Path(__file__).resolve().parent.parent

Work = Callable[[], Awaitable[object]]


class Figure(NamedTuple):
    """A median, and the quartiles around it."""

    median: float
    low: float
    high: float


class Row(NamedTuple):
    """One comparison: what each subject costs, in *unit*, and our cost over each other's.

    *reach* are the ratios to stay under; *notes* are figures that stand for themselves.
    """

    name: str
    title: str
    unit: str
    costs: dict[str, Figure]
    ratios: dict[str, Figure]
    reach: dict[str, float]
    notes: dict[str, float]


def figure(samples: list[float]) -> Figure:
    """Return the median and the quartiles of *samples*."""
    if len(samples) < 2:
        return Figure(samples[0], samples[0], samples[0])
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Figure(middle, low, high)


def ratios(samples: Mapping[str, list[float]], subject: str) -> dict[str, Figure]:
    """Return *subject*'s cost over each other's, taken round by round."""
    own = samples[subject]
    return {
        name: figure([mine / other for mine, other in zip(own, others, strict=True)])
        for name, others in samples.items()
        if name != subject
    }


def in_process(module: str, *arguments: object) -> Any:
    """Run a *module* in a process of its own; return what it prints as JSON."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)


async def interleaved(
    works: Mapping[str, Work],
    *,
    rounds: int,
    repeat: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
    """Run each work *repeat* times a round, for *rounds* rounds; return seconds a run, by round.

    What is alive at the start is frozen out of the garbage collector, so that
    no subject pays for the modules that another one imported.
    """
    samples: dict[str, list[float]] = {name: [] for name in works}
    names = list(works)
    for name in names:
        await works[name]()  # connections, caches, compiled patterns
    gc.collect()
    gc.freeze()
    try:
        for number in range(rounds):
            for name in shuffled(names, number):
                samples[name].append(await timed(works[name], repeat, clock))
    finally:
        gc.unfreeze()
    return samples


def shuffled(names: list[str], number: int) -> list[str]:
    """Return the order of the round *number*: in turns, one subject would always follow the same other."""
    return random.Random(number).sample(names, len(names))


async def timed(work: Work, repeat: int, clock: Callable[[], float]) -> float:
    """Return what one run of *work* costs, in seconds, from *repeat* runs.

    One more comes before, which is not counted: the processor's caches hold what the subject before left.
    """
    gc.collect()
    await work()
    start = clock()
    for _ in range(repeat):
        await work()
    return (clock() - start) / repeat
