"""Folding: the way of the AI SDK 7, linear, and never changing what was handed out."""

from __future__ import annotations

import copy
import json
import sys
from typing import Any

import pytest

from mintlify_async.assistant.message_builder import MessageBuilder
from mintlify_async.errors import StreamStateError
from mintlify_async.events import StreamEvent
from mintlify_async.messages import DataPart, Message
from mintlify_async.model.wire_value import MISSING
from tests.support.oracle_data import ORACLE, joined, without_streamed_inputs
from tests.support.parsed_events import parse_event


def event(type: str, **fields: Any) -> StreamEvent:
    return parse_event(json.dumps({"type": type, **fields}))


def fold(*events: StreamEvent, message: Message | None = None) -> MessageBuilder:
    folded = MessageBuilder(message)
    for one in events:
        folded.apply(one)
    return folded


# Folding ----------------------------------------------------------------------------------------


RANDOM = json.loads((ORACLE / "random-folds.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", RANDOM, ids=[str(i) for i in range(len(RANDOM))])
def test_random_sequences_fold_as_in_javascript(case: dict[str, Any]) -> None:
    """Any order of events, also into a message that is continued, makes JavaScript's message."""
    folded = MessageBuilder(Message.from_wire(case["initial"]) if case["initial"] else None)
    for wire in case["events"]:
        folded.apply(event(**wire))
    ours = folded.message.to_wire()
    if case["events"][-1]["type"] == "start-step":  # JavaScript publishes no message after it
        ours["parts"].pop()
    theirs = without_streamed_inputs(ours, case["message"], last=True)
    assert joined(ours, doubles=True) == joined(theirs, doubles=True)
    streamed = {wire["toolCallId"] for wire in case["events"] if wire["type"] == "tool-input-delta"}
    for our, their in zip(ours["parts"], case["message"]["parts"], strict=True):
        assert ("input" in our) == ("input" in their) or our["toolCallId"] in streamed


def test_a_snapshot_never_changes() -> None:
    """What was handed out stays as it was when more events come."""
    folded = fold(
        event("start", messageId="m", messageMetadata={"a": {"b": 1}}),
        event("text-start", id="0"),
        event("tool-input-start", toolCallId="c", toolName="f"),
        event("tool-input-delta", toolCallId="c", inputTextDelta='{"a":'),
    )
    before = folded.message
    wire = copy.deepcopy(before.to_wire())
    for one in (
        event("text-delta", id="0", delta="x"),
        event("tool-input-delta", toolCallId="c", inputTextDelta="1}"),
        event("message-metadata", messageMetadata={"a": {"c": [2]}}),
        event("data-x", data=1),
    ):
        folded.apply(one)
    assert before.to_wire() == wire
    assert folded.message.metadata == {"a": {"b": 1, "c": [2]}}


def test_metadata_is_merged_key_by_key() -> None:
    """Objects merge, anything else replaces; keys that JavaScript refuses are skipped in a merge."""
    folded = MessageBuilder()
    for metadata in (
        "text",
        {"a": [1], "__proto__": 1},
        {"a": [2], "b": None, "__proto__": 2, "constructor": 3},
        None,
    ):
        folded.apply(event("message-metadata", messageMetadata=metadata))
    assert folded.message.metadata == {"a": [2], "b": None, "__proto__": 1}
    folded.apply(event("finish", messageMetadata=5))
    assert folded.message.metadata == 5


@pytest.mark.parametrize(
    ("one", "name"),
    [
        (event("text-delta", id="9", delta="x"), "9"),
        (event("text-end", id="9"), "9"),
        (event("reasoning-delta", id="9", delta="x"), "9"),
        (event("reasoning-end", id="9"), "9"),
        (event("tool-input-delta", toolCallId="9", inputTextDelta=""), "9"),
        (event("tool-output-available", toolCallId="9"), "9"),
        (event("tool-output-error", toolCallId="9", errorText=""), "9"),
        (event("tool-output-denied", toolCallId="9"), "9"),
        (event("tool-approval-request", toolCallId="9", approvalId="a"), "9"),
        (event("tool-approval-response", approvalId="a", approved=True), "a"),
    ],
)
def test_an_event_for_what_is_not_open_is_an_error(one: StreamEvent, name: str) -> None:
    """The error names type and id, and the message is as it was."""
    folded = fold(event("text-start", id="1"), event("text-delta", id="1", delta="kept"))
    with pytest.raises(StreamStateError) as caught:
        folded.apply(one)
    assert (caught.value.event_type, caught.value.event_id) == (one.type, name)
    assert folded.message.text == "kept"


def test_deltas_are_joined_when_the_message_is_read() -> None:
    """Not before, so that a thousand cost as much as their bytes; halves of a character become one."""
    halves = ["\ud83d", "\ude00"] * 1000
    folded = fold(
        event("text-start", id="0"),
        event("tool-input-start", toolCallId="c", toolName="f"),
        *(event("text-delta", id="0", delta=half) for half in halves),
        *(event("tool-input-delta", toolCallId="c", inputTextDelta=half) for half in halves),
    )
    assert (folded.parts[0].text, folded.parts[1].raw_input) == ("", MISSING)
    text, tool = folded.message.parts
    assert text.text == tool.raw_input == "\U0001f600" * 1000
    assert tool.input is MISSING


def test_data_of_one_id_replaces_the_first_of_them() -> None:
    """If a continued message has two data parts of one id, the first is replaced, as in the AI SDK."""
    begun = Message(id="m", role="assistant", parts=tuple(DataPart(name="x", data=n, id="1") for n in (1, 2)))
    folded = fold(event("data-x", id="1", data=3), message=begun)
    assert [part.data for part in folded.message.parts] == [3, 2]


def approvals(amount: int) -> list[StreamEvent]:
    """Return *amount* calls, the requests to approve them, and the responses."""
    calls = [event("tool-input-available", toolCallId=f"c{n}", toolName="f", input={}) for n in range(amount)]
    asked = [event("tool-approval-request", toolCallId=f"c{n}", approvalId=f"a{n}") for n in range(amount)]
    given = [event("tool-approval-response", approvalId=f"a{n}", approved=True) for n in range(amount)]
    return [*calls, *asked, *given]


def steps_to_fold(events: list[StreamEvent]) -> int:
    """Return how often a function or a generator ran."""
    steps = 0

    def count(frame: object, kind: str, argument: object) -> None:
        nonlocal steps
        steps += kind == "call"

    sys.setprofile(count)
    try:
        fold(*events)
    finally:
        sys.setprofile(None)
    return steps


def test_the_cost_of_approvals_is_linear() -> None:
    """Ten times as many approvals take about ten times as many steps."""
    assert steps_to_fold(approvals(300)) < 11 * steps_to_fold(approvals(30))


def test_a_response_goes_to_the_first_part_that_waits_for_it() -> None:
    """A request that another one replaced, or whose step was reset, gets no response."""
    calls = [event("tool-input-available", toolCallId=id, toolName="f", input={}) for id in "xyz"]
    asked = [event("tool-approval-request", toolCallId=id, approvalId="a") for id in "zxy"]
    folded = fold(*calls, *asked, event("tool-approval-request", toolCallId="x", approvalId="b"))
    response = event("tool-approval-response", approvalId="a", approved=True)
    folded.apply(response)
    states = [part["state"] for part in folded.message.to_wire()["parts"]]
    assert states == ["approval-requested", "approval-responded", "approval-requested"]
    folded.apply(event("reset-step"))
    with pytest.raises(StreamStateError):
        folded.apply(response)
