"""A shape and a size in; out: the work of framing, reading or folding input of that shape and size.

The shapes are what a server, an odd one or a hostile one can send any amount of. Run under callgrind by
:mod:`benchmarks.growth`: ``python -m benchmarks.shapes`` works on each shape at two sizes, with marks
between them.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

__all__ = ["MARK", "SHAPES", "TIMES", "Run", "Shape", "run_marked"]

TIMES = 8
"""How much larger the large run is."""

PACKET_BYTES = 1448
MARK = "getloadavg"
"""The function of libc that is a mark: nobody else calls it, and callgrind writes its counts there."""

Run = Callable[[], object]
Wire = dict[str, Any]


class Shape(NamedTuple):
    """One shape.

    Args:
        prepare: Makes the input of a size, and returns the work on it.
        size: The small run's size, in bytes of a body, rounds of events, or characters. So small that
            callgrind, fifty times slower than the processor, is done soon; so large that a copy of
            everything so far, made for each piece, would show.
    """

    prepare: Callable[[int], Run]
    size: int


# Framing: bytes come in -----------------------------------------------------------------------------


def frame(data: str, name: str = "data") -> bytes:
    """Return *data* as an event."""
    return f"{name}: {data}\n\n".encode()


DELTA = '{"type":"text-delta","id":"t","delta":"word "}'
EVENT = frame(DELTA)


def events_in(body: bytes) -> int:
    """Return how many events are in *body*, read in the simplest way."""
    text = body.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    blocks = (block.split("\n") for block in text.split("\n\n"))
    return sum(any(line.partition(":")[0] == "data" for line in block) for block in blocks)


def framing(unit: bytes, *, fed: int | None, size: int, before: bytes = b"", after: bytes = b"") -> Shape:
    """Return the shape of *unit* repeated, between *before* and *after*, fed so many bytes at a time."""

    def prepare(n: int) -> Run:
        from mintlify_async.assistant.sse import SSEDecoder

        body = before + unit * (n // len(unit)) + after
        step = fed or len(body)
        pieces = [body[at : at + step] for at in range(0, len(body), step)]
        expected = events_in(body)

        def run() -> None:
            decoder = SSEDecoder(64 * 1024 * 1024)
            found = sum(len(decoder.feed(piece)) for piece in pieces)
            assert found == expected, found
            assert decoder.close() is None

        return run

    return Shape(prepare, size)


LINE: dict[str, bytes] = {"before": b'data: {"type":"', "after": b'"}\n\n'}
NAMED = b"event: x\nid: 7\nretry: 9\n" + EVENT
PRETTY = b'data: {\ndata:   "type": "text-delta",\ndata:   "id": "t",\ndata:   "delta": "word "\ndata: }\n\n'

FRAMINGS = {
    "events, whole": framing(EVENT, fed=None, size=200_000),
    "events, in packets": framing(EVENT, fed=PACKET_BYTES, size=100_000),
    "events, byte by byte": framing(EVENT, fed=1, size=1_500),
    "one line, whole": framing(b"x", fed=None, size=500_000, **LINE),
    "one line, in packets": framing(b"x", fed=PACKET_BYTES, size=500_000, **LINE),
    "one line, byte by byte": framing(b"x", fed=1, size=1_500, **LINE),
    "one line, 100 bytes at a time": framing(b"x", fed=100, size=60_000, **LINE),
    "one line of wide characters": framing("漢🙂".encode(), fed=PACKET_BYTES, size=200_000, **LINE),
    "one line, not UTF-8": framing(b"\xff\xe2\x82", fed=PACKET_BYTES, size=100_000, **LINE),
    "one event of many lines": framing(b"data: 1,\n", fed=PACKET_BYTES, size=10_000, after=b"\n"),
    "one event of many lines, byte by byte": framing(b"data: 1,\n", fed=1, size=1_500, after=b"\n"),
    "one event of empty lines": framing(b"data\n", fed=PACKET_BYTES, size=7_000, after=b"\n"),
    "events of some lines": framing(PRETTY, fed=PACKET_BYTES, size=20_000),
    "comments": framing(b":\n", fed=PACKET_BYTES, size=4_000),
    "empty lines": framing(b"\n", fed=PACKET_BYTES, size=15_000),
    "CR LF": framing(EVENT.replace(b"\n", b"\r\n"), fed=PACKET_BYTES, size=100_000),
    "CR LF, cut between the two": framing(EVENT.replace(b"\n", b"\r\n"), fed=len(EVENT) + 1, size=15_000),
    "CR": framing(EVENT.replace(b"\n", b"\r"), fed=PACKET_BYTES, size=100_000),
    "named events": framing(NAMED, fed=PACKET_BYTES, size=20_000),
    "a byte order mark before each": framing(b"\xef\xbb\xbf" + EVENT, fed=PACKET_BYTES, size=50_000),
    "foreign lines": framing(b"<p>\n", fed=PACKET_BYTES, size=10_000),
}


# Folding: events come in ----------------------------------------------------------------------------


def folding(
    make: Callable[[int], Iterable[Wire]], size: int, *, look: str = "message", before: Wire | None = None
) -> Shape:
    """Return the shape of the events that *make* makes.

    They are parsed beforehand: parsing knows one event at a time, and would hide what the fold costs.
    The run ends with one *look* at the message, or at its ``text`` or ``sources``.
    """

    def prepare(n: int) -> Run:
        from mintlify_async.assistant.decode import parse_event
        from mintlify_async.assistant.message_builder import MessageBuilder
        from mintlify_async.messages import Message

        wire = list(make(n))
        parsed = {id(one): parse_event(json.dumps(one)) for one in {id(one): one for one in wire}.values()}
        events = [parsed[id(one)] for one in wire]
        begun = None if before is None else Message.from_wire({**before, "parts": before["parts"] * n})

        def run() -> None:
            fold = MessageBuilder(begun)
            for event in events:
                fold.apply(event)
            found = fold.sources() if look == "sources" else getattr(fold, look)
            assert found is not None

        return run

    return Shape(prepare, size)


def event(kind: str, **fields: Any) -> Wire:
    """Return an event as the wire has it."""
    return {"type": kind, **fields}


def each(*makers: Callable[[int], Wire]) -> Callable[[int], Iterator[Wire]]:
    """Return *n* events of each maker, one maker after the other."""
    return lambda n: (make(i) for make in makers for i in range(n))


def turns(*makers: Callable[[int], Wire], first: tuple[Wire, ...] = ()) -> Callable[[int], Iterator[Wire]]:
    """Return the events *first*, then *n* times one event of each maker."""
    return lambda n: chain(first, (make(i) for i in range(n) for make in makers))


WORDS = "word " * 20


def text_of(kind: str, word: str = WORDS) -> Callable[[int], Iterator[Wire]]:
    """Return one part of many deltas."""
    return turns(same(f"{kind}-delta", id="t", delta=word), first=(event(f"{kind}-start", id="t"),))


def parts_of(kind: str) -> Callable[[int], Iterator[Wire]]:
    """Return many parts that are open at once."""
    return each(
        lambda i: event(f"{kind}-start", id=f"t{i}"),
        lambda i: event(f"{kind}-delta", id=f"t{i}", delta="word "),
        lambda i: event(f"{kind}-end", id=f"t{i}"),
    )


def same(kind: str, **fields: Any) -> Callable[[int], Wire]:
    """Return a maker of the same event each time."""
    one = event(kind, **fields)
    return lambda i: one


def tool(kind: str, **fields: Any) -> Callable[[int], Wire]:
    """Return a maker of the same event of one call."""
    return same(f"tool-{kind}", toolCallId="c", **fields)


def tools(kind: str, **fields: Any) -> Callable[[int], Wire]:
    """Return a maker of events of many calls."""
    return lambda i: event(f"tool-{kind}", toolCallId=f"c{i}", **fields)


BEGUN = tool("input-start", toolName="search")
PIECE = tool("input-delta", inputTextDelta=WORDS)
RESULT = tool("output-available", output={})
OPENING = (BEGUN(0), event("tool-input-delta", toolCallId="c", inputTextDelta='{"q":"'))
CALL = tool("input-available", toolName="search", input={})
CALLS = tools("input-available", toolName="search", input={})
START_STEP, FINISH_STEP, RESET_STEP = same("start-step"), same("finish-step"), same("reset-step")
STORED: Wire = {
    "id": "m",
    "role": "assistant",
    "parts": [{"type": "tool-search", "toolCallId": "c", "state": "input-available", "input": {}}],
}


def ask(i: int, approval: str = "a", call: str = "c") -> Wire:
    """Return a question for consent."""
    return event("tool-approval-request", toolCallId=call, approvalId=approval)


def answer(approval: str) -> Wire:
    """Return the answer to one."""
    return event("tool-approval-response", approvalId=approval, approved=True)


def found(i: int) -> Wire:
    """Return a search's result: one page."""
    page = {"path": f"/p{i % 50}", "metadata": {"title": "T"}, "content": WORDS}
    return event("tool-output-available", toolCallId=f"c{i}", output={"results": [page]})


def row(i: int) -> Wire:
    """Return a data part of an id of its own."""
    return event("data-row", id=f"r{i}", data=i)


FOLDS = {
    "one text of many deltas": folding(text_of("text"), 1_500),
    "one text of half characters": folding(text_of("text", "\ude00" + WORDS + "\ud83d"), 500),
    "many texts open at once": folding(parts_of("text"), 300),
    "many texts, one after another": folding(
        turns(
            lambda i: event("text-start", id=f"t{i}"),
            lambda i: event("text-delta", id=f"t{i}", delta=WORDS),
            lambda i: event("text-end", id=f"t{i}"),
        ),
        300,
    ),
    "one id begun again and again": folding(
        turns(same("text-start", id="t"), same("text-delta", id="t", delta=WORDS)), 300
    ),
    "many texts, .text looked at": folding(parts_of("text"), 300, look="text"),
    "one reasoning of many deltas": folding(text_of("reasoning"), 1_500),
    "many reasonings open at once": folding(parts_of("reasoning"), 300),
    "one tool input of many deltas": folding(turns(PIECE, first=OPENING), 300),
    "tool inputs, in turn": folding(
        each(
            tools("input-start", toolName="search"),
            tools("input-delta", inputTextDelta='{"q":'),
            tools("input-delta", inputTextDelta='"word'),
        ),
        50,
    ),
    "one tool input begun again and again": folding(turns(BEGUN, PIECE), 150),
    "one tool input, a result after each delta": folding(turns(PIECE, RESULT, first=OPENING), 120),
    # Each step shows as much of the input as it had, as in the AI SDK: the message itself is quadratic.
    "one tool input over many steps, not looked at": folding(
        turns(START_STEP, PIECE, first=OPENING), 300, look="text"
    ),
    "many tool calls": folding(each(CALLS, tools("output-available", output={})), 120),
    "one call, dynamic and not": folding(
        turns(CALL, tool("input-available", toolName="search", input={}, dynamic=True)), 150
    ),
    "one call many times in a stored message": folding(
        turns(tool("input-available", toolName="search", input={}, dynamic=True)), 150, before=STORED
    ),
    "many approvals": folding(
        each(CALLS, lambda i: ask(i, f"a{i}", f"c{i}"), lambda i: answer(f"a{i}")), 250
    ),
    "one approval of many calls": folding(
        lambda n: chain(
            (CALLS(i) for i in range(n)),
            (ask(i, "a", f"c{i}") for i in reversed(range(n))),
            (answer("a") for _ in range(n)),
        ),
        250,
    ),
    "approvals taken back": folding(
        lambda n: chain(
            [CALL(0)],
            (ask(i, "ab"[i % 2]) for i in range(2 * n + 1)),
            (answer("a") for _ in range(n)),
        ),
        300,
    ),
    "many data parts": folding(each(row, row), 250),
    "one data part written again and again": folding(turns(lambda i: event("data-row", id="r", data=i)), 300),
    "many steps": folding(turns(START_STEP, RESULT, FINISH_STEP, first=(CALL(0),)), 500),
    "a call in every step": folding(turns(START_STEP, CALL, RESULT, FINISH_STEP), 250),
    "many steps taken back": folding(
        turns(START_STEP, CALL, same("data-row", id="r", data=1), same("text-start", id="t"), RESET_STEP), 250
    ),
    "one step taken back at the end": folding(
        lambda n: chain([START_STEP(0)], (CALLS(i) for i in range(n)), [RESET_STEP(0)]), 400
    ),
    "messages begun anew": folding(
        turns(lambda i: event("start", messageId=f"m{i}"), same("text-start", id="t")), 400
    ),
    "metadata merged": folding(turns(lambda i: event("message-metadata", messageMetadata={f"k{i}": 1})), 400),
    "metadata merged deep inside": folding(
        turns(lambda i: event("message-metadata", messageMetadata={"a": {"b": {"c": {f"k{i}": [1]}}}})), 200
    ),
    "metadata replaced": folding(
        turns(
            lambda i: event("message-metadata", messageMetadata={"k": [i]}),
            lambda i: event("message-metadata", messageMetadata={"k": {"n": i}}),
        ),
        200,
    ),
    "many sources": folding(
        turns(lambda i: event("source-url", sourceId=f"s{i}", url=f"https://d.test/{i}")), 250, look="sources"
    ),
    "the same sources": folding(
        turns(lambda i: event("source-url", sourceId="s", url=f"https://d.test/{i % 9}", title="T")),
        250,
        look="sources",
    ),
    "search results": folding(each(CALLS, found), 70, look="sources"),
    "steering messages": folding(
        turns(lambda i: event("steering-message", id=f"u{i}", parts=[{"type": "text", "text": WORDS}])), 300
    ),
}


# Whole answers, and texts ---------------------------------------------------------------------------


def answers(make: Callable[[int], Iterable[Wire | str]], size: int, *, fed: int = PACKET_BYTES) -> Shape:
    """Return the shape of a whole answer: bytes, events, message; each event is taken as it comes."""

    def prepare(n: int) -> Run:
        from mintlify_async.assistant.stream import MessageStream

        events = [one if isinstance(one, str) else json.dumps(one) for one in make(n)]
        body = b"".join(map(frame, [*events, '{"type":"finish"}', "[DONE]"]))
        pieces = [body[at : at + fed] for at in range(0, len(body), fed)]
        expected = 1 + len(events) - events.count("[DONE]")

        def run() -> None:
            stream = MessageStream()
            for piece in pieces:
                stream.feed(piece)
                while stream.next_event() is not None:
                    pass
            stream.feed_eof()
            assert stream.next_event() is None
            assert stream.events_seen == expected
            assert stream.message.parts is not None

        return run

    return Shape(prepare, size)


ANSWERS = {
    "one text": answers(text_of("text"), 700),
    "one text, byte by byte": answers(text_of("text", "word "), 15, fed=1),
    "two texts in turn": answers(
        turns(
            same("text-delta", id="a", delta="word "),
            same("text-delta", id="b", delta="word "),
            first=(event("text-start", id="a"), event("text-start", id="b")),
        ),
        200,
    ),
    "one event of many keys": answers(
        lambda n: [event("data-row", data={f"k{i}": [i, {"n": "word"}] for i in range(n)})], 400
    ),
    "one event of one long text": answers(lambda n: [event("data-row", data="w" * n)], 200_000),
    "unknown events": answers(turns(lambda i: event("later", n=i)), 150),
    "many ends": answers(lambda n: ["[DONE]"] * n, 2_000),
    "a thread in every event": answers(
        turns(lambda i: event("message-metadata", messageMetadata={"threadId": f"t{i}", "threadKey": "k"})),
        150,
    ),
}


def reading(read: str, unit: str, size: int, *, before: str = "", after: str = "") -> Shape:
    """Return the shape of a text that the function *read* reads: *unit* repeated between two others."""

    def prepare(n: int) -> Run:
        from mintlify_async.model.partial_json import parse_partial
        from mintlify_async.rendering.sources import split_suggestions

        text = before + unit * (n // len(unit)) + after
        function: Callable[[str], object] = parse_partial if read == "input" else split_suggestions

        def run() -> None:
            assert function(text) is not None

        return run

    return Shape(prepare, size)


def growing(unit: str, size: int, *, fed: int | None, before: str = "") -> Shape:
    """Return the shape of a text that loses its suggestions while it comes, so many characters at a time."""

    def prepare(n: int) -> Run:
        from mintlify_async.rendering.markdown import WithoutSuggestions

        text = before + unit * (n // len(unit)) + "\n"
        step = fed or len(text)
        pieces = [text[at : at + step] for at in range(0, len(text), step)]

        def run() -> None:
            growing = WithoutSuggestions()
            assert sum(len(growing.feed(piece)) for piece in pieces) == len(text)

        return run

    return Shape(prepare, size)


def cutting(unit: str, size: int, *, before: str = "", after: str = "") -> Shape:
    """Return the shape of a text that is cut into messages."""

    def prepare(n: int) -> Run:
        from mintlify_async.rendering.splitting import split_markdown

        text = before + unit * (n // len(unit)) + after

        def run() -> None:
            assert split_markdown(text, 2_000)

        return run

    return Shape(prepare, size)


FENCE = "```suggestions\n"

TEXTS = {
    "input: one string": reading("input", "word ", 50_000, before='{"q":"'),
    "input: escapes": reading("input", r"\n\u00e9\"", 4_000, before='{"q":"'),
    "input: many keys": reading("input", '"k":[1,{"a":null}],', 2_000, before="{"),
    "input: numbers": reading("input", "12.5e3,", 2_500, before="["),
    "input: deep": reading("input", '{"a":[', 2_000),
    "input: blanks": reading("input", " ", 2_000, before='{"q":1'),
    "input: no JSON": reading("input", "x", 3_000),
    "suggestions: many": reading("suggestions", "- (Title)[/page]\n", 8_000, before=FENCE),
    "suggestions: empty lines": reading("suggestions", "\n", 1_500, before=FENCE),
    "suggestions: blocks": reading("suggestions", FENCE + "(T)[/p]\n```\nword\n", 8_000),
    "suggestions: blanks behind a fence": reading("suggestions", " ", 20_000, before="```a", after="b"),
    "suggestions: fences in one line": reading("suggestions", "```", 20_000, before="```a", after="b"),
    "suggestions: links in one line": reading("suggestions", ")[a", 3_000, before=FENCE + "(x", after=" "),
    "suggestions: links the right way": reading("suggestions", "](a", 3_000, before=FENCE + "[x", after=" "),
    "suggestions: blanks behind a link": reading(
        "suggestions", " ", 20_000, before=FENCE + "(x)[a]", after="b"
    ),
    "markdown: blanks behind a fence": growing(" ", 20_000, fed=None, before="```a"),
    "markdown: one line, byte by byte": growing("x", 1_500, fed=1),
    "markdown: one line held back, byte by byte": growing("x", 1_500, fed=1, before="```"),
    "markdown: one line in a block, byte by byte": growing("x", 1_500, fed=1, before="```\n"),
    "messages: one line of code": cutting("word ", 20_000, before="```\n"),
    "messages: blanks before a word": cutting(" ", 200_000, after="word"),
}

SHAPES: dict[str, Shape] = {
    f"{kind}: {name}": shape
    for kind, shapes in (("framing", FRAMINGS), ("fold", FOLDS), ("answer", ANSWERS), ("text", TEXTS))
    for name, shape in shapes.items()
}


def run_marked(small: Run, large: Run) -> None:
    """Do both runs, with a mark before, between and after them.

    The garbage collector is off. It looks at everything that is alive each time a quarter more has come,
    which is at most some five looks at each object, however many there are: the interpreter's share,
    and linear; but between two sizes it comes in jumps.
    """
    small()  # what is made once: compiled patterns, schemas, specialized bytecode
    gc.collect()
    gc.disable()
    os.getloadavg()
    small()
    os.getloadavg()
    large()
    os.getloadavg()
    gc.enable()


def main(wanted: list[str]) -> None:
    """Do the work of the shapes *wanted*."""
    for name in wanted:
        shape = SHAPES[name]
        run_marked(shape.prepare(shape.size), shape.prepare(TIMES * shape.size))


if __name__ == "__main__":
    main(sys.argv[1:])
