"""Every benchmark does the work it says it does, in a small run; how long that takes is not looked at."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks import __main__ as command
from benchmarks import bodies, chart, counted, growth, instructions, profiling, report, rounds, shapes
from benchmarks.server import running
from benchmarks.subjects import SUBJECTS, Heard

QUICK = command.Effort(rounds=1, quick=True)
NEEDS = {"tls": "trustme"}


@pytest.mark.parametrize("name", command.ROWS)
def test_row_runs_and_asserts_its_own_work(name):
    """A small run of each row ends with figures above zero for this package."""
    if name == "instructions" and shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    rows = list(command.ROWS[name](QUICK))
    assert rows
    for row in rows:
        assert all(cost.median >= 0 for cost in row.costs.values())
        assert row.name in report.table(row)


@pytest.mark.parametrize("shape", bodies.SHAPES)
def test_answer_is_what_its_script_sends(shape):
    """The pieces on the wire, the chunks' framing taken off, are the answer's events and nothing else."""
    plan = bodies.script(shape)
    _, _, rest = b"".join(plan.pieces).partition(b"\r\n\r\n")
    pieces, at = [], 0
    while at < len(rest):
        end = rest.index(b"\r\n", at) + 2
        size = int(rest[at:end], 16)
        pieces.append(rest[end : end + size])
        at = end + size + 2
    body = b"".join(pieces)
    events = [json.loads(frame[6:]) for frame in body.split(b"\n\n")[:-2]]
    assert body == plan.answer.body
    assert len(events) == plan.answer.events
    assert "".join(event.get("delta", "") for event in events) == plan.answer.text


def test_reader_that_skips_an_event_is_caught():
    """A subject that is fast because it reads less does not get a figure."""
    from benchmarks.streams import check

    expected = bodies.answer("brief")
    check(Heard(expected.events, text=expected.text), expected)
    for wrong in (Heard(expected.events - 1), Heard(expected.events, text="no"), Heard(body_bytes=1)):
        with pytest.raises(AssertionError):
            check(wrong, expected)


async def test_counted_work_is_whole_answers_and_requests():
    """What callgrind counts, and what is profiled, reads the same checked answers."""
    with running() as server:
        await counted.streams(server, "mintlify-async", "brief", 2)
        await counted.calls(server, "mintlify-async", "get", 2)
        await counted.firsts(server, "aiohttp", "brief", 2)
    assert set(profiling.layers(rounds=1)) > {"framing", "folding"}


def test_counts_between_marks_are_of_what_lies_between():
    """Eight times the work is eight times the instructions; the interpreter's start is in neither."""
    if not instructions.installed():
        pytest.skip("valgrind is not installed")
    code = """
import os
for work in (10_000, 80_000):
    os.getloadavg()
    for _ in range(work):
        pass
os.getloadavg()
"""
    _, small, large = instructions.counts_between_marks(["-I", "-c", code], "getloadavg")
    assert 7.5 < large / small < 8.5


def test_every_shape_is_counted(monkeypatch):
    """Each shape marks three places; its figure is the large run's instructions over the small one's."""
    counts = [count for place in range(len(shapes.SHAPES)) for count in (99, 10, 80 + place)]
    asked = []
    monkeypatch.setattr(growth, "installed", lambda: True)
    monkeypatch.setattr(growth, "counts_between_marks", lambda *given: asked.append(given) or counts)
    row = growth.growth(rounds=1)
    assert asked == [(["-m", "benchmarks.shapes", *shapes.SHAPES], shapes.MARK)]
    assert [cost.median for cost in row.costs.values()] == [
        (80 + place) / 80 for place in range(len(shapes.SHAPES))
    ]


def test_shape_is_run_between_its_marks(monkeypatch):
    """What is made once is made before the first mark."""
    seen = []
    monkeypatch.setattr("os.getloadavg", lambda: seen.append("mark"))
    shapes.run_marked(lambda: seen.append("small"), lambda: seen.append("large"))
    assert seen == ["small", "mark", "small", "mark", "large", "mark"]


def test_order_of_held_events_is_checked():
    """An event that comes before its turn stops the run."""
    from benchmarks.held import Book

    book = Book(1)
    book.heard("0 0.0 ", 0)
    with pytest.raises(AssertionError):
        book.heard("2 0.0 ", 1)


def test_ratios_are_taken_within_a_round():
    """A machine that halves its speed between two rounds does not move a ratio."""
    found = rounds.ratios({"ours": [1.0, 2.0, 4.0], "theirs": [2.0, 4.0, 8.0]}, "ours")
    assert found == {"theirs": (0.5, 0.5, 0.5)}


def test_rows_survive_their_file_and_are_drawn(tmp_path):
    """What is written is read back, rows of an earlier run stay, and the chart shows every subject."""
    path = tmp_path / "results.json"
    costs = {name: rounds.Figure(2.0, 1.0, 3.0) for name in ("mintlify-async", "<peer>")}
    row = rounds.Row("burst", "CPU an event", "µs", costs, {}, {"<peer>": 0.3}, {})
    report.save([row._replace(name="older")], path)
    report.save([row], path)
    assert all(each["taken"] and each["processor"] for each in report.written_in(path))
    assert report.load(path) == {"older": row._replace(name="older"), "burst": row}
    assert json.loads(path.read_text())["versions"]["aiohttp"]
    chart.draw([row], tmp_path / "chart.svg")
    assert "&lt;peer&gt;" in (tmp_path / "chart.svg").read_text()


def test_control_is_the_same_code():
    """The control's ratio is off 1 by noise alone: it opens what this package opens."""
    ours, control = SUBJECTS[:2]
    assert (ours.opened, control.name) == (control.opened, "control")


def test_unknown_row_is_refused(capsys):
    """A row's name that is mistyped says which there are."""
    with pytest.raises(SystemExit):
        command.arguments(["bursts"])
    assert "bursts" in capsys.readouterr().err
