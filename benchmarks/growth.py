"""Shapes of bytes and events in; out: what a byte costs at eight times the size, over what it costs.

Anything above 1 by more than the control's spread grows faster than its input.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from .bodies import sliced
from .rounds import Figure, Row, figure

__all__ = ["FOLDS", "FRAMINGS", "growth"]

TIMES = 8
Run = Callable[[], object]


def frame(data: str) -> bytes:
    """Return *data* as an event."""
    return f"data: {data}\n\n".encode()


DELTA = '{"type":"text-delta","id":"t","delta":"word "}'

#: name → (bytes of a size, how many bytes are fed at once or None for all, size of the small run).
#: The large run is at most 1 MB, so that both stay in the processor's cache: it is not what is measured.
FRAMINGS: dict[str, tuple[Callable[[int], bytes], int | None, int]] = {
    "events, whole": (lambda n: frame(DELTA) * (n // 54), None, 125_000),
    "events, in packets": (lambda n: frame(DELTA) * (n // 54), 1448, 125_000),
    "events, byte by byte": (lambda n: frame(DELTA) * (n // 54), 1, 30_000),
    "one line, whole": (lambda n: frame('{"type":"' + "x" * n + '"}'), None, 125_000),
    "one line, in packets": (lambda n: frame('{"type":"' + "x" * n + '"}'), 1448, 125_000),
    "one line, byte by byte": (lambda n: frame('{"type":"' + "x" * n + '"}'), 1, 60_000),
    "one event of many lines": (lambda n: b"data: 1,\n" * (n // 9) + b"\n", 1448, 200_000),
    "comments": (lambda n: b":\n" * (n // 2), 1448, 200_000),
    "empty lines": (lambda n: b"\n" * n, 1448, 400_000),
    "CR LF": (lambda n: frame(DELTA).replace(b"\n", b"\r\n") * (n // 56), 1448, 125_000),
    "CR": (lambda n: frame(DELTA).replace(b"\n", b"\r") * (n // 54), 1448, 125_000),
    "named events": (lambda n: (b"event: x\nid: 7\n" + frame(DELTA)) * (n // 69), 1448, 125_000),
}


def text(n: int) -> list[str]:
    """Return one text part of *n* deltas."""
    return ['{"type":"text-start","id":"t"}', *[DELTA] * n, '{"type":"text-end","id":"t"}']


def parts(n: int) -> list[str]:
    """Return *n* text parts, open at once."""
    starts = [f'{{"type":"text-start","id":"t{i}"}}' for i in range(n)]
    return starts + [f'{{"type":"text-delta","id":"t{i}","delta":"word "}}' for i in range(n)]


def tool_input(n: int) -> list[str]:
    """Return one tool call whose input streams in *n* deltas."""
    start = '{"type":"tool-input-start","toolCallId":"c","toolName":"search"}'
    opening = '{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{\\"q\\":\\""}'
    return [start, opening, *['{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"word "}'] * n]


def tools(n: int) -> list[str]:
    """Return *n* tool calls in one step, all begun before the first result."""
    call = '"toolCallId":"c{0}","toolName":"search"'
    starts = [f'{{"type":"tool-input-available",{call.format(i)},"input":{{}}}}' for i in range(n)]
    return starts + [
        f'{{"type":"tool-output-available","toolCallId":"c{i}","output":{{}}}}' for i in range(n)
    ]


def data(n: int) -> list[str]:
    """Return *n* data parts with ids, each written twice."""
    return [f'{{"type":"data-row","id":"r{i}","data":{i}}}' for i in range(n)] * 2


def steps(n: int) -> list[str]:
    """Return *n* steps, each with a result for the call of the first."""
    call = '{"type":"tool-input-available","toolCallId":"c","toolName":"search","input":{}}'
    again = '{"type":"tool-output-available","toolCallId":"c","output":{}}'
    return [call, *['{"type":"start-step"}', again, '{"type":"finish-step"}'] * n]


def metadata(n: int) -> list[str]:
    """Return *n* merges into the message's metadata, which grows with each."""
    return [f'{{"type":"message-metadata","messageMetadata":{{"k{i}":1}}}}' for i in range(n)]


def sources(n: int) -> list[str]:
    """Return *n* sources."""
    return [f'{{"type":"source-url","sourceId":"s{i}","url":"https://d.test/{i}"}}' for i in range(n)]


#: name → (events of a number, the number of the small run)
FOLDS: dict[str, tuple[Callable[[int], list[str]], int]] = {
    "one text of many deltas": (text, 12_500),
    "many texts open at once": (parts, 3_000),
    "one tool input of many deltas": (tool_input, 2_500),
    "many tool calls": (tools, 1_500),
    "many data parts": (data, 2_000),
    "many steps": (steps, 2_000),
    "metadata merged": (metadata, 1_500),
    "many sources": (sources, 3_000),
}


def framing(body: bytes, size: int | None) -> Run:
    """Return the work of splitting *body*, fed *size* bytes at a time."""
    from mintlify_async.sse import SSEDecoder

    pieces = [body] if size is None else sliced(body, size)

    def run() -> None:
        decoder = SSEDecoder(64 * 1024 * 1024)
        events = [event for piece in pieces for event in decoder.feed(piece)]
        assert (
            len(events) == body.count(b"\n\ndata") + 1 or b"data" not in body or b"\r" in body or size == 1448
        )
        assert decoder.close() is None

    return run


def folding(events: list[str]) -> Run:
    """Return the work of parsing and folding *events*, and of one look at the message at the end."""
    from mintlify_async.events import parse_event
    from mintlify_async.message import MessageFold

    def run() -> None:
        fold = MessageFold()
        for event in events:
            fold.apply(parse_event(event))
        assert fold.message.parts or fold.message.metadata

    return run


def seconds(run: Run, times: int) -> float:
    """Return the CPU seconds of *run*, done *times* times."""
    gc.collect()
    start = time.process_time()
    for _ in range(times):
        run()
    return time.process_time() - start


def grown(small: Run, large: Run, rounds: int) -> tuple[Figure, Figure]:
    """Return what a byte costs at eight times the size over what it costs, and the control beside it."""
    found, control = [], []
    small()
    for _ in range(rounds):
        first = seconds(small, TIMES)
        found.append(seconds(large, 1) / first)
        control.append(seconds(small, TIMES) / first)
    return figure(found), figure(control)


def pairs(shrink: int) -> dict[str, tuple[Run, Run]]:
    """Return each shape's small and large run; *shrink* divides the sizes."""
    found: dict[str, tuple[Run, Run]] = {}
    for name, (make, size, n) in FRAMINGS.items():
        small = n // shrink
        found[f"framing: {name}"] = framing(make(small), size), framing(make(TIMES * small), size)
    for name, (build, n) in FOLDS.items():
        few = n // shrink
        found[f"fold: {name}"] = folding(build(few)), folding(build(TIMES * few))
    return found


def growth(*, rounds: int, quick: bool = False) -> Row:
    """Measure the growth of every shape."""
    costs: dict[str, Figure] = {}
    controls: list[float] = []
    for name, (small, large) in pairs(200 if quick else 1).items():
        costs[name], control = grown(small, large, rounds)
        controls.append(control.median)
    worst = max(figure.median for figure in costs.values())
    notes = {"worst": worst, "control, worst": max(controls), "reach": 1.2}
    return Row("growth", f"cost a byte at {TIMES} times the size", "times", costs, {}, {}, notes)
