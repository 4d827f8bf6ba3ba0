"""Answers of any size in shapes that an odd server could send. The cost of a byte may not grow."""

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Event = dict[str, Any]
Maker = Callable[[int], Event]
END = 'data: {"type":"finish"}\n\ndata: [DONE]\n\n'


class Growing(NamedTuple):
    body: Callable[[int], str]
    size: int = 250  # the small one, in which a copy of everything so far for each piece would show
    fed: int | None = None  # bytes that the client gets per read, or None for the network's choice


def raw(unit: str, size: int, before: str = "", after: str = "") -> Growing:
    return Growing(lambda n: before + unit * n + after + END, size)


def answer(events: Callable[[int], Iterable[Event]], size: int = 250) -> Growing:
    return Growing(lambda n: "".join(f"data: {json.dumps(one)}\n\n" for one in events(n)) + END, size)


def turns(*makers: Maker, first: Iterable[Maker] = (), size: int = 250) -> Growing:
    return answer(lambda n: [one(0) for one in first] + [make(i) for i in range(n) for make in makers], size)


def phases(*makers: Maker) -> Growing:
    return answer(lambda n: [make(i) for make in makers for i in range(n)])


def event(kind: str, **fields: Any) -> Maker:
    """Return a maker of events. A field that is "#" has another value in each event."""
    varying = [name for name, value in fields.items() if value == "#"]
    return lambda i: {"type": kind, **fields, **dict.fromkeys(varying, f"n{i}")}


def long(kind: str, before: str, unit: str, size: int = 500) -> Growing:
    begun, key = (BEGUN, "inputTextDelta") if kind == "tool-input" else (TEXT, "delta")
    return answer(
        lambda n: [begun(0), event(f"{kind}-delta", id="t", **C, **{key: before + unit * n})(0)], size
    )


W, C = "word " * 20, {"toolCallId": "c"}
DELTA = 'data: {"type":"text-delta","id":"t","delta":"word "}\n\n'
OPEN, CLOSE = 'data: {"type":"data-row","data":"', '"}\n\n'  # one event on one line
FENCE = "```suggestions\n"
STARTED = 'data: {"type":"text-start","id":"t"}\n\n'
TEXT, MORE = event("text-start", id="t"), event("text-delta", id="t", delta=W)
BEGUN = event("tool-input-start", **C, toolName="search")
PIECE, QUOTE = (event("tool-input-delta", **C, inputTextDelta=text) for text in (W, '{"q":"'))
CALL, CALLS = (event("tool-input-available", toolCallId=c, toolName="search", input={}) for c in ("c", "#"))
PAGE = {"path": "/p", "metadata": {"title": "T"}, "content": W}
OUTPUT = {"results": [PAGE]}
RESULT, RESULTS = (event("tool-output-available", toolCallId=c, output=OUTPUT) for c in ("c", "#"))
ASK = event("tool-approval-request", toolCallId="#", approvalId="a")
GIVEN = event("tool-approval-response", approvalId="a", approved=True)
STEP, STEP_END, STEP_BACK = (event(f"{verb}-step") for verb in ("start", "finish", "reset"))

GROWING = {
    # How the bytes are split into events.
    "one line": raw("x", 500_000, OPEN, CLOSE),
    "one line, in small pieces": raw("x", 8_000, OPEN, CLOSE)._replace(fed=40),
    "one line, not UTF-8": raw("\udcff", 100_000, OPEN, CLOSE),
    "one event of many lines": raw("data: 1,\n", 1_000, 'data: {"type":"later","n":[\n', "data: 1]}\n\n"),
    "comments": raw(":\n", 10_000),
    "empty lines": raw("\n", 20_000),
    "named events": raw("event: x\nid: 7\nretry: 9\n" + DELTA, 500, STARTED),
    "CR LF": raw(DELTA.replace("\n", "\r\n"), 700, STARTED),
    "many ends": raw("data: [DONE]\n\n", 300),
    # How the events become a message.
    "one text": turns(MORE, first=[TEXT], size=700),
    "one text begun again": turns(TEXT, MORE),
    "texts open at once": phases(event("text-start", id="#"), event("text-delta", id="#", delta=W)),
    "tool input": turns(PIECE, first=[BEGUN, QUOTE]),
    "tool input, a result after each": turns(PIECE, RESULT, first=[BEGUN, QUOTE], size=120),
    "tool input begun again": turns(BEGUN, PIECE),
    "tool input of escapes": long("tool-input", '{"q":"', r"\n\u00e9\"", 2_000),
    "tool input of keys": long("tool-input", "{", '"k":[1,{"a":null}],'),
    "tool input, deep": long("tool-input", "", '{"a":[', 1_000),
    "tool calls": phases(CALLS, RESULTS),
    "approvals": phases(CALLS, ASK, GIVEN),
    "data parts": phases(event("data-row", id="#", data=1), event("data-row", id="#", data=2)),
    "a call in every step": turns(STEP, CALL, RESULT, STEP_END),
    "steps taken back": turns(STEP, CALL, event("data-row", id="r", data=1), STEP_BACK),
    "one step taken back": answer(lambda n: [STEP(0), *map(CALLS, range(n)), STEP_BACK(0)]),
    "messages begun anew": turns(event("start", messageId="#"), TEXT),
    "metadata merged": turns(lambda i: event("message-metadata", messageMetadata={"a": {f"k{i}": [1]}})(0)),
    "a thread in every event": turns(event("message-metadata", messageMetadata={"threadId": "t"})),
    "sources": turns(lambda i: event("source-url", sourceId="s", url=f"https://d.test/{i}")(0)),
    "unknown events": turns(event("later", n="#")),
    "one event of many keys": answer(lambda n: [event("data-row", data={f"k{i}": [i] for i in range(n)})(0)]),
    # How the finished text is read.
    "suggestions": long("text", FENCE, "- (Title)[/page]\n"),
    "suggestions, empty lines": long("text", FENCE, "\n", 5_000),
    "suggestions, blocks": long("text", FENCE, "```suggestions\n(T)[/p]\n```\nword\n"),
    "suggestions, links in one line": long("text", FENCE, "](a", 20_000),
}
