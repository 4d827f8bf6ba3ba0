"""The schemas of the values: whatever other code does with the classes first, they read the same."""

from __future__ import annotations

import json
import subprocess
import sys

import attrs
import pytest

from mintlify_async import events, messages
from mintlify_async.model import job_record, question, response_info
from mintlify_async.model.json_text import DecodeProblem
from mintlify_async.model.wire_value import Lenient, WireValue, read_value, write_value

PROGRAM = """
import json, sys
import attrs, cattrs
from mintlify_async import events, messages
from mintlify_async.model import job_record, question, response_info
from mintlify_async.assistant.decode import parse_event
from mintlify_async.model.wire_value import WireValue

meddle = sys.argv[1] == "meddle"
modules = (events, job_record, messages, question, response_info)
classes = [
    cls
    for module in modules
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, WireValue) and attrs.has(cls)
]

def sample(cls):
    if cls is question.ContextItem:
        return cls("code", "x")
    required = [field for field in attrs.fields(cls) if field.default is attrs.NOTHING]
    return cls(**{field.alias: {"raw": {}, "parts": []}.get(field.name, "x") for field in required})

for cls in classes if meddle else ():
    cattrs.unstructure(sample(cls))
    attrs.resolve_types(cls)

event_wires = json.loads(sys.argv[2])
print([parse_event(json.dumps(wire)) for wire in event_wires])
print([parse_event(json.dumps(wire)).to_wire() for wire in event_wires])
part_wires = json.loads(sys.argv[3])
print([messages.part_from_wire(wire) for wire in part_wires])
print([messages.part_from_wire(wire).to_wire() for wire in part_wires])
found = job_record.Job.from_wire(
    {"id": "j", "status": "active", "source": {"repository": "r"}, "createdAt": "2026-01-02T03:04:05Z"}
)
print(found, found.to_wire())
context = question.ContextItem.from_wire({"type": "code", "value": "x", "elementId": "e"})
narrow = question.SearchFilter.from_wire({"groups": ["a"]})
print(context, context.to_wire(), narrow, narrow.to_wire())
print(messages.Message.from_wire({"id": "m", "role": "user", "parts": part_wires}).to_wire())
print(sorted({cls.__name__ for cls in classes}))
"""

FIELDS = {
    "id": "i",
    "delta": "d",
    "toolCallId": "c",
    "toolName": "f",
    "inputTextDelta": "{",
    "errorText": "e",
    "approvalId": "a",
    "approved": False,
    "sourceId": "s",
    "url": "https://example.com",
    "mediaType": "text/plain",
    "title": "t",
    "kind": "acme.thing",
    "parts": [],
    "threadId": 5,
    "providerMetadata": {"p": {}},
    "new": 1,
}
EVENT_WIRES = [{"type": kind, **FIELDS} for kind in [*events.EVENT_TYPES, "data-x", "hologram"]]
PART_WIRES = [
    {"type": "text", "text": "x"},
    {"type": "reasoning", "text": "x"},
    {
        "type": "tool-f",
        "toolCallId": "c",
        "state": "approval-requested",
        "input": None,
        "approval": {"id": "a"},
    },
    {"type": "dynamic-tool", "toolName": "f", "toolCallId": "c", "state": "input-available"},
    {"type": "source-url", "sourceId": "s", "url": "u"},
    {"type": "source-document", "sourceId": "s", "mediaType": "m", "title": "t"},
    {"type": "file", "mediaType": "m", "url": "u"},
    {"type": "reasoning-file", "mediaType": "m", "url": "u"},
    {"type": "custom", "kind": "a.b"},
    {"type": "data-x", "data": None},
    {"type": "step-start"},
    {"type": "steering-message", "id": "s", "parts": []},
    {"type": "hologram", "x": 1},
]


def outcome(how: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how, json.dumps(EVENT_WIRES), json.dumps(PART_WIRES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    return done.stdout


@pytest.mark.real
def test_what_cattrs_and_attrs_do_with_the_classes_first_changes_nothing():
    """``cattrs.unstructure`` and ``attrs.resolve_types`` on every class, before the first answer is read."""
    plain = outcome("plain")
    assert plain == outcome("meddle")
    public = {
        cls.__name__
        for module in (events, job_record, messages, question, response_info)
        for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, WireValue) and attrs.has(cls)
    }
    assert plain.splitlines()[-1] == str(sorted(public))


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
        ("x", " must be an object"),
    ],
)
def test_nothing_is_coerced(wire, problem):
    """Numbers and flags are taken as they are or refused, and the error names the field, not the value."""
    with pytest.raises(DecodeProblem) as caught:
        read_value(Sample, wire)
    assert str(caught.value) == problem


def test_a_class_reads_and_writes_its_fields():
    """A whole number is a number, too; null in an optional field is absence, and so is what does not fit."""
    value = read_value(Sample, {"whole": 1, "ratio": 2, "flag": None, "lenient": "x", "new": 1})
    assert value == Sample(whole=1, ratio=2)
    assert write_value(value) == {"whole": 1, "ratio": 2}


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
