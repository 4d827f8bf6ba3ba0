"""Shapes of bytes, events and texts in; out: what a byte costs at eight times the size, over what it costs.

Anything above 1 by more than the control's spread grows faster than its input. Where valgrind is
installed, instructions are counted: they have no spread.
"""

from __future__ import annotations

import gc
import time

from .instructions import counts_between_marks, installed
from .rounds import Figure, Row, figure
from .shapes import MARK, SHAPES, TIMES, Run

__all__ = ["growth"]

REACH = 1.2
TIMED_TIMES = 8
"""How much larger the inputs are when the time is taken, which a millisecond is too short for."""


def growth(*, rounds: int, quick: bool = False) -> Row:
    """Count the growth of every shape; where nothing counts, and for a *quick* run, measure it.

    Instructions say how the work grows, not how fast the memory is: a heap that has outgrown the
    processor's cache costs more time a byte, whoever fills it. Nor is the garbage collector in them,
    see :func:`benchmarks.shapes.run_marked`.
    """
    return measured(rounds, quick=quick) if quick or not installed() else counted(list(SHAPES))


def counted(names: list[str]) -> Row:
    """Count the instructions of the shapes *names*, all in one process that is alone in its heap."""
    counts = counts_between_marks(["-m", "benchmarks.shapes", *names], MARK)
    costs: dict[str, Figure] = {}
    for place, name in enumerate(names):
        _, small, large = counts[3 * place : 3 * place + 3]  # the first are what came before the shape
        costs[name] = figure([large / (TIMES * small)])
    return row("instructions", costs, {})


def measured(rounds: int, *, quick: bool) -> Row:
    """Measure the CPU time of every shape, and of the small run against itself: the control."""
    costs: dict[str, Figure] = {}
    controls: list[float] = []
    for name, shape in SHAPES.items():
        size = max(16, shape.size // 200) if quick else TIMED_TIMES * shape.size
        costs[name], control = grown(shape.prepare(size), shape.prepare(TIMES * size), rounds)
        controls.append(control.median)
    return row("CPU time", costs, {"control, worst": max(controls)})


def grown(small: Run, large: Run, rounds: int) -> tuple[Figure, Figure]:
    """Return what a byte costs at eight times the size over what it costs, and the control beside it."""
    found: list[float] = []
    control: list[float] = []
    small()
    for _ in range(rounds):
        first = seconds(small, TIMES)
        found.append(seconds(large, 1) / first)
        control.append(seconds(small, TIMES) / first)
    return figure(found), figure(control)


def seconds(run: Run, times: int) -> float:
    """Return the CPU seconds of *run*, done *times* times."""
    gc.collect()
    start = time.process_time()
    for _ in range(times):
        run()
    return time.process_time() - start


def row(unit: str, costs: dict[str, Figure], notes: dict[str, float]) -> Row:
    """Return *costs* as a row, in *unit* a byte; the worst of them stands in the notes."""
    worst = max(figure.median for figure in costs.values())
    title = f"{unit} a byte at {TIMES} times the size"
    return Row("growth", title, "times", costs, {}, {}, {"worst": worst, **notes, "reach": REACH})
