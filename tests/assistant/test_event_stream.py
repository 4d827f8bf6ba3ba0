"""The whole of an answer: the oracle's scenarios, every split, every cut, the end, the thread."""

from __future__ import annotations

import json
import os
import re
import traceback
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mintlify_async.assistant import sse
from mintlify_async.assistant.event_stream import DeltaDecoder, MessageStream
from mintlify_async.assistant.message_builder import MessageBuilder
from mintlify_async.errors import (
    APIConnectionError,
    AssistantError,
    MintlifyError,
    StreamDecodeError,
    StreamError,
    StreamInterruptedError,
    StreamStateError,
    UnexpectedResponseError,
)
from mintlify_async.messages import Message
from mintlify_async.model.thread import Thread
from tests.support.oracle_data import (
    BIG_INTEGERS,
    LENIENT,
    NEVER_AVAILABLE,
    OLDER_QUIRKS,
    ORACLE,
    Scenario,
    joined,
    scenarios,
    without_streamed_inputs,
)
from tests.support.parsed_events import parse_event
from tests.support.secret_guard import Keys, reprs

ALL = [scenario for version in ("v7", "v6", "v5") for scenario in scenarios(version)]
LATEST = scenarios("v7")


class Outcome:
    """What came of a body: events, message, error."""

    def __init__(self, stream: MessageStream, *pieces: bytes, cause: str | None = None) -> None:
        self.stream = stream
        self.events: list[dict[str, Any]] = []
        self.error: MintlifyError | None = None
        try:
            for piece in pieces:
                stream.feed(piece)
                self.drain()
            stream.feed_eof(cause and APIConnectionError(cause))
            self.drain()
        except MintlifyError as error:
            self.error = error
        assert stream.ended
        assert stream.next_event() is None
        self.message = stream.message.to_wire()

    def drain(self) -> None:
        while (event := self.stream.next_event()) is not None:
            self.events.append(event.to_wire())
            assert self.stream.events_seen == len(self.events)

    def summary(self) -> tuple[Any, ...]:
        return self.events, self.message, type(self.error), str(self.error)


def run(scenario: Scenario, *pieces: bytes) -> Outcome:
    initial = Message.from_wire(scenario.initial) if scenario.initial else None
    return Outcome(MessageStream(message=initial), *(pieces or (scenario.body,)))


def in_reads_of(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


def body_of(*chunks: Any) -> bytes:
    return b"".join(
        b"data: %s\n\n" % (chunk if isinstance(chunk, str) else json.dumps(chunk)).encode()
        for chunk in chunks
    )


TEXT = [
    {"type": "start", "messageId": "m"},
    {"type": "text-start", "id": "0"},
    {"type": "text-delta", "id": "0", "delta": "Hello"},
]
FINISH = {"type": "finish", "finishReason": "stop"}


# The oracle -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ALL, ids=[scenario.id for scenario in ALL])
def test_oracle_scenario(scenario: Scenario) -> None:
    """The same events, the same snapshots and the same message as JavaScript's, and the right verdict."""
    outcome = run(scenario)
    if scenario.name in LENIENT and not all(entry["ok"] for entry in scenario.chunks):
        assert outcome.error is None
        accepted = [chunk["chunk"] if chunk["ok"] else None for chunk in scenario.chunks]
        if scenario.name == "raw-empty-data-event":
            accepted.remove(None)
        assert len(outcome.events) == len(accepted)
        assert all(mine == theirs for mine, theirs in zip(outcome.events, accepted, strict=True) if theirs)
        return
    mine, theirs = compared(scenario, outcome)
    if scenario.name in OLDER_QUIRKS[scenario.version]:
        assert mine != theirs, "it folds alike: take it off the list"
    else:
        assert mine == theirs


def compared(scenario: Scenario, outcome: Outcome) -> tuple[Any, Any]:
    """Return what came, and what was to come, in the same form."""
    same = partial(joined, doubles=scenario.name in BIG_INTEGERS)
    events, error = expected_end(scenario, outcome)
    message = scenario.message
    if scenario.name in NEVER_AVAILABLE:
        message = without_streamed_inputs(outcome.message, message, last=True)
        assert scenario.version != "v7" or message != scenario.message, "it folds alike: take it off the list"
    ours, snapshots = [], []
    messages = messages_after_each_event(scenario)
    for entry in scenario.snapshots or []:
        if entry["after_chunk"] <= len(outcome.events):
            ours.append(messages[entry["after_chunk"]])
            snapshots.append(without_streamed_inputs(ours[-1], entry["message"], last=False))
    mine = (outcome.events, outcome.message, ours)
    theirs = (events, message, snapshots)
    return (same(list(mine)), type(outcome.error)), (same(list(theirs)), error)


def expected_end(scenario: Scenario, outcome: Outcome) -> tuple[list[dict[str, Any]], type[Any]]:
    """Say which events JavaScript takes before it stops, and which error stands for its stopping."""
    events: list[dict[str, Any]] = []
    for entry in scenario.chunks:
        if not entry["ok"]:
            return events, StreamDecodeError
        if isinstance(outcome.error, StreamStateError) and len(events) == len(outcome.events):
            return events, StreamStateError  # the message, compared too, says that it stopped here
        events.append(entry["chunk"])
        if entry["chunk"]["type"] == "error":
            return events, AssistantError
    ended = outcome.stream.complete
    foreign = scenario.name.endswith(("html-200", "ndjson", "plain-text-body", "v4-data-stream", "pretty"))
    return events, type(None) if ended else UnexpectedResponseError if foreign else StreamInterruptedError


def by_name(scenario: Scenario) -> object:
    """Return the scenario as a case; the longest one takes more than ten seconds on a busy machine."""
    long = scenario.name.endswith("long-text")
    return pytest.param(scenario, id=scenario.name, marks=pytest.mark.sweep if long else ())


@pytest.mark.parametrize("scenario", [by_name(scenario) for scenario in LATEST])
def test_any_split_gives_the_same(scenario: Scenario) -> None:
    """The bytes in reads of 1, 3 or 17, or split in two anywhere, make the same events and message.

    A split reaches nothing but the framing; so the many splits in two are compared there, and
    the whole outcome at some of them.
    """
    whole = run(scenario).summary()
    for size in (1, 3, 17):
        assert run(scenario, *in_reads_of(scenario.body, size)).summary() == whole
    framed = framing_of(scenario.body)
    for at in range(len(scenario.body) + 1):
        assert framing_of(scenario.body[:at], scenario.body[at:]) == framed
    for at in range(0, len(scenario.body), 61 + len(scenario.body) // 4):
        assert run(scenario, scenario.body[:at], scenario.body[at:]).summary() == whole


def framing_of(*pieces: bytes) -> tuple[Any, ...]:
    decoder = sse.SSEDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events, decoder.close(), decoder.foreign_seen, decoder.data_seen


def cuts(body: bytes) -> list[int]:
    """Return every byte of a short body. Of a longer one, without SWEEPS=whole, those between two events."""
    if len(body) <= 300 or os.environ.get("SWEEPS") == "whole":
        return list(range(len(body)))
    borders = {
        at for end in re.finditer(rb"[\r\n]{2,4}", body) for at in range(end.start() - 3, end.end() + 4)
    }
    step = 7 if len(body) <= 4000 else 101
    return [at for at in range(len(body)) if at % step == 0 or (step == 7 and at in borders)]


@pytest.mark.parametrize("scenario", LATEST, ids=[scenario.name for scenario in LATEST])
def test_any_cut_is_complete_or_an_error(scenario: Scenario) -> None:
    """Cut at any byte: the whole outcome, or an interruption with the fold of exactly the events before."""
    whole = run(scenario)
    messages = messages_after_each_event(scenario)
    for at in cuts(scenario.body):
        cut = run(scenario, scenario.body[:at])
        count = min(whole_events(scenario.body[:at]), len(whole.events))
        assert cut.events == whole.events[:count]
        # No delta follows, so half of a character at the end of a text stays half.
        message = joined(messages[count], halves="replace")
        assert cut.message == message
        if cut.error is None:
            assert cut.stream.complete
            continue
        assert type(cut.error) in (StreamInterruptedError, type(whole.error))
        if isinstance(cut.error, StreamError):
            assert cut.error.events_seen == count
            assert cut.error.partial is None or cut.error.partial.to_wire() == message
            assert not cut.stream.complete or type(cut.error) is not StreamInterruptedError


def messages_after_each_event(scenario: Scenario) -> list[dict[str, Any]]:
    """Return the message before the first event, and after each."""
    stream = MessageStream(message=Message.from_wire(scenario.initial) if scenario.initial else None)
    stream.feed(scenario.body)
    stream.feed_eof()
    messages = [stream.message.to_wire()]
    with suppress(MintlifyError):
        while stream.next_event() is not None:
            messages.append(stream.message.to_wire())
    return messages


def whole_events(body: bytes) -> int:
    """Count the events that are whole in *body*, the last one also without its blank line."""
    events, last, _, _ = framing_of(body)
    events = [event for event in events if event]
    with suppress(ValueError):
        events += [last] if last == "[DONE]" or isinstance(json.loads(last or ""), dict) else []
    return sum(event != "[DONE]" for event in events)


# The end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [FINISH, {"type": "abort"}, "[DONE]"])
@pytest.mark.parametrize("cause", [None, "connection lost"])
def test_an_announced_end_is_the_end(end: Any, cause: str | None) -> None:
    """After finish, abort or [DONE], a cut is a normal end, and half an event behind it is nothing."""
    for rest in (b"", b'data: {"type":"te', b": comment", b"data"):
        outcome = Outcome(MessageStream(), body_of(*TEXT, end) + rest, cause=cause)
        assert outcome.error is None
        assert outcome.stream.text == "Hello"
        assert outcome.stream.complete


def test_events_after_the_end_still_count() -> None:
    """Neither finish nor [DONE] ends anything: what follows is folded, a later reason wins."""
    more = {**TEXT[2], "delta": " again"}, {**FINISH, "finishReason": "length"}
    outcome = Outcome(MessageStream(), body_of(*TEXT, FINISH, "[DONE]", *more))
    assert (outcome.stream.text, outcome.stream.finish_reason) == ("Hello again", "length")


@pytest.mark.parametrize("end", [b"", b"\n", b"\r", b"\r\n"])
def test_an_unterminated_last_event_is_delivered(end: bytes) -> None:
    """The last event without its blank line counts when it is whole; here it carries the thread."""
    for last, thread in (('{"type":"finish","threadId":"t"}', Thread("t")), ("[DONE]", None)):
        outcome = Outcome(MessageStream(), body_of(*TEXT) + b"data: " + last.encode() + end)
        assert (outcome.error, outcome.stream.thread) == (None, thread)


@pytest.mark.parametrize("events", [TEXT, TEXT[1:]], ids=["start", "no start"])
@pytest.mark.parametrize("cause", [None, "connection lost"])
@pytest.mark.parametrize(
    "rest", [b"", b'data: {"type":"finish"', b"data: [DON", b"data: ", b"data: 12", b": x\n\n"]
)
def test_an_end_that_was_not_announced_is_an_interruption(
    rest: bytes, cause: str | None, events: Any
) -> None:
    """The error has the message so far, its text, the thread, and the number of events."""
    stream = MessageStream(thread=Thread("t", "secret"))
    outcome = Outcome(stream, body_of(*events) + rest, cause=cause)
    error = outcome.error
    assert type(error) is StreamInterruptedError
    assert (error.text, error.events_seen, error.thread) == ("Hello", len(events), Thread("t", "secret"))
    assert error.partial == stream.message
    assert f"after {len(events)} events" in str(error)
    assert (cause or "before its end") in str(error)


NOTHING = [b"", b"\n\n", b": stream-open\n\n", b"id: 1\n\n", b"\xef\xbb"]
CUT_NAMES = [b"dat", b"e", b"event", b"retry", b"\xef\xbb\xbfda"]


@pytest.mark.parametrize("body", NOTHING + CUT_NAMES)
def test_an_empty_answer_is_an_interruption(body: bytes) -> None:
    """The body is empty, has no data, or ends within or right after the name of its first field."""
    outcome = Outcome(MessageStream(), body)
    assert type(outcome.error) is StreamInterruptedError
    assert outcome.error.partial is None
    assert outcome.error.text == ""


OLD_BODIES = [
    json.loads(path.read_text(encoding="utf-8"))["body"]["text"].encode()
    for path in sorted((ORACLE / "v4").glob("*.json"))
]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<!doctype html><p>Sorry</p>", "an HTML page"),
        (b"\xef\xbb\xbf<html>\n", "an HTML page"),
        (b'{"error": "no credits", "threadKey": "secret"}', "a JSON document"),
        (b"[\n1\n]", "a JSON document"),
        (b'{"type":"start"}\n{"type":"finish"}\n', "a JSON document"),
        (b"Service unavailable", "plain text"),
        (b": comment\nid: 3\n data: 1\n", "plain text"),
        (b"Data: 1\n\n", "plain text"),
        *((body, "the AI SDK 4 data stream") for body in OLD_BODIES),
        (b'0:"Hel', "the AI SDK 4 data stream"),
    ],
)
@pytest.mark.parametrize("cause", [None, "connection lost"])
def test_a_body_that_is_no_event_stream(body: bytes, kind: str, cause: str | None) -> None:
    """A page, a document, plain text or the v1 endpoint's format is said to be that, with an excerpt."""
    for pieces in ([body], in_reads_of(body, 1)):
        outcome = Outcome(MessageStream(), *pieces, cause=cause)
        assert type(outcome.error) is UnexpectedResponseError
        assert kind in str(outcome.error)
        assert ("ask the v2 endpoint" in str(outcome.error)) is kind.startswith("the AI SDK 4")
        assert outcome.error.excerpt
        assert "secret" not in outcome.error.excerpt + str(outcome.error)
        assert outcome.events == []


@pytest.mark.parametrize(
    ("given", "text", "words"),
    [
        ({}, "", "it did not say why"),
        ({"errorText": None}, "", "it did not say why"),
        ({"errorText": {"message": "no credits"}}, "no credits", "no credits"),
        ({"error": "no credits"}, "no credits", "no credits"),
        ({"error": {"type": "x_error", "message": "no credits"}}, "no credits", "no credits"),
        ({"errorText": "", "message": "no credits"}, "no credits", "no credits"),
        ({"errorText": None, "errors": [{"code": 1, "detail": "no credits"}]}, "no credits", "no credits"),
        ({"errorText": 17}, '{"errorText": 17}', '{"errorText": 17}'),
        ({"code": "no_credits"}, '{"code": "no_credits"}', '{"code": "no_credits"}'),
        ({"errorText": ["no credits", "half \ud83d"]}, "no credits; half \ufffd", "no credits; half \ufffd"),
        ({"errorText": "failed", "hint": "no credits"}, "failed; no credits", "failed; no credits"),
        ({"errorText": "no\ncredits"}, "no\ncredits", r"no\ncredits"),
    ],
)
def test_an_error_event_is_an_error_of_the_assistant(given: dict[str, Any], text: str, words: str) -> None:
    """The event comes first, then the error, also without a text; what follows it is never seen."""
    outcome = Outcome(MessageStream(), body_of(*TEXT, {"type": "error", **given}, {**TEXT[2], "delta": "!"}))
    assert type(outcome.error) is AssistantError
    assert (outcome.error.error_text, outcome.error.text) == (text, "Hello")
    assert str(outcome.error) == f"the assistant failed: {words}"
    sent = {name: value for name, value in given.items() if value is not None}
    assert outcome.events[-1] == joined({"type": "error", "errorText": "", **sent}, halves="replace")
    assert outcome.stream.complete
    assert outcome.stream.next_event() is None


def test_the_words_of_an_error_event_show_no_key() -> None:
    """Also where the words would be cut in the middle of it, and in fields of any name."""
    for fields in (
        {"error": {"message": "x" * 190 + " tk/Secret+Key"}},
        {"code": "tk/Secret+Key", "threadKey": "tk/Secret+Key"},
    ):
        stream = MessageStream(thread=Thread("t", "tk/Secret+Key"))
        outcome = Outcome(stream, body_of({"type": "error", **fields}))
        assert type(outcome.error) is AssistantError
        for text in (str(outcome.error), outcome.error.error_text, *map(str, outcome.error.args)):
            assert "tk/" not in text
            assert "Secret" not in text


# Broken events ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        '{"type":"text-delta","id":"0","delta":NaN}',
        '{"type":"text-delta","id":["0"],"delta":"x"}',
        '{"type":"data-x","data":' + "[" * 100_000,
    ],
)
def test_a_broken_event_is_an_error(bad: str) -> None:
    """Everything before is delivered; the error says which event, with what had arrived."""
    outcome = Outcome(MessageStream(), body_of(*TEXT, bad, FINISH))
    error = outcome.error
    assert type(error) is StreamDecodeError
    assert (error.index, error.events_seen, error.text) == (3, 3, "Hello")
    assert bad.startswith(error.excerpt[:100])
    assert len(outcome.events) == 3


def test_a_large_body_that_is_no_event_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless page is said to be a page, not an event that is too large."""
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    outcome = Outcome(MessageStream(), b"<html>" + b"x" * 5000)
    assert type(outcome.error) is UnexpectedResponseError
    assert len(outcome.error.excerpt) <= 2000


def test_a_twenty_megabyte_line_is_refused_and_ten_megabytes_pass() -> None:
    """The default bound is 16 MiB."""
    large = b'data: {"type":"data-x","data":"' + b"x" * 10_000_000 + b'"}\n\n'
    outcome = Outcome(MessageStream(), *in_reads_of(large + body_of(FINISH), 1 << 20))
    assert outcome.error is None
    outcome = Outcome(MessageStream(), *in_reads_of(b"data: " + b"x" * 20_000_000, 1 << 20))
    assert type(outcome.error) is StreamDecodeError


# The thread -------------------------------------------------------------------------------------

ID, KEY = "threadId", "threadKey"


@pytest.mark.parametrize(
    ("events", "headers", "sent", "expected"),
    [
        ([FINISH], {}, None, None),
        ([{**FINISH, ID: "a"}], {}, None, Thread("a")),
        ([{**FINISH, ID: "a", KEY: "k"}], {}, None, Thread("a", "k")),
        ([{**FINISH, "messageMetadata": {ID: "a", KEY: "k"}}], {}, None, Thread("a", "k")),
        ([{**FINISH, ID: "a", "messageMetadata": {KEY: "k"}}], {}, None, Thread("a", "k")),
        ([{**FINISH, ID: "a", "messageMetadata": {ID: "b", KEY: "k"}}], {}, None, Thread("a")),
        ([{"type": "start", "messageMetadata": {ID: "a", KEY: "k"}}, FINISH], {}, None, Thread("a", "k")),
        ([{"type": "thread", ID: "a", KEY: "k"}, FINISH], {"id": "h"}, None, Thread("a", "k")),
        ([{"type": "thread", ID: "a", KEY: "k"}, {**FINISH, ID: "b"}], {}, None, Thread("b")),
        ([FINISH], {"id": "h", "key": "hk"}, None, Thread("h", "hk")),
        ([{**FINISH, ID: "a"}], {"id": "h", "key": "hk"}, None, Thread("a")),
        ([{**FINISH, ID: "h"}], {"id": "h", "key": "hk"}, None, Thread("h", "hk")),
        ([{**FINISH, ID: "a"}], {"key": "hk"}, None, Thread("a", "hk")),
        ([{**FINISH, ID: "a", KEY: "k"}], {"id": "a", "key": "hk"}, None, Thread("a", "k")),
        ([{**FINISH, ID: None, KEY: 5}], {"id": "", "key": ""}, None, None),
        ([{**FINISH, KEY: "k"}], {}, None, None),
        ([{**FINISH, "messageMetadata": {ID: 7, KEY: 8}}], {}, None, None),
        ([{**FINISH, ID: 7, "messageMetadata": {ID: "a", KEY: 8}}], {}, None, Thread("a")),
        ([{**FINISH, "messageMetadata": [ID]}], {}, Thread("a", "k"), Thread("a", "k")),
        ([{**FINISH, ID: "a", KEY: "new"}], {}, Thread("a", "k"), Thread("a", "k")),
        ([{**FINISH, ID: "b"}], {}, Thread("a", "k"), Thread("b")),
        ([{**FINISH, ID: "b", KEY: "bk"}], {}, Thread("a", "k"), Thread("b", "bk")),
        ([{**FINISH, ID: "a", KEY: "new"}], {}, Thread("a"), Thread("a", "new")),
        ([FINISH], {"key": "hk"}, Thread("a"), Thread("a", "hk")),
        ([FINISH], {"id": "b", "key": "hk"}, Thread("a", "k"), Thread("b", "hk")),
    ],
)
def test_where_the_thread_is_found(
    events: list[Any], headers: dict[str, str], sent: Thread | None, expected: Thread | None
) -> None:
    """The best place wins; a key is taken only with the id that it came with; the sent key stays."""
    stream = MessageStream(thread=sent)
    stream.begin(headers, ("id", "key"))
    outcome = Outcome(stream, body_of(*events))
    assert outcome.error is None
    found = stream.thread
    assert found == expected
    assert (found and found.key) == (expected and expected.key)
    for key in ("k", "hk", "bk", "new"):
        assert f'"{key}"' not in json.dumps([outcome.events, outcome.message])


def test_no_error_shows_a_known_key() -> None:
    """A key known from a header or from the request is masked wherever the server repeats it."""
    said = "hk and sk"
    answers = '{"type":"x","say":"hk and sk"', {"type": "error", "errorText": said}
    for body in (*(body_of(*TEXT, last) for last in answers), b"<p>hk and sk</p>"):
        stream = MessageStream(thread=Thread("t", "sk"))
        stream.begin({"id": "t", "key": "hk"}, ("id", "key"))
        error = Outcome(stream, body, cause=said).error
        assert isinstance(error, StreamError | UnexpectedResponseError)
        shown = str(error) + repr(vars(error))
        assert "hk" not in shown
        assert "sk" not in shown


# Whatever comes ---------------------------------------------------------------------------------


@example([b"\x80" * 80])  # each becomes a character of three bytes: over the bound, seen at the end only
@given(st.lists(st.binary(max_size=60), max_size=8))
def test_arbitrary_bytes_raise_only_our_errors(pieces: list[bytes]) -> None:
    """Bytes from anywhere end in an event, an end, or an error of this package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sse, "MAX_EVENT_BYTES", 200)
        Outcome(MessageStream(), *pieces)


@settings(max_examples=150)
@given(st.data())
def test_mutations_of_real_streams_raise_only_our_errors(data: st.DataObject) -> None:
    """Real bodies with bytes changed, dropped, doubled: typed errors, valid JSON, the same in any reads."""
    body = bytearray(data.draw(st.sampled_from(LATEST)).body[:4000])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(0, len(body) - 1)))
        match data.draw(st.sampled_from(["change", "drop", "insert", "double"])):
            case "change" if body:
                body[at] = data.draw(st.integers(0, 255))
            case "drop":
                del body[at : at + data.draw(st.integers(1, 20))]
            case "insert":
                body[at:at] = data.draw(
                    st.sampled_from([b"\n", b"\r", b"\n\n", b"data: ", b"\xff", b"\x00", b'"', b"{"])
                )
            case _:
                body[at:at] = body[at : at + 200]
    whole = Outcome(MessageStream(), bytes(body))
    json.dumps([whole.events, whole.message], allow_nan=False)
    assert Message.from_wire(whole.message).to_wire() == whole.message
    assert Outcome(MessageStream(), *in_reads_of(bytes(body), 5)).summary() == whole.summary()


WRITINGS = (
    lambda event: json.dumps(event),
    lambda event: json.dumps(event, separators=(",", ":")),
    lambda event: json.dumps(dict(reversed(event.items()))),
    lambda event: json.dumps(event | {"more": 1}),
    lambda event: json.dumps(event)[:-1] + ', "delta": "last"}',
    lambda event: json.dumps(event) + " ",
    lambda event: json.dumps(event | {"threadKey": "tk"}),
    lambda event: json.dumps({"type": event["type"], "seq": 7} | event),
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["text", "reasoning"]),
            st.sampled_from(["0", "", 'a"b', "é\\"]),
            st.text(max_size=9),
            st.sampled_from(WRITINGS),
        ),
        max_size=12,
    )
)
def test_short_way_of_deltas_is_the_careful_one(deltas):
    """However a delta is written, whatever came before it: event and fold are the parser's own."""
    parts = dict.fromkeys((kind, id) for kind, id, _, _ in deltas)
    starts = [json.dumps({"type": f"{kind}-start", "id": id}) for kind, id in parts]
    written = [
        write({"type": f"{kind}-delta", "id": id, "delta": delta}) for kind, id, delta, write in deltas
    ]
    events = [*starts, *written]
    fold = MessageBuilder()
    careful = [parse_event(data) for data in events]
    for event in careful:
        fold.apply(event)
    stream = MessageStream()
    stream.feed("".join(f"data: {data}\n\n" for data in events).encode())
    assert list(iter(stream.next_event, None)) == careful
    assert stream.message == fold.message


@pytest.mark.parametrize("kind", ["text", "reasoning"])
def test_plain_deltas_take_the_short_way(kind: str) -> None:
    """As JavaScript writes them; nothing else does."""
    fields = {"type": f"{kind}-delta", "id": "0", "delta": 'a "b"\n'}
    data = json.dumps(fields, separators=(",", ":"))
    others = [data + "x", data[:-1], data[:-1] + ',"more":1}', data.replace("delta", "start", 1)]
    others += [data.replace('"0"', f'"{id}"') for id in ('\\"', "a\tb", '0","id":"1', '0","x":"1')]
    decoder = DeltaDecoder()
    for other in others:
        assert DeltaDecoder().plain_delta(other) is None
        assert decoder.plain_delta(other) is None
        assert decoder.plain_delta(data) == parse_event(data)
        assert vars(decoder.plain_delta(data)) == vars(parse_event(data))


@pytest.mark.parametrize(
    "last",
    [
        '{"type":"error","errorText":"bad key KEY"}',
        '{"type":"tool-input-start","toolName":"KEY"}',
        '{"type":"text-delta","id":"part KEY","delta":"KEY"}',
        '{"type":"text-delta","id":"9","delta":"a","later":"KEY"}',
        '{"type":"finish","threadId":7,"threadKey":"KEY",}',
        '["KEY"]',
        "KEY",
    ],
)
@pytest.mark.parametrize("end", [b"\n\n", b"\n", b""])
@pytest.mark.shows_secrets("an error is masked after it was made, and only then raised")
def test_frames_of_an_error_show_no_key_that_the_answer_repeats(last: str, end: bytes) -> None:
    """Sentry and loguru show the variables of an error's frames: none of them holds what arrived."""
    stream, keys = MessageStream(), Keys()
    stream.begin({}, ("x-thread-id", "x-thread-key"), keys.assistant)
    body = body_of(*TEXT) + b"data: " + last.replace("KEY", keys.assistant).encode() + end
    outcome = Outcome(stream, body)
    error = outcome.error
    assert isinstance(error, StreamError)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = [frame.f_locals for frame in frames if frame.f_globals["__name__"].startswith("mintlify_async")]
    assert len(ours) > 1
    assert keys.assistant not in " ".join(map(reprs, ours))
    assert keys.assistant not in f"{error!r} {vars(error)} {outcome.events}"
