"""Messages: UIMessage JSON both ways, input checked, text without half characters."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mintlify_async.errors import ConfigurationError
from mintlify_async.messages import (
    DataPart,
    Message,
    TextPart,
    ToolPart,
    UnknownPart,
    clean_text,
    coerce_messages,
    whole_message,
)
from mintlify_async.model.strict_json import join_surrogates, json_safe
from tests.support.json_values import JSON
from tests.support.oracle_data import joined, scenarios

FILE = {"type": "file", "mediaType": "image/png", "url": "data:,", "filename": "a.png"}
CALL = {"toolCallId": "c", "state": "output-available", "input": None, "output": None}
ASKED = {"id": "a", "descriptor": None, "requestReason": "r", "isAutomatic": True, "new": 1}
GIVEN = {"state": "approval-requested", "approval": ASKED, "callProviderMetadata": {"p": {}}}
PARTS: list[dict[str, Any]] = [
    {"type": "text", "text": "x"},
    {"type": "text", "text": "x", "state": "done", "providerMetadata": {"p": {}}, "citations": [{}], "n": 1},
    {"type": "reasoning", "text": "x", "id": "r", "state": "streaming"},
    {**FILE, "providerReference": {"p": "1"}},
    {"type": "reasoning-file", "mediaType": "image/png", "url": "data:,"},
    {"type": "source-url", "sourceId": "s", "url": "https://example.com", "title": "T"},
    {"type": "source-document", "sourceId": "s", "mediaType": "text/plain", "title": "T", "filename": "f"},
    {"type": "step-start"},
    {"type": "custom", "kind": "a.b"},
    {"type": "data-x", "data": None, "id": "1", "transient": False},
    {"type": "data-", "data": [1]},
    {"type": "steering-message", "id": "s", "parts": [{"type": "text", "text": "x"}]},
    {"type": "tool-f", "toolCallId": "c", "state": "input-streaming", "input": {}, "rawInput": "{"},
    {"type": "tool-f", **CALL, "resultProviderMetadata": {"p": {}}},
    {"type": "dynamic-tool", "toolName": "f", "toolCallId": "c", **GIVEN},
    {"type": "hologram", "x": {"y": 1}},
]


def user(*parts: object, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [*parts], **fields}


@pytest.mark.parametrize("part", PARTS, ids=[part["type"] for part in PARTS])
def test_every_part_round_trips(part: dict[str, Any]) -> None:
    """Each type of part reads and writes exactly its JSON, fields of later versions included."""
    wire = user(part, id="m", role="assistant", metadata={"n": [1]}, new=1)
    message = Message.from_wire(wire)
    assert message.to_wire() == wire
    assert Message.from_wire(message.to_wire()) == message
    assert pickle.loads(pickle.dumps(message)) == message == copy.deepcopy(message)
    assert message.parts[0].type == part["type"]
    assert isinstance(message.parts[0], ToolPart) is ("toolCallId" in part)


def test_the_oracle_s_messages_round_trip() -> None:
    """Every message that JavaScript made reads and writes unchanged."""
    for scenario in itertools.chain(scenarios("v5"), scenarios("v6"), scenarios("v7")):
        for wire in [scenario.message, *(entry["message"] for entry in scenario.snapshots or [])]:
            assert joined(Message.from_wire(wire).to_wire()) == joined(wire)


def test_text_joins_the_text_parts() -> None:
    """Text is the text parts alone, in order."""
    message = Message.from_wire(user({"type": "text", "text": "a"}, *PARTS[2:4], PARTS[0], id=""))
    assert message.text == "ax"


@pytest.mark.parametrize(
    ("text", "state", "expected"),
    [
        ("a\ud83d\ude00b", "done", "a\U0001f600b"),
        ("a\ud83d", "streaming", "a"),
        ("a\ud83d", "done", "a\ufffd"),
        ("a\ud83d", None, "a\ufffd"),
        ("\ude00a", "streaming", "\ufffda"),
        ("\ud83d\ud83d\ude00", "streaming", "\ufffd\U0001f600"),
    ],
)
def test_text_never_holds_half_a_character(text: str, state: str | None, expected: str) -> None:
    """Halves are joined; one that may still find its other half is held back; a lone one is replaced."""
    message = Message(id="m", role="assistant", parts=(TextPart(text=text, state=state),))
    assert message.text == expected
    message.text.encode()


def test_each_part_of_a_growing_message_keeps_its_own_last_half() -> None:
    """A part that is empty, or whose end is certain, is what it would be in a complete message."""
    texts, expected = ("a\ud83d", "", "a\ude00", "b", "\ud800"), ["a\ud83d", "", "a\ufffd", "b", "\ud800"]
    parts = tuple(TextPart(text=text, state="streaming") for text in texts)
    growing = whole_message(Message(id="m", role="assistant", parts=parts), streaming=True)
    assert [part.text for part in growing.parts] == expected


@given(st.text(st.characters(exclude_categories=())), st.booleans())
def test_clean_text_can_be_encoded(text: str, streaming: bool) -> None:
    """Whatever the halves, clean text is UTF-8, and joining is what JavaScript's strings do."""
    clean_text(text, streaming=streaming).encode()
    assert join_surrogates(join_surrogates(text)) == join_surrogates(text)


def test_no_invalid_json_is_written() -> None:
    """Infinity and NaN become null wherever they stand."""
    bad = [float("inf"), {"n": float("nan")}]
    tool = ToolPart(tool_name="f", tool_call_id="c", state="output-available", output=bad)
    parts = (DataPart(name="x", data=bad), tool, UnknownPart(type="y", extra={"a": bad}))
    message = Message(id="m", role="assistant", metadata={"a": bad}, parts=parts)
    json.dumps(message.to_wire(), allow_nan=False)


def test_the_thread_key_is_not_written() -> None:
    """A stored message that holds a key shows it masked and writes it nowhere."""
    message = Message.from_wire(user(metadata={"threadId": "t", "threadKey": "secret"}))
    assert "secret" not in repr(message)
    assert message.to_wire()["metadata"] == {"threadId": "t"}


def ids() -> Any:
    return map("gen-{}".format, itertools.count(1)).__next__


def test_messages_from_anything() -> None:
    """Text, a message, a browser's dict and lists of those are messages; ids are kept or made."""
    wire = user(PARTS[0], id="u1")
    ours = Message.user("b", id="u2")
    assert coerce_messages("a", ids()) == [Message.user("a", id="gen-1")]
    assert coerce_messages(ours, ids()) == [ours]
    assert coerce_messages(wire, ids()) == [Message.from_wire(wire)]
    mixed = coerce_messages([Message.system("s"), wire, ours, "c"], ids())
    assert [message.id for message in mixed] == ["gen-1", "u1", "u2", "gen-2"]
    assert [message.role for message in mixed] == ["system", "user", "user", "user"]


@pytest.mark.parametrize(
    ("given_messages", "field"),
    [
        (5, "messages"),
        (None, "messages"),
        (b"a", "messages"),
        ({"a"}, "messages"),
        (["a", ""], "messages[1]"),
        (["a", 5], "messages[1]"),
        ([user(role="")], "messages[0].role"),
        ([user(role=["user"])], "messages[0].role"),
        ([{"role": "user"}], "messages[0].parts"),
        ([user("x")], "messages[0].parts[0]"),
        (["a", "b", user({"type": "text"})], "messages[2].parts[0].text"),
        ([user({"type": "text", "text": 1})], "messages[0].parts[0].text"),
        ([user({"type": "dynamic-tool"})], "messages[0].parts[0].toolName"),
        ([user({"type": "tool-f", **CALL, "approval": {}})], "messages[0].parts[0].approval.id"),
        (user({"type": "data-x", "data": {1}}), "messages.parts[0].data"),
        ([user({"type": "data-x", "data": {1: 2}})], "messages[0].parts[0].data"),
        ([user(x=[1, {"y": b"z"}])], "messages[0].x[1].y"),
        ([user(metadata=10**5000)], "messages[0].metadata"),
        ([Message(id=5, role="user")], "messages[0].id"),  # type: ignore[arg-type]
        ([Message(id="1", role="")], "messages[0].role"),
        ([Message(id="1", role=5)], "messages[0].role"),  # type: ignore[arg-type]
        ([Message(id="1", role="user", parts=("x",))], "messages[0].parts[0]"),  # type: ignore[arg-type]
        ([Message(id="1", role="user", parts=(TextPart(text="x", state=1),))], "messages[0].parts[0].state"),  # type: ignore[arg-type]
        ([Message(id="1", role="user", parts=(DataPart(name="x", data={1}),))], "messages[0].parts[0].data"),
    ],
)
def test_wrong_messages_name_the_field(given_messages: object, field: str) -> None:
    """Input that is no message is refused before anything is sent, as a dict or as a message of ours."""
    with pytest.raises(ConfigurationError) as caught:
        coerce_messages(given_messages, ids())
    assert caught.value.field == field
    assert field in str(caught.value)


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_bottomless_input_is_refused(depth: int) -> None:
    """Nesting that could not be written is a ConfigurationError, as a dict or as a message of ours."""
    deep: Any = 1
    for _ in range(depth):
        deep = [deep]
    with pytest.raises(ConfigurationError, match="deeper"):
        coerce_messages({"role": "user", "parts": [{"type": "data-x", "data": deep}]}, ids())
    if depth == 1_000:
        with pytest.raises(ConfigurationError, match="deeper"):
            coerce_messages(Message(id="", role="user", parts=(DataPart(name="x", data=deep),)), ids())


WRITTEN = JSON.map(json_safe).filter(lambda content: "threadKey" not in repr(content))
DATA = st.builds(lambda data, name: {"type": f"data-{name}", "data": data}, WRITTEN, st.text())
METADATA = WRITTEN.filter(lambda content: content is not None)
TOOLS = st.builds(lambda data, name: {**CALL, "type": f"tool-{name}", "input": data}, WRITTEN, st.text())


@given(st.lists(st.sampled_from(PARTS) | DATA | TOOLS, max_size=6), METADATA)
def test_any_message_round_trips(parts: list[dict[str, Any]], metadata: Any) -> None:
    """Message to JSON text and back is the same message, and the same JSON."""
    wire = user(*parts, id="m", metadata=metadata)
    message = Message.from_wire(json.loads(json.dumps(wire)))
    assert json.loads(json.dumps(message.to_wire())) == wire
    assert Message.from_wire(json.loads(json.dumps(message.to_wire()))) == message


def test_a_role_of_a_later_version_is_kept() -> None:
    """The interface shows the role ``user`` and lists no others: any word is read, kept and written."""
    (message,) = coerce_messages([user(PARTS[0], role="tool", id="m")], ids())
    assert message.to_wire() == user(PARTS[0], role="tool", id="m")


def test_content_is_the_text_only_where_there_are_no_parts():
    """Other SDKs write a message with ``content``; beside parts it is an additional field."""
    text = {"type": "text", "text": "of the part"}
    for parts, shown, extra in (
        ([], "of the content", {}),
        ([text], "of the part", {"content": "of the content"}),
    ):
        message = Message.from_wire({"role": "user", "parts": parts, "content": "of the content"})
        assert (message.text, message.extra) == (shown, extra)
