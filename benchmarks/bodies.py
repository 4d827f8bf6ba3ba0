"""Nothing in; out: the answers that the server streams, and what a reader must find in them.

An answer is a list of events; a shape says how its bytes are cut into HTTP
chunks and packets. Both are made once, before anything is measured.
"""

from __future__ import annotations

import json
import random
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

__all__ = ["SHAPES", "Answer", "Script", "answer", "script"]

Event = dict[str, Any]

PHRASE = "the page with your team sign in from any docs and open it then add a key for each of them"
WORDS = PHRASE.split()
PACKET_BYTES = 1448  # the payload of an Ethernet frame with time stamps
CHUNK_BYTES = 16_384


class Answer(NamedTuple):
    """The events of an answer, each as its bytes on the wire, and the facts to check a reader by."""

    frames: list[bytes]
    events: int
    text: str

    @property
    def body(self) -> bytes:
        """The body as one piece, without HTTP framing."""
        return b"".join(self.frames)


class Script(NamedTuple):
    """What the server writes: the response as pieces, and whether it waits for the reader after each."""

    pieces: list[bytes]
    lockstep: bool
    answer: Answer


def deltas(count: int, seed: int = 7) -> list[str]:
    """Return *count* pieces of text of 4 to 10 characters, as a model's tokens come."""
    roll = random.Random(seed)
    words = (roll.choice(WORDS) + roll.choice([" ", " ", " ", ", ", ".\n"]) for _ in range(count * 5))
    text = "".join(words)
    cuts = [0]
    for _ in range(count):
        cuts.append(cuts[-1] + roll.randint(4, 10))
    return [text[start:end] for start, end in pairwise(cuts)]


def search_results(size: int) -> list[Event]:
    """Return a search tool's results, about *size* characters in all."""
    content = "".join(deltas(60, seed=3))
    pages = max(1, size // (len(content) + 90))
    return [
        {"path": f"guides/page-{number}", "metadata": {"title": f"Page {number}"}, "content": content}
        for number in range(pages)
    ]


def events_of(pieces: list[str], *, tool: int) -> list[Event]:
    """Return an answer as the service gives it: a search, its sources, the text, the end."""
    call = {"toolCallId": "call_1", "toolName": "search"}
    return [
        {"type": "start", "messageId": "msg_1"},
        {"type": "start-step"},
        {"type": "tool-input-start", **call},
        *(
            {"type": "tool-input-delta", "toolCallId": "call_1", "inputTextDelta": piece}
            for piece in ('{"query":', '"sign in"', "}")
        ),
        {"type": "tool-input-available", **call, "input": {"query": "sign in"}},
        {
            "type": "tool-output-available",
            "toolCallId": "call_1",
            "output": {"results": search_results(tool)},
        },
        *(
            {
                "type": "source-url",
                "sourceId": f"s{n}",
                "url": f"https://docs.test/page-{n}",
                "title": f"Page {n}",
            }
            for n in range(3)
        ),
        {"type": "finish-step"},
        {"type": "start-step"},
        {"type": "text-start", "id": "txt_1"},
        *({"type": "text-delta", "id": "txt_1", "delta": piece} for piece in pieces),
        {"type": "text-end", "id": "txt_1"},
        {"type": "finish-step"},
        {"type": "finish", "finishReason": "stop", "threadId": "thread_1"},
    ]


def framed(events: list[Event], text: str, *, named: bool) -> Answer:
    """Put *events* on the wire, with ``[DONE]`` last; *named* adds an ``event:`` line to each."""
    prefix = "event: message_delta\ndata: " if named else "data: "
    compact = [json.dumps(event, separators=(",", ":"), ensure_ascii=False) for event in events]
    frames = [f"{prefix}{data}\n\n".encode() for data in compact]
    return Answer([*frames, b"data: [DONE]\n\n"], len(events), text)


@cache
def answer(kind: str, *, named: bool = False) -> Answer:
    """Return the answer called *kind*: ``real``, ``brief``, ``many``, ``large`` (see ``SHAPES``)."""
    count, tool = {"real": (600, 18_000), "brief": (4, 600), "many": (100_000, 600), "large": (1, 1_000_000)}[
        kind
    ]
    pieces = deltas(count)
    return framed(events_of(pieces, tool=tool), "".join(pieces), named=named)


#: Each shape: which answer, and how it is cut.
SHAPES = {
    "burst": ("real", "events"),  # one HTTP chunk an event, written at once
    "one": ("real", "whole"),  # one HTTP chunk, written at once
    "packets": ("real", "packets"),  # cut where a network would, one packet a read
    "trickled": ("real", "live"),  # one HTTP chunk an event, one packet an event, one a read
    "deltas": ("many", "events"),  # 100,000 deltas
    "event": ("large", "sized"),  # one event of 1 MB
    "brief": ("brief", "events"),
    "trickled-brief": ("brief", "live"),  # for small runs
    "deltas-brief": ("brief", "events"),
}


def chunk(data: bytes) -> bytes:
    """Return *data* as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def sliced(data: bytes, size: int) -> list[bytes]:
    """Cut *data* every *size* bytes."""
    return [data[start : start + size] for start in range(0, len(data), size)]


@cache
def script(name: str) -> Script:
    """Return what the server writes for the shape *name*; ``named-`` before it adds ``event:`` lines."""
    kind, cut = SHAPES[name.removeprefix("named-")]
    made = answer(kind, named=name.startswith("named-"))
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
        b"x-vercel-ai-ui-message-stream: v1\r\nx-thread-id: thread_1\r\nx-thread-key: tk_1\r\n"
        b"transfer-encoding: chunked\r\n\r\n"
    )
    end = b"0\r\n\r\n"
    if cut == "live":
        chunks = [chunk(frame) for frame in made.frames]
        return Script([head + chunks[0], *chunks[1:-1], chunks[-1] + end], True, made)
    if cut == "packets":
        return Script([head, *(chunk(part) for part in sliced(made.body, PACKET_BYTES)), end], True, made)
    parts = {"events": made.frames, "whole": [made.body], "sized": sliced(made.body, CHUNK_BYTES)}[cut]
    return Script([head + b"".join(map(chunk, parts)) + end], False, made)
