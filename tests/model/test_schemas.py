"""The schemas of the values: whatever other code does with the classes first, they read the same."""

from __future__ import annotations

import subprocess
import sys

import attrs
import pytest

from mintlify_async.model.strict_json import DecodeProblem
from mintlify_async.model.wire_value import Lenient, WireValue, read_value


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Sample(WireValue):
    whole: int
    ratio: float = 0.5
    flag: bool | None = None
    lenient: Lenient[int] = None


@pytest.mark.parametrize(
    ("wire", "problem"),
    [
        ({}, ".whole is missing"),
        ({"whole": None}, ".whole is missing"),
        ({"whole": True}, ".whole must be a whole number"),
        ({"whole": 1.0}, ".whole must be a whole number"),
        ({"whole": "1"}, ".whole must be a whole number"),
        ({"whole": 1, "ratio": "1"}, ".ratio must be a number"),
        ({"whole": 1, "ratio": False}, ".ratio must be a number"),
        ({"whole": 1, "flag": "false"}, ".flag must be true or false"),
        ({"whole": 1, "flag": 0}, ".flag must be true or false"),
        ({"flag": 0, "ratio": "1", "whole": 1}, ".ratio must be a number"),
        ({"flag": 0, "ratio": "1"}, ".whole is missing"),
        ({"lenient": "x", "new": 1, "flag": 0, "whole": 1}, ".flag must be true or false"),
        ("x", " must be an object"),
    ],
)
def test_nothing_is_coerced(wire, problem):
    """Numbers and flags are taken as they are or refused. The error names the class's first wrong field."""
    with pytest.raises(DecodeProblem) as caught:
        read_value(Sample, wire)
    assert str(caught.value) == problem


def test_a_class_reads_and_writes_its_fields():
    """A whole number is a number, too; null in an optional field is absence, and so is what does not fit."""
    value = read_value(Sample, {"whole": 1, "ratio": 2, "flag": None, "lenient": "x", "new": 1})
    assert value == Sample(whole=1, ratio=2)
    assert value.to_wire() == {"whole": 1, "ratio": 2}


@pytest.mark.real
def test_the_converter_is_loaded_with_the_session():
    """Importing cattrs takes longer than a hundred events; no first event of an answer waits for it."""
    program = """
import sys
from mintlify_async import MintlifySession, Reply
assert "cattrs" not in sys.modules
MintlifySession()
assert "cattrs" in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
