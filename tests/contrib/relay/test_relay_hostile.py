"""Bodies that no page sends: each is refused, or costs no more than a bound that is counted, not timed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

pytest.importorskip("fastapi")

from mintlify_async.contrib.relay import page_question, request_body
from tests.support.relay_kit import user_message

FULL = 4 * 1024 * 1024
QUESTION = json.dumps(user_message("q")).encode()
SMALL = ["[]", "{}", '""', "0", "1.5e-300", '{"a":{}}', "[[[]]]", '"%d":1', '{"type":"step-start"}']
ESCAPES = [r"\n", r"a\n", r"\\", r"\"", r"\u00e9"]


def repeated(piece: str) -> bytes:
    """Return nearly four mebibytes of a small piece of JSON, in a list, an object or a string."""
    if piece in ESCAPES:
        return b'"%b"' % (piece.encode() * ((FULL - 100_000) // len(piece)))
    times = (FULL - 100_000) // (len(piece) + (7 if "%d" in piece else 1))
    if "%d" in piece:
        return b"{" + b",".join(piece.encode().replace(b"%d", b"%d" % n) for n in range(times)) + b"}"
    return b"[" + b",".join([piece.encode()] * times) + b"]"


@pytest.mark.parametrize(
    ("place", "piece"),
    [*(("messages", piece) for piece in SMALL), *(("a", piece) for piece in ("[]", '"%d":1', *ESCAPES))],
)
async def test_four_mebibytes_of_small_values_are_never_parsed(here, place, piece, monkeypatch):
    """Values and escapes are counted while the body arrives: no parser sees any of it."""
    parsed: list[int] = []
    around = b'{"messages":[%b,%b]}' if place == "messages" else b'{"messages":[%b],"a":%b}'
    body = around % (QUESTION, repeated(piece))
    assert FULL // 2 < len(body) < FULL
    with monkeypatch.context() as patched:
        patched.setattr(request_body.json, "loads", lambda text, **more: parsed.append(len(text)))
        assert (await here.page.post(body))[0] == 413
    assert parsed == []


# --- What is refused ----------------------------------------------------------------------------------


def question(**message: Any) -> dict[str, Any]:
    return {"id": "c", "messages": [{**user_message("q"), **message}]}


def part(kind: str, **fields: Any) -> dict[str, Any]:
    usual = {
        "source-url": {"sourceId": "s", "url": "/a", "title": "A"},
        "file": {"mediaType": "image/png", "url": "data:image/png;base64,AA=="},
    }
    return {"type": kind, **usual[kind], **fields}


EMPTY = {"type": "text", "text": ""}
PARTS: list[Any] = [
    *("x", [], [1], [{}], [{"type": "text"}], [{"type": "text", "text": 1}]),
    *([{"type": "data-x", "data": 1}], [{"type": "step-start"}]),
    *([EMPTY], [{"type": "text", "text": " \n\t\u2003"}], [EMPTY] * 3, [EMPTY, part("source-url")]),
]
PATHS: list[Any] = ["https://evil.example", "/" + "a" * 200, 1, "/a\ud83d"]
IDS: list[Any] = ["", "x" * 201, "a\nb", 7, ["a"]]
# Reading a number takes the square of its length; JavaScript writes 24 characters at most.
NUMBERS = ["9" * 26, "-" + "9" * 4000, "0." + "1" * 40, "1" * 5000 + ".5", "1e" + "0" * 50, "NaN", "Infinity"]
TWICE = [user_message("1", "u"), {"id": "u", "role": "assistant", "parts": []}, user_message("2", "v")]
SCRIPTS = ["javascript:x", "JavaScript:x", " javascript:x", "java\nscript:x", "/\tjavascript:x"]
OTHER_SCHEMES = ["data:text/html,<script>", "vbscript:x", "file:///etc/passwd", "blob:https://a/b"]
LONG_URLS = ["/" + "a" * 2_000, "\u3000" * 1_900 + "javascript:alert(1)"]
FILE_URLS = ["javascript:x", "/a", "https:x", "https://a/\n", "https://a/" + "b" * 2_000, "data:text/plain,é"]
ADDRESSES = [
    *(part("source-url", url=url) for url in (*SCRIPTS, *OTHER_SCHEMES, *LONG_URLS)),
    *(part("source-url", **{name: "n" * 1_001}) for name in ("sourceId", "title")),
    *(part("file", url=url) for url in FILE_URLS),
    *(part("file", **{name: "n" * 1_001}) for name in ("filename", "mediaType")),
]


def with_address(bad: dict[str, Any], role: str) -> dict[str, Any]:
    """Return a history in which an earlier message has *bad*."""
    earlier = user_message("q", "m", role=role, parts=[bad, {"type": "text", "text": "q"}])
    return {"messages": [earlier, user_message("q", "last")]}


MALFORMED: list[Any] = [
    *(b"", b"{", b"null", b"[]", b"\xff{}", b"[" * 45_000),
    *({}, {"messages": []}, {"messages": {}}, {"messages": [1]}),
    *(question(role=role) for role in ("system", None)),
    *(question(parts=parts) for parts in PARTS),
    *(question(id=id) for id in IDS),
    *({**question(), "id": id} for id in IDS),
    *({**question(), "currentPath": path} for path in PATHS),
    {**question(), "threadId": 7},
    *({"messages": messages} for messages in ([user_message("1"), user_message("2")], TWICE)),
    *(b'{"messages":[%b],"n":%b}' % (QUESTION, number.encode()) for number in NUMBERS),
    *(with_address(bad, role) for bad in ADDRESSES for role in ("user", "assistant")),
]
TEXT = {"type": "text", "text": "x"}
LONG_SOURCE = {"type": "source-url", "sourceId": "s" * 900, "url": "/" + "a" * 900}
# The session reads each part and writes each character: their number is bounded over all messages.
TOO_LARGE: list[Any] = [
    b"[" * 100_000,
    {"messages": [user_message("q")], "a": "x" * 2**22},
    question(parts=[{"type": "text", "text": "x" * 500_001}]),
    question(parts=[{"type": "file", "mediaType": "a/b", "url": "data:" + "x" * 3 * 2**20}]),
    question(parts=[TEXT] * 1_501),
    {"messages": [user_message("q", f"u{n}", parts=[TEXT] * 16) for n in range(100)]},
    {"messages": [user_message("x" * 30_000, f"u{n}") for n in range(20)]},
    {"messages": [user_message("q", f"u{n}") for n in range(201)]},
    {"messages": [{"id": "a", "role": "assistant", "parts": [LONG_SOURCE] * 300}, user_message("q")]},
]


@pytest.mark.parametrize(
    ("status", "body"),
    [*((400, body) for body in MALFORMED), *((413, body) for body in TOO_LARGE)],
    ids=lambda value: str(value)[:80],
)
async def test_what_no_page_sends_is_refused(here, status, body, caplog):
    """A malformed or oversized body gets a 4xx with a short text and a line in the log; nothing is asked."""
    got, text, headers = await here.page.post(body)
    assert got == status, text
    assert headers["content-type"].startswith("text/plain")
    assert 0 < len(text) < 100
    assert here.service.requests == []
    levels = [record.levelname for record in caplog.records if f"refused with {status}" in record.message]
    assert levels == ["WARNING"]


# --- What passes --------------------------------------------------------------------------------------


def searched(turn: int, results: int, size: int) -> list[dict[str, Any]]:
    """Return a turn as ``useChat`` keeps it, with *results* search results of *size* bytes each."""
    content = ('Log in with `POST /v1/login`, "once".\n\n```json\n{"user": [1, 2]}\n```\n' * size)[:size]
    metadata = {"title": "Log in", "section": "SSO"}
    output = [
        {"path": f"/p{n}", "metadata": metadata, "content": content, "score": 0.25} for n in range(results)
    ]
    tool = {"type": "tool-search", "toolCallId": f"c{turn}", "state": "output-available"}
    parts = [
        {"type": "step-start"},
        {**tool, "input": {"query": "q"}, "output": {"results": output}},
        {"type": "step-start"},
        *(part("source-url", sourceId=f"s{n}", url=f"/p{n}") for n in range(5)),
        {"type": "text", "text": "Press the button. " * 200, "state": "done"},
        {"type": "data-note", "data": {"a": [1, 2, 3]}},
    ]
    answer = {"id": f"a{turn}", "role": "assistant", "parts": parts}
    return [user_message("How do I log in?", f"u{turn}"), answer]


@pytest.mark.parametrize(("results", "size"), [(10, 9_000), (100, 800), (200, 350)])
async def test_an_ordinary_history_passes(here, results, size):
    """Twelve turns with 100 KB of search results each, in few large results or in many small ones."""
    history = [message for turn in range(12) for message in searched(turn, results, size)]
    history.append(user_message("And by SSO?", "last"))
    body = json.dumps({"id": "chat-1", "messages": history, "trigger": "submit-message"}).encode()
    assert len(body) > 1.1e6
    status, text, _ = await here.page.post(body)
    assert (status, text[:200] if status != 200 else b"") == (200, b"")
    assert len(here.asked["messages"]) == 25


async def test_web_addresses_and_paths_pass(here):
    """What the service names as sources, whole or as a path of the site."""
    urls = ["/a#b", "https://docs.example/a?b=c:d", "HTTP://a/b", "//a/b", "a/b", "?a:b", "#a:b", "", "/é"]
    parts = [part("source-url", url=url) for url in urls]
    await here.page.ask({"id": "m", "role": "assistant", "parts": parts}, user_message("q", "last"))
    assert [sent["url"] for sent in here.asked["messages"][0]["parts"]] == urls


async def test_a_file_alone_is_a_question(here):
    """As useChat sends a picture without a word."""
    await here.page.ask(user_message("", parts=[part("file")]))
    assert here.asked["messages"][0]["parts"] == [part("file")]


def test_no_pattern_reads_an_address_twice():
    """No pattern repeats: one that goes back takes quadratic time, for 2,000 blanks 24 ms."""
    patterns = [str(each.pattern) for each in vars(page_question).values() if isinstance(each, re.Pattern)]
    assert not [pattern for pattern in patterns if re.search(r"[*+]|{[^}]*,", pattern)]
