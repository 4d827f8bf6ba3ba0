"""The answers that the server streams, made once, and the facts that check a client's result."""

import json
import random
from functools import cache
from itertools import accumulate, cycle, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from .growing import GROWING

WORDS = "the page with your team sign in from any docs and open it then add a key for each of them"
PACKET_BYTES = 1448  # the payload of an Ethernet frame with time stamps
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"x-vercel-ai-ui-message-stream: v1\r\nx-thread-id: thread_1\r\nx-thread-key: tk_1\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


class Script(NamedTuple):
    pieces: list[bytes]
    lockstep: bool  # each piece is written when the client has read the piece before
    body: bytes
    events: int
    text: str = ""


def words(count: int) -> list[str]:
    roll, known = random.Random(7), WORDS.split()
    text = "".join(roll.choice(known) + roll.choice([" ", " ", " ", ", ", ".\n"]) for _ in range(count * 5))
    cuts = accumulate((roll.randint(4, 10) for _ in range(count)), initial=0)
    return [text[start:end] for start, end in pairwise(cuts)]


def sliced(data: Any, size: int) -> list[Any]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def real_answer(count: int, pages: int) -> list[dict[str, Any]]:
    """Return an answer like the service's, with a search, its sources, the text, the end."""
    call = {"toolCallId": "call_1", "toolName": "search"}
    page = {"path": "guides/page", "metadata": {"title": "Page"}, "content": "".join(words(60))}
    inputs = ('{"query":', '"sign in"', "}")
    return [
        {"type": "start", "messageId": "msg_1"},
        {"type": "start-step"},
        {"type": "tool-input-start", **call},
        *({"type": "tool-input-delta", "toolCallId": "call_1", "inputTextDelta": one} for one in inputs),
        {"type": "tool-input-available", **call, "input": {"query": "sign in"}},
        {"type": "tool-output-available", "toolCallId": "call_1", "output": {"results": [page] * pages}},
        *({"type": "source-url", "sourceId": f"s{n}", "url": f"https://docs.test/{n}"} for n in range(3)),
        {"type": "finish-step"},
        {"type": "start-step"},
        *deltas(words(count))[:-1],
        {"type": "finish-step"},
        {"type": "finish", "finishReason": "stop", "threadId": "thread_1"},
    ]


def deltas(pieces: list[str], ids: str = "a", kind: str = "text", **fields: Any) -> list[dict[str, Any]]:
    """Return an answer of only deltas, to the parts *ids* in turn, each with the additional *fields*."""
    begun, ended = ([{"type": f"{kind}-{stage}", "id": one} for one in ids] for stage in ("start", "end"))
    told = zip(cycle(ids), pieces, strict=False)
    made = [{"type": f"{kind}-delta", "id": one, "delta": piece, **fields} for one, piece in told]
    return [*begun, *made, *ended, {"type": "finish"}]


#: Deltas of several shapes, as arguments of :func:`deltas`. Each costs more to read than a plain one.
DELTA_KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "unknown field": {"later": 1},
    "providerMetadata": {"providerMetadata": {"provider": {"item": "msg_1"}}},
    "event lines": {},  # with an "event:" line each
    "two texts in turn": {"ids": "ab"},
    "reasoning": {"kind": "reasoning"},
}
#: Markdown that a chat message may consist of. The first text is its start, the second is repeated.
MARKDOWN_KINDS = {
    "prose": ("", "the page with your team, then **sign in** from any docs. "),
    "code": ("```python\n", "    value = call(first, second)  # and so on\n"),
    "short lines": ("", "a\n"),
    "list": ("", "- an item with `code` and [a link](/page)\n"),
    "table": ("| A | B | C |\n|---|---|---|\n", "| a cell | another one | `code` |\n"),
}


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def domain_of(shape: str) -> str:
    """Return the domain by which the server knows *shape*. A domain has no blanks."""
    return shape.replace(" ", "_")


def shape_of(domain: str) -> str:
    return domain.replace("_", " ")


@cache
def script(shape: str) -> Script:
    """Return the server's output for *shape*.

    ``burst`` and ``live`` are 617 events, 55 KB: at once, or one a packet and read. ``alone`` is a few such,
    ``searched`` 60 KB of results; or ``KIND~deltas``, ``KIND~CHARACTERS~markdown``, ``NAME~SIZE~growing``.
    """
    *names, what = shape.split("~")
    kind, size = (*names, "", 0)[0], int((*names, "", 0)[1] or 0)
    if what == "growing":
        text, fed = GROWING[kind].body(size), GROWING[kind].fed
        body = text.encode("utf-8", "surrogateescape")
        pieces = [chunk(piece) for piece in sliced(body, fed or PACKET_BYTES)]
        events = sum("data: " in a and "[DONE]" not in a for a in text.replace("\r\n", "\n").split("\n\n"))
        return Script([HEAD, *pieces, b"0\r\n\r\n"], fed is not None, body, events)
    if what == "markdown":
        begun, unit = MARKDOWN_KINDS[kind]
        made = deltas(sliced((begun + unit * size)[:size], max(1, size // 400)))
    elif what == "deltas":
        made = deltas(words(600), **DELTA_KINDS[kind])
    else:
        made = real_answer(*{"alone": (4, 1), "searched": (20, 125)}.get(shape, (600, 34)))
    prefix = {"event lines": "event: message\ndata: "}.get(kind, "data: ")
    frames = [f"{prefix}{json.dumps(each, separators=(',', ':'))}\n\n".encode() for each in made]
    frames.append(b"data: [DONE]\n\n")
    told = [each for each in made if each["type"] == "text-delta"]
    text = "".join(map(itemgetter("delta"), sorted(told, key=itemgetter("id"))))  # part by part
    pieces = [HEAD, *map(chunk, frames), b"0\r\n\r\n"]
    return Script(pieces, what in ("live", "alone", "markdown"), b"".join(frames), len(made), text)
