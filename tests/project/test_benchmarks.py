"""Every benchmark does the work it says it does, in a small run; how long that takes is not looked at."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks import __main__ as command
from benchmarks import bodies, growing, measuring, report, rows, server, subjects

pytestmark = pytest.mark.sweep

SMALL = measuring.Effort(rounds=1, small=True)
NEEDS = {"relay": ("fastapi", "uvicorn", "cryptography")}
PLAIN_SHAPES = ["burst", "live", "alone", *(f"{kind}~deltas" for kind in bodies.DELTA_KINDS)]
MARKDOWN_SHAPES = [f"{kind}~300~markdown" for kind in bodies.MARKDOWN_KINDS]
GROWING_SHAPES = [f"{name}~20~growing" for name in growing.GROWING]


@pytest.mark.parametrize("name", command.ROWS)
def test_row_runs_and_asserts_its_own_work(name):
    """A small run of each row ends with figures of this package that are in the report."""
    for needed in NEEDS.get(name, ()):
        pytest.importorskip(needed)
    found = list(command.ROWS[name](SMALL))
    assert found
    for row in found:
        assert row.costs
        for subject in row.costs:
            assert subject in report.table(row)


def test_every_target_belongs_to_a_row_of_that_name():
    """A target that no row has would never be shown."""
    names = {name.partition("-")[0] for name in report.TARGETS}
    assert names <= set(command.ROWS)


@pytest.mark.parametrize("shape", [*PLAIN_SHAPES, *MARKDOWN_SHAPES, *GROWING_SHAPES])
def test_answer_is_what_its_script_sends(shape):
    """The pieces on the wire, the chunks' framing taken off, are the answer's body and nothing else."""
    plan = bodies.script(shape)
    _, _, rest = b"".join(plan.pieces).partition(b"\r\n\r\n")
    found, at = [], 0
    while at < len(rest):
        end = rest.index(b"\r\n", at) + 2
        size = int(rest[at:end], 16)
        found.append(rest[end : end + size])
        at = end + size + 2
    assert b"".join(found) == plan.body


@pytest.mark.parametrize("shape", [*PLAIN_SHAPES, *MARKDOWN_SHAPES])
def test_answer_has_the_events_and_the_text_that_readers_are_held_to(shape):
    """The facts by which a reader is checked are those of the bytes."""
    plan = bodies.script(shape)
    lines = [line[6:] for line in plan.body.decode().split("\n") if line.startswith("data: ")]
    events = [json.loads(line) for line in lines[:-1]]
    told = [event for event in events if event["type"] == "text-delta"]
    assert lines[-1] == "[DONE]"
    assert len(events) == plan.events
    assert sorted("".join(event["delta"] for event in told)) == sorted(plan.text)


@pytest.mark.parametrize("name", rows.THERE)
async def test_client_that_reads_less_is_caught(name):
    """A subject that is fast because it skips an event, or a byte, does not get a figure."""

    async def less(events, parse):
        return await subjects.count(events, parse) - 1

    with server.running() as (url, _):
        async with subjects.CLIENTS[name](url) as client:
            for shape in ("burst", "alone"):
                await client.read(shape)
            with pytest.raises(AssertionError):
                await client.read("alone", less)


def test_counts_between_marks_are_of_what_lies_between():
    """Eight times the work is eight times the instructions; the interpreter's start is in neither."""
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    loops = ["for _ in range(10_000): pass", "os.getloadavg()", "for _ in range(80_000): pass"]
    small, large = measuring.between_marks("\n".join(loops), measuring.Effort())
    assert 7.5 < large / small < 8.5


def test_report_says_whether_a_figure_is_within_reach():
    """The ratio is held against the target where there is one, else the cost."""
    costs = {measuring.OURS: [4.0], "aiohttp": [1.0], "openai": [100.0]}
    said = report.table(measuring.row_of("burst", "CPU per event", "µs", costs))
    assert [line.split(": ")[-1] for line in said.splitlines() if "reach" in line] == ["NO", "yes"]
