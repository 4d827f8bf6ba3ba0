"""What a page sees of a stream: every event is one that ai 5.0.0 accepts, and none names the thread."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("starlette")

from mintlify_async.contrib.relay.page_events import (
    SafeEvents,
    ThreadHider,
    delta_frame,
    frame,
    stored_message_json,
)
from mintlify_async.contrib.relay.refusal_texts import STEP_FAILED_TEXT
from mintlify_async.events import ReasoningDelta, TextDelta

CALL = ("providerExecuted", "dynamic")
# Read from the published package: the fields of each type, the required ones first. Any other is fatal there.
AI_5_0_0: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "start": ((), ("messageId", "messageMetadata")),
    **dict.fromkeys(("start-step", "finish-step", "abort"), ((), ())),
    **dict.fromkeys(("text-start", "reasoning-start"), (("id",), ("providerMetadata",))),
    **dict.fromkeys(("text-delta", "reasoning-delta"), (("id", "delta"), ("providerMetadata",))),
    **dict.fromkeys(("text-end", "reasoning-end"), (("id",), ("providerMetadata",))),
    "tool-input-start": (("toolCallId", "toolName"), CALL),
    "tool-input-delta": (("toolCallId", "inputTextDelta"), ()),
    "tool-input-available": (("toolCallId", "toolName", "input"), (*CALL, "providerMetadata")),
    "tool-output-available": (("toolCallId", "output"), CALL),
    "tool-output-error": (("toolCallId", "errorText"), CALL),
    "source-url": (("sourceId", "url"), ("title", "providerMetadata")),
    "source-document": (("sourceId", "mediaType", "title"), ("filename", "providerMetadata")),
    "file": (("url", "mediaType"), ("providerMetadata",)),
    "data-x": (("data",), ("id", "transient")),
    "message-metadata": (("messageMetadata",), ()),
    "finish": ((), ("messageMetadata",)),
    "error": (("errorText",), ()),
}
OBJECTS = {"messageMetadata"}  # of any type there, but the page's merge throws for what is no object
ANYTHING = {"input", "output", "data"}
BOOLEANS = {"providerExecuted", "dynamic", "transient"}


def accepts(event: dict) -> bool:
    """Say whether ai 5.0.0 accepts *event*."""
    kind = "data-x" if event["type"].startswith("data-") else event["type"]
    if kind not in AI_5_0_0:
        return False
    required, optional = AI_5_0_0[kind]
    if not set(required) <= set(event) <= {"type", *required, *optional}:
        return False
    return all(_fits(name, value) for name, value in event.items())


def _fits(name: str, value: object) -> bool:
    if name in ANYTHING:
        return True
    if name in OBJECTS:
        return isinstance(value, dict)
    if name == "providerMetadata":
        return isinstance(value, dict) and all(isinstance(inner, dict) for inner in value.values())
    return isinstance(value, bool if name in BOOLEANS else str)


def page(*events: dict) -> list[dict]:
    """Return what one page gets for *events*, checked against ai 5.0.0."""
    safe = SafeEvents()
    shown = [made for event in events for made in safe.page(event)]
    assert [event for event in shown if not accepts(event)] == []
    return shown


VALUES: dict[str, Any] = {
    "messageMetadata": {"a": 1},
    "providerMetadata": {"p": {"k": 1}},
    "url": "https://docs.example/a",
    "errorText": STEP_FAILED_TEXT,  # the service's own words about a tool's error are not for readers
    **dict.fromkeys(BOOLEANS, True),
}


LATER = ["code", "filename", "finishReason", "preliminary", "reason", "threadId", "title", "toolMetadata"]


def of_each_kind(*, full: bool) -> list[dict]:
    """Return an event of each kind, with its required fields or with all."""
    return [
        {"type": kind, **{name: VALUES.get(name, name) for name in required + (optional if full else ())}}
        for kind, (required, optional) in AI_5_0_0.items()
    ]


def test_newer_fields_are_left_out():
    """Every field that 5.0.0 knows stays, every other goes; so does null in an optional one."""
    least, most = of_each_kind(full=False), of_each_kind(full=True)
    assert page(*({**dict.fromkeys(LATER, "x"), **event} for event in most)) == most
    assert page(*({**dict.fromkeys(all_), **event} for all_, event in zip(most, least, strict=True))) == least


@pytest.mark.parametrize(
    "event",
    [
        {"type": "tool-output-available", "toolCallId": "c"},
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "t"},
        {"type": "data-x"},
    ],
)
def test_missing_values_become_null(event):
    """The service may leave them out; a page with a newer schema library may not see that."""
    (shown,) = page(event)
    assert shown.items() >= event.items()
    assert None in shown.values()


@pytest.mark.parametrize("kind", ["tool-approval-request", "reset-step", "custom", "reasoning", "next-years"])
def test_unknown_types_become_transient_data(kind):
    """A page that listens can use them, and every other page ignores them."""
    assert page({"type": kind, "a": 1, "transient": False}) == [
        {"type": f"data-mintlify-{kind}", "data": {"a": 1, "transient": False}, "transient": True}
    ]


def test_a_tool_input_error_is_told_in_older_words():
    """5.0.0 does not know the type, and would throw at the result that follows it."""
    call = {"toolCallId": "c", "toolName": "t"}
    assert page({"type": "tool-input-error", **call, "input": 1, "errorText": "no"}) == [
        {"type": "tool-input-available", **call, "input": 1, "providerExecuted": True},
        {"type": "tool-output-error", "toolCallId": "c", "errorText": STEP_FAILED_TEXT},
    ]


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "java\tscript:x", "vbscript:x", "data:text/html,x", "/" * 2001]
)
def test_sources_lead_to_the_web(url):
    """A page that makes links of them runs no script; its next question would be refused for it."""
    source = {"type": "source-url", "sourceId": "s", "url": url}
    assert page(source) == []
    assert page({**source, "url": "/login#sso"}) == [{**source, "url": "/login#sso"}]
    assert page({"type": "file", "mediaType": "a/b", "url": "javascript:x"}) == []
    assert SafeEvents().page({**source, "url": "/a", "title": "t" * 1001}) == [{**source, "url": "/a"}]


@pytest.mark.parametrize("part", ["text", "reasoning"])
def test_parts_do_not_stay_open_over_a_step(part):
    """Releases 5 and 6 forget them there, and throw at the next delta; 7 goes on with them."""
    start, delta, end = ({"type": f"{part}-{step}", "id": "0"} for step in ("start", "delta", "end"))
    delta["delta"] = "Hi"
    step = {"type": "finish-step"}
    assert page(start, delta, step, delta, end, end) == [start, delta, end, step, start, delta, end]


def test_a_result_is_looked_for_where_its_call_is():
    """Release 5 finds a dynamic call only when the result says ``dynamic``, too."""
    call = {"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": 1, "dynamic": True}
    result = {"type": "tool-output-available", "toolCallId": "c", "output": 1}
    assert page(call, result) == [call, {**result, "dynamic": True}]
    plain = {name: value for name, value in call.items() if name != "dynamic"}
    assert page(plain, {**result, "dynamic": True}) == [plain, result]


def test_a_message_is_named_once():
    """A second id would leave a second message on the page."""
    shown = page({"type": "start", "messageId": "a"}, {"type": "start", "messageId": "b"})
    assert shown == [{"type": "start", "messageId": "a"}, {"type": "start"}]


@pytest.mark.parametrize("odd", ["", "x" * 201, "a\nb"])
def test_an_id_that_a_store_would_refuse_is_left_out(odd):
    """The page then makes an id, with which it can name the message later."""
    assert page({"type": "start", "messageId": odd}) == [{"type": "start"}]
    shown = page({"type": "start", "messageId": odd}, {"type": "start", "messageId": "b"})
    assert shown == [{"type": "start"}, {"type": "start", "messageId": "b"}]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = sorted({name for required, optional in AI_5_0_0.values() for name in (*required, *optional)})
EVENTS = st.builds(
    lambda kind, fields: {**fields, "type": kind},
    st.sampled_from([*AI_5_0_0, "data-", "tool-input-error", "custom"]) | st.text(max_size=5),
    st.dictionaries(st.sampled_from([*NAMES, "data", "id", "transient", "x"]), JSON | st.text(max_size=2)),
)


@given(st.lists(EVENTS, max_size=20))
def test_whatever_comes_the_page_accepts(events):
    """Any events, in any order, with any fields."""
    page(*events)


@given(EVENTS)
def test_every_frame_is_one_line_of_strict_json(event):
    """No infinity, no raw line end, no byte beyond ASCII; it reads back as it was."""
    made = frame(event)
    assert made.startswith(b"data: ")
    assert made.endswith(b"\n\n")
    assert b"\n" not in made[:-2]
    assert b"\r" not in made
    json.loads(made[6:].decode("ascii"), parse_constant=pytest.fail)


@given(st.sampled_from([TextDelta, ReasoningDelta]), st.text(), st.text(), st.text(max_size=8))
def test_the_short_way_of_a_delta_shows_the_same(kind, id, text, hidden):
    """Byte for byte what the long way shows, or nothing: then the long way is taken."""
    hider, events = ThreadHider(), SafeEvents()
    hider.learn(hidden, "thread-77")
    for name in (id, "0", "thread-77"):
        events.page({"type": kind(id="", delta="").type.replace("delta", "start"), "id": name})
    for delta in (text, f"{text}{hidden}", "on thread-77", "\ud83d", '"threadId"', "mint_dsc_0123456789"):
        event = kind(id=id, delta=delta)
        assert delta_frame(event, events, hider) in (None, frame(event.to_wire(), hider))
    assert delta_frame(kind(id="0", delta="on thread-77"), events, hider) is None
    assert delta_frame(kind(id="thread-77", delta=""), events, hider) is None
    assert delta_frame(kind(id="0", delta="a", provider_metadata={"p": {}}), events, hider) is None
    assert delta_frame(kind(id="0", delta="a", extra={"later": 1}), events, hider) is None
    assert delta_frame(kind(id="0", delta="Hi"), events, ThreadHider()) is not None
    assert delta_frame(kind(id="0", delta="Hi"), SafeEvents(), ThreadHider()) is None  # no part is open


def shown(event: dict) -> dict:
    return json.loads(frame(event)[6:])


def test_frames_hold_nothing_that_a_parser_refuses():
    """The page's JSON parser takes these names for an attack and ends the answer."""
    data = {"__proto__": 1, "constructor": {"prototype": 1}, "in": [{"__proto__": {}}], "up": float("inf")}
    assert shown({"type": "data-x", "data": data}) == {"type": "data-x", "data": {"in": [{}], "up": None}}
    number = {"type": "data-x", "data": [float("inf"), {"down": float("-inf")}, float("nan"), 1.5]}
    assert shown(number)["data"] == [None, {"down": None}, None, 1.5]
    harmless = {"type": "data-x", "data": {"constructor": "prototype"}}
    assert shown(harmless) == harmless


@pytest.mark.parametrize("before", ["", "\n", "\t", "é", '"', "Bearer "])
@pytest.mark.parametrize("key", ["mint_dsc_0123456789abcdef", "mint_dsc_abc-def-0123456789"])
def test_service_keys_are_masked_wherever_they_begin(before, key):
    """After a line's end as after a space, and to their last character; but not in the answer's prose."""
    text = shown({"type": "data-x", "data": f"a peppermint_flavoured key:{before}{key}!"})["data"]
    assert text == f"a peppermint_flavoured key:{before}mint_****!"
    prose = {"type": "text-delta", "id": "0", "delta": f"export KEY={before}{key}"}
    assert shown(prose) == prose


@pytest.mark.parametrize("name", ["threadId", "threadKey", "thread_id", "X-Thread-Key", "THREADID"])
def test_thread_names_are_taken_out_at_any_depth(name):
    """Wherever the service puts it, and before any value is known."""
    event = {"type": "data-x", name: "t", "data": [{"a": {name: {"x": 1}, "b": 2}}]}
    assert ThreadHider().hide(event) == {"type": "data-x", "data": [{"a": {"b": 2}}]}


@pytest.mark.parametrize("value", ["thread-77", 'quo"te\\back', "naïve-thréad", "nthread\n"])
def test_thread_values_are_taken_out_of_texts(value):
    """Of keys and values; text that only looks alike in JSON stays as it is."""
    hider = ThreadHider()
    hider.learn(value, None)
    event = {"type": "data-x", "data": [f"<{value}>", {value: f"{value}{value}"}, f"a\\{value[1:]}"]}
    hidden = hider.hide(event)
    assert value not in json.dumps(hidden, ensure_ascii=False).replace("\\\\", "\\").replace('\\"', '"')
    assert hidden["data"][0] == "<****>"
    assert hidden["data"][2] == event["data"][2]


def test_short_thread_ids_leave_the_prose_alone():
    """An id such as "7" is hidden where it is the whole, and stays in "2027"."""
    hider = ThreadHider()
    hider.learn("7")
    assert hider.hide({"type": "data-x", "data": ["7", "2027"]})["data"] == ["****", "2027"]


STORED = [
    {"type": "step-start"},
    {"type": "reasoning", "text": "mint_0123456789", "id": "0"},
    {"type": "tool-x", "toolCallId": "c", "state": "output-error", "errorText": "mint_0123456789"},
    {"type": "dynamic-tool", "toolName": "x", "toolCallId": "d", "state": "input-available", "input": None},
    {"type": "source-url", "sourceId": "s", "url": "/a", "title": "thread-77"},
    {"type": "source-document", "sourceId": "s", "mediaType": "a/b", "title": "t"},
    {"type": "file", "mediaType": "image/png", "url": "https://docs.example/a.png"},
    {"type": "data-x", "data": {"threadKey": "k", "a": 1}, "id": "1"},
    {"type": "text", "text": "mint_0123456789 is not masked", "state": "done"},
    {"type": "source-url", "sourceId": 1, "url": "/a"},
    {"type": "file", "mediaType": "image/png", "url": "javascript:x"},
    {"type": "custom", "kind": "a.b"},
]


def test_a_stored_message_is_what_its_events_were():
    """What is dropped, masked and hidden of the events is so of the stored parts."""
    hider = ThreadHider()
    hider.learn("thread-77")
    message = {"id": "m", "role": "assistant", "metadata": {"a": "mint_0123456789"}, "parts": STORED}
    safe = json.loads(stored_message_json(message, SafeEvents(), hider))
    assert list(safe) == ["id", "role", "metadata", "parts"]
    assert safe["metadata"] == {"a": "mint_****"}
    assert [part["type"] for part in safe["parts"]] == [part["type"] for part in STORED[:-3]]
    assert safe["parts"][1] == STORED[1]
    assert safe["parts"][2]["errorText"] == STEP_FAILED_TEXT
    assert safe["parts"][4]["title"] == "****"
    assert safe["parts"][7] == {"type": "data-x", "data": {"a": 1}, "id": "1"}
    assert safe["parts"][8] == STORED[8]
