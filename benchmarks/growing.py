"""Answers of any size in shapes that an odd server could send: what a byte costs may not grow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Event = dict[str, Any]
Maker = Callable[[int], Event]
END = [b'data: {"type":"finish"}\n\n', b"data: [DONE]\n\n"]


class Growing(NamedTuple):
    """Makes the body of a size, and says how many events it has.

    *size* is the small one: so large that a copy of everything so far, made for each piece, would show.
    *fed* is how many bytes the client gets per read; None leaves it to the network.
    """

    made: Callable[[int], tuple[bytes, int]]
    size: int
    fed: int | None = None


def raw(unit: str | bytes, size: int, before: str = "", after: str = "", events: int = 0) -> Growing:
    """Return *unit* repeated to *size* bytes; there are as many *events* in each."""
    data = unit.encode() if isinstance(unit, str) else unit

    def made(size: int) -> tuple[bytes, int]:
        body = b"".join([before.encode(), data * (size // len(data)), after.encode(), *END])
        return body, bool(before) + events * (size // len(data)) + 1

    return Growing(made, size)


def answer(events: Callable[[int], Iterable[Event]], size: int = 250) -> Growing:
    """Return the answer of the events that *events* makes."""

    def made(size: int) -> tuple[bytes, int]:
        wire = [f"data: {json.dumps(one, separators=(',', ':'))}\n\n".encode() for one in events(size)]
        return b"".join([*wire, *END]), len(wire) + 1

    return Growing(made, size)


def turns(*makers: Maker, first: tuple[Event, ...] = (), size: int = 250) -> Growing:
    """Return the events *first*, then *size* times one event of each maker."""
    return answer(lambda n: [*first, *(make(i) for i in range(n) for make in makers)], size)


def phases(*makers: Maker) -> Growing:
    """Return many events of the first maker, then as many of the next: all parts are open at once."""
    return answer(lambda n: [make(i) for make in makers for i in range(n)])


def event(kind: str, **fields: Any) -> Maker:
    """Return a maker of events; a field that is "#" has another value in each event."""
    varying = [name for name, value in fields.items() if value == "#"]
    return lambda i: {"type": kind, **fields, **dict.fromkeys(varying, f"n{i}")}


def one(text: str, before: str, size: int) -> Growing:
    """Return a tool's input that comes as one delta, *text* repeated, and is never finished."""
    return answer(
        lambda n: [BEGUN(0), event("tool-input-delta", **C, inputTextDelta=before + text * n)(0)], size
    )


def suggesting(unit: str, size: int) -> Growing:
    """Return a text that holds a block of suggestions, of *unit* repeated."""
    return answer(
        lambda n: [TEXT(0), event("text-delta", id="t", delta="```suggestions\n" + unit * n)(0)], size
    )


def metadata(make: Callable[[int], Any]) -> Growing:
    """Return events that each add metadata to the message."""
    return turns(lambda i: {"type": "message-metadata", "messageMetadata": make(i)})


W, C = "word " * 20, {"toolCallId": "c"}
DELTA = 'data: {"type":"text-delta","id":"t","delta":"word "}\n\n'
OPEN, CLOSE = 'data: {"type":"data-row","data":"', '"}\n\n'  # one event on one line
STARTED = 'data: {"type":"text-start","id":"t"}\n\n'
TEXT, SEARCH = event("text-start", id="t"), {"toolName": "search"}
BEGUN = event("tool-input-start", **C, **SEARCH)
PIECE = event("tool-input-delta", **C, inputTextDelta=W)
QUOTE = event("tool-input-delta", **C, inputTextDelta='{"q":"')
CALL, CALLS = (event("tool-input-available", toolCallId=c, **SEARCH, input={}) for c in ("c", "#"))
PAGE = {"path": "/p", "metadata": {"title": "T"}, "content": W}
RESULT, RESULTS = (
    event("tool-output-available", toolCallId=c, output={"results": [PAGE]}) for c in ("c", "#")
)
ASK = event("tool-approval-request", toolCallId="#", approvalId="a")
GIVEN = event("tool-approval-response", approvalId="a", approved=True)
STEP, STEP_BACK = event("start-step"), event("reset-step")

GROWING = {
    # How the bytes are split into events.
    "one line": raw("x", 500_000, OPEN, CLOSE),
    "one line, in small pieces": raw("x", 60_000, OPEN, CLOSE)._replace(fed=100),
    "one line, not UTF-8": raw(b"\xff\xe2\x82", 100_000, OPEN, CLOSE),
    "one event of many lines": raw("data: 1,\n", 10_000, 'data: {"type":"later","n":[\n', "data: 1]}\n\n"),
    "comments": raw(":\n", 20_000),
    "empty lines": raw("\n", 20_000),
    "named events": raw("event: x\nid: 7\nretry: 9\n" + DELTA, 40_000, STARTED, events=1),
    "CR LF": raw(DELTA.replace("\n", "\r\n"), 40_000, STARTED, events=1),
    "many ends": raw("data: [DONE]\n\n", 4_000),
    # How the events become a message.
    "one text": turns(event("text-delta", id="t", delta=W), first=(TEXT(0),), size=700),
    "texts open at once": phases(event("text-start", id="#"), event("text-delta", id="#", delta=W)),
    "reasonings": phases(event("reasoning-start", id="#"), event("reasoning-delta", id="#", delta=W)),
    "one id begun again": turns(TEXT, event("text-delta", id="t", delta=W)),
    "tool input": turns(PIECE, first=(BEGUN(0), QUOTE(0))),
    "tool input, a result after each": turns(PIECE, RESULT, first=(BEGUN(0), QUOTE(0)), size=120),
    "tool input begun again": turns(BEGUN, PIECE),
    "tool input of escapes": one(r"\n\u00e9\"", '{"q":"', 2_000),
    "tool input of keys": one('"k":[1,{"a":null}],', "{", 500),
    "tool input, deep": one('{"a":[', "", 1_000),
    "tool calls": phases(CALLS, RESULTS),
    "approvals": phases(CALLS, ASK, GIVEN),
    "data parts": phases(event("data-row", id="#", data=1), event("data-row", id="#", data=2)),
    "a call in every step": turns(STEP, CALL, RESULT, event("finish-step")),
    "steps taken back": turns(STEP, CALL, event("data-row", id="r", data=1), STEP_BACK),
    "one step taken back": answer(lambda n: [STEP(0), *map(CALLS, range(n)), STEP_BACK(0)]),
    "messages begun anew": turns(event("start", messageId="#"), TEXT),
    "metadata merged": metadata(lambda i: {"a": {"b": {f"k{i}": [1]}}}),
    "a thread in every event": metadata(lambda i: {"threadId": f"t{i}", "threadKey": "k"}),
    "sources": turns(event("source-url", sourceId="#", url="https://d.test/#")),
    "unknown events": turns(event("later", n="#")),
    "one event of many keys": answer(lambda n: [event("data-row", data={f"k{i}": [i] for i in range(n)})(0)]),
    # How the finished text is read.
    "suggestions": suggesting("- (Title)[/page]\n", 500),
    "suggestions, empty lines": suggesting("\n", 5_000),
    "suggestions, blocks": suggesting("```suggestions\n(T)[/p]\n```\nword\n", 300),
    "suggestions, links in one line": suggesting("](a", 2_000),
}
