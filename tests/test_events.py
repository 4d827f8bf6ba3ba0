"""Events: every type typed, what is not known kept, the wire's object given back."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import re
from collections import ChainMap
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mintlify_async import events
from mintlify_async.errors import StreamDecodeError
from mintlify_async.events import EVENT_TYPES, Data, StreamEvent, TextDelta, UnknownEvent
from mintlify_async.model.wire_value import MISSING
from tests.support.json_values import JSON
from tests.support.oracle_data import BIG_INTEGERS, joined, scenarios
from tests.support.parsed_events import parse_event

VALUES: dict[str, Any] = {
    "str": "x",
    "bool": False,
    "JSONObject": {"m": 1},
    "ProviderMetadata": {"acme": {"n": 1}},
    "Objects": [{"type": "text", "text": "x"}],
    "Any": None,
    "MaskedJSON": {"a": [1]},
    "ThreadId": "t",
    "LenientText": "e",
}
"""A value for each type of a field."""

WRONG: dict[str, list[Any]] = {
    "str": [3],
    "bool": [3, "false"],
    "JSONObject": [3, []],
    "ProviderMetadata": [3, [], {"p": None}, {"p": []}],
    "Objects": [3, ["x"]],
}
"""What is no value of that type. The other types take anything."""


def schema(cls: type[Any]) -> list[tuple[attrs.Attribute[Any], str, str]]:
    """Return each field of *cls* with its name in the JSON object and the type that its annotation names."""
    types = ChainMap(*map(inspect.get_annotations, cls.__mro__))
    return [
        (
            field,
            re.sub("_(.)", lambda found: found[1].upper(), field.name),
            types[field.name].removesuffix(" | None"),
        )
        for field in attrs.fields(cls)
        if field.name not in ("extra", "name")
    ]


def wire_of(kind: str, cls: type[Any]) -> dict[str, Any]:
    return {"type": kind, **{name: VALUES[content] for _, name, content in schema(cls)}}


TYPES = [*EVENT_TYPES.items(), ("data-weather", Data)]
NAMES = sorted({name for _, cls in TYPES for _, name, _ in schema(cls)})
each_type = pytest.mark.parametrize(("kind", "cls"), TYPES, ids=[kind for kind, _ in TYPES])


@each_type
def test_every_type_round_trips(kind: str, cls: type[Any]) -> None:
    """Each type, with all its fields, gives the wire's object back; it copies and pickles."""
    wire = wire_of(kind, cls)
    event = parse_event(json.dumps(wire))
    assert type(event) is cls
    assert event.type == kind
    assert event.to_wire() == wire
    assert event.extra == {}
    assert pickle.loads(pickle.dumps(event)) == event == copy.deepcopy(event)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        event.extra = {}  # type: ignore[misc]


@each_type
def test_every_field_has_its_type(kind: str, cls: type[Any]) -> None:
    """A required field that is missing, or one of another type, is an error that names it; see ``WRONG``."""
    wire = wire_of(kind, cls)
    for field, name, content in schema(cls):
        if field.default is attrs.NOTHING:
            with pytest.raises(StreamDecodeError, match=rf"{name} is missing"):
                parse_event(json.dumps({key: wire[key] for key in wire if key != name}))
        for wrong in WRONG.get(content, ()):
            with pytest.raises(StreamDecodeError, match=rf"\.{name} must be"):
                parse_event(json.dumps({**wire, name: wrong}))


@each_type
def test_null_in_an_optional_field_is_absence(kind: str, cls: type[Any]) -> None:
    """A null where nothing need be makes no error and no value."""
    wire = wire_of(kind, cls)
    for field, name, content in schema(cls):
        if field.default is not attrs.NOTHING:
            event = parse_event(json.dumps({**wire, name: None}))
            assert getattr(event, field.name) is (None if kind != "error" else "")
            assert (name in event.to_wire()) is (content not in WRONG)


def test_every_class_has_a_type() -> None:
    """No class but a base is outside of the union, from which the parser has its types."""
    classes = {cls for _, cls in inspect.getmembers(events, inspect.isclass) if issubclass(cls, events.Event)}
    assert set(get_args(StreamEvent)) == {cls for cls in classes if not cls.__subclasses__()}


def test_missing_and_null_are_kept_apart() -> None:
    """A tool that returned nothing, and one that returned null, are not the same."""
    missing = parse_event('{"type":"tool-output-available","toolCallId":"c"}')
    null = parse_event('{"type":"tool-output-available","toolCallId":"c","output":null}')
    assert missing.output is MISSING
    assert not missing.output
    assert null.output is None
    assert "output" not in missing.to_wire()
    assert null.to_wire()["output"] is None
    assert repr(MISSING) == "MISSING"
    assert pickle.loads(pickle.dumps(MISSING)) is MISSING


def test_an_unknown_type_passes() -> None:
    """A type, a field and a finish reason of next year are kept. ``threadId`` may be anything."""
    for thread_id in ("t", None, 5, {"a": 1}):
        finish = {"type": "finish", "finishReason": "bored", "usage": {"n": 1}, "threadId": thread_id}
        event = parse_event(json.dumps(finish))
        assert (event.finish_reason, event.extra["usage"]) == ("bored", {"n": 1})
        assert event.thread_id == (thread_id if thread_id == "t" else None)
        assert event.to_wire() == finish
    wire = {"type": "thread", "threadId": "t", "n": [1]}
    event = parse_event(json.dumps(wire))
    assert event == UnknownEvent(type="thread", extra={"threadId": "t", "n": [1]})
    assert event.raw == wire
    assert event.to_wire() == wire


def test_the_thread_key_is_masked_and_not_written() -> None:
    """A key is nowhere in an event: not in extra, not in metadata, at no depth, not in to_wire."""
    wire = {
        "type": "finish",
        "threadId": "t",
        "threadKey": "secret",
        "messageMetadata": {"threadKey": "secret", "deep": [{"threadKey": "secret", "n": 1}]},
    }
    for kind in ("finish", "start", "future"):
        event = parse_event(json.dumps({**wire, "type": kind}))
        assert "secret" not in repr(event)
        assert event.extra["threadKey"] == "****"
        assert "threadKey" not in json.dumps(event.to_wire())
    finish = parse_event(json.dumps(wire))
    assert finish.to_wire()["messageMetadata"] == {"deep": [{"n": 1}]}


@pytest.mark.parametrize(
    "data",
    [
        "",
        '{"type":"finish","threadKey":"secr',
        '{"type":"data-x","data":NaN}',
        '{"type":"text-delta","id":"0","delta":"a\nb"}',
        "\ufeff{}",
        '{"type":"data-x","data":' + "9" * 5000 + "}",
        "[" * 100_000,
        '{"type":"data-x","data":' + "[" * 201 + "]" * 201 + "}",
        '{"type":"x","data":' + '{"a":' * 5000 + "1" + "}" * 5001,
    ],
)
def test_what_is_no_json_is_an_error(data: str) -> None:
    """NaN, control characters, trailing commas and bottomless nesting are refused, with an excerpt."""
    with pytest.raises(StreamDecodeError) as caught:
        parse_event(data)
    assert len(caught.value.excerpt) <= 2000
    assert "secr" not in caught.value.excerpt + str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("data", ["null", "42", '"x"', "[]", "{}", '{"type":null}', '{"type":["finish"]}'])
def test_what_is_no_typed_object_is_an_error(data: str) -> None:
    """JSON without a type that is text is no event."""
    with pytest.raises(StreamDecodeError, match="not an object with a type"):
        parse_event(data)


def test_json_is_read_as_javascript_reads_it() -> None:
    """White space around, escapes in keys, doubled keys, big numbers: all legal."""
    event = parse_event(' \t\r\n{"\\u0074ype":"data-x","data":1,"data":[1e400,123456789012345678901]} ')
    assert event == Data(name="x", data=[float("inf"), 123456789012345678901])
    assert event.to_wire()["data"] == [None, 123456789012345678901]
    json.dumps(event.to_wire(), allow_nan=False)


@pytest.mark.parametrize("version", ["v5", "v6", "v7"])
def test_the_oracle_s_valid_chunks_come_back(version: str) -> None:
    """Whatever JavaScript's parser accepts is accepted and given back as it was."""
    for scenario in scenarios(version):
        doubles = scenario.name in BIG_INTEGERS
        for entry in scenario.chunks:
            if entry["ok"]:
                event = parse_event(json.dumps(entry["chunk"]))
                assert joined(event.to_wire(), doubles=doubles) == joined(entry["chunk"], doubles=doubles)


@given(
    st.sampled_from([*EVENT_TYPES, "data-x", "other"]), st.dictionaries(st.sampled_from([*NAMES, "x"]), JSON)
)
def test_any_object_is_an_event_or_a_typed_error(kind: str, fields: dict[str, Any]) -> None:
    """Whatever the fields hold, there is an event that writes valid JSON, or StreamDecodeError."""
    try:
        event = parse_event(json.dumps({**fields, "type": kind}))
    except StreamDecodeError:
        return
    json.dumps(event.to_wire(), allow_nan=False)
    repr(event)


def test_a_thread_key_in_provider_metadata_is_masked_and_data_stays() -> None:
    """The repr and the wire have no key in metadata; the content of a data part is the application's."""
    metadata = {"a": {"threadKey": "s", "n": 1}}
    delta = parse_event(json.dumps({"type": "text-start", "id": "0", "providerMetadata": metadata}))
    assert delta.provider_metadata == {"a": {"threadKey": "****", "n": 1}}
    assert events.TextStart(id="0", provider_metadata=metadata).to_wire()["providerMetadata"] == {
        "a": {"n": 1}
    }
    assert parse_event(json.dumps({"type": "data-x", "data": metadata})).data == metadata


def test_a_repr_shows_the_fields_that_are_set():
    """Nobody reads an event through ten fields that are None."""
    assert repr(TextDelta(id="0", delta="Hi")) == "TextDelta(id='0', delta='Hi')"
    wire = {"type": "tool-input-available", "toolCallId": "c", "toolName": "search", "input": None}
    assert repr(parse_event(json.dumps(wire))) == "ToolInputAvailable(tool_call_id='c', tool_name='search')"
    assert repr(parse_event(json.dumps({"type": "finish", "later": 1}))) == "Finish(extra={'later': 1})"
