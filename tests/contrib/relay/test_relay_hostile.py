"""Bodies that no page sends: each is refused, or costs no more than a bound that is counted, not timed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

pytest.importorskip("fastapi")

from mintlify_async import MintlifySession
from mintlify_async.contrib.relay import Relay, page_question
from tests.support.relay_desk import desk, x_user
from tests.support.relay_kit import SECRET, answered, request_of, user_message

MIB = 1024 * 1024
FULL = 4 * MIB


def text_of(kind: str, times: int) -> bytes:
    """Return *times* of a small piece of JSON, after each other in a list or an object."""
    if "%d" in kind:
        return b"{" + b",".join(kind.encode().replace(b"%d", b"%d" % n) for n in range(times)) + b"}"
    return b"[" + b",".join([kind.encode()] * times) + b"]"


SMALL = ["[]", "{}", '""', "0", "1.5e-300", '{"a":{}}', "[[[]]]", '"%d":1', '{"type":"step-start"}']


@pytest.mark.parametrize(
    ("kind", "within"), [*((kind, "messages") for kind in SMALL), ("[]", "ignored"), ('"%d":1', "ignored")]
)
async def test_four_mebibytes_of_small_values_are_never_parsed(kind, within, monkeypatch):
    """The values are counted while the body arrives: it is refused before a parser sees any of it."""
    parsed: list[int] = []
    monkeypatch.setattr(page_question.json, "loads", lambda text, **more: parsed.append(len(text)))
    times = (FULL - 100_000) // (len(kind) + (7 if "%d" in kind else 1))
    many = text_of(kind, times)
    message = json.dumps(user_message("q")).encode()
    bodies = {
        "messages": b'{"messages":[%b,%b]}' % (message, many),
        "ignored": b'{"messages":[%b],"ignored":%b}' % (message, many),
    }
    body = bodies[within]
    assert FULL // 2 < len(body) < FULL
    async with MintlifySession(domain="acme", assistant_key="mint_dsc_0123456789") as session:
        relay = Relay(session, secrets=[SECRET], user=x_user)
        response = await answered(relay, request_of(body))
    assert response.status_code == 413
    assert parsed == []


async def test_escaped_characters_are_counted_like_values(monkeypatch):
    """Each is a step of the parser: four mebibytes of them are refused before it begins."""
    parsed: list[int] = []
    monkeypatch.setattr(page_question.json, "loads", lambda text, **more: parsed.append(len(text)))
    async with MintlifySession(domain="acme", assistant_key="mint_dsc_0123456789") as session:
        relay = Relay(session, secrets=[SECRET], user=x_user)
        for escape in (rb"\n", rb"a\n", rb"\\", rb"\"", rb"\u00e9"):
            body = b'{"messages":[],"a":"%b"}' % (escape * ((FULL - 100) // len(escape)))
            assert (await answered(relay, request_of(body))).status_code == 413
    assert parsed == []


@pytest.mark.parametrize(
    "number",
    ["9" * 26, "-" + "9" * 4000, "0." + "1" * 40, "1" * 5000 + ".5", "1e" + "0" * 50, "NaN", "Infinity"],
)
async def test_a_number_is_no_longer_than_those_of_browsers(number):
    """Reading one takes the square of its length; JavaScript writes 24 characters at most."""
    async with desk() as here:
        body = b'{"messages":[%b],"n":%b}' % (json.dumps(user_message("q")).encode(), number.encode())
        assert (await here.page.post(body))[0] == 400
        assert here.service.requests == []


# --- What is made of a body that is within the limits ------------------------------------------------


def searched(turn: int, results: int, size: int) -> list[dict[str, Any]]:
    """Return a turn as ``useChat`` keeps it, with *results* search results of *size* bytes each."""
    content = ('Log in with `POST /v1/login`, "once".\n\n```json\n{"user": [1, 2]}\n```\n' * size)[:size]
    output = [
        {
            "path": f"/p{n}",
            "metadata": {"title": "Log in", "section": "SSO"},
            "content": content,
            "score": 0.25,
        }
        for n in range(results)
    ]
    tool = {
        "type": "tool-search",
        "toolCallId": f"c{turn}",
        "state": "output-available",
        "input": {"query": "q"},
    }
    sources = [
        {"type": "source-url", "sourceId": f"s{n}", "url": f"/p{n}", "title": "Log in"} for n in range(5)
    ]
    parts = [
        {"type": "step-start"},
        {**tool, "output": {"results": output}},
        {"type": "step-start"},
        *sources,
        {"type": "text", "text": "Press the button. " * 200, "state": "done"},
        {"type": "data-note", "data": {"a": [1, 2, 3]}},
    ]
    return [
        user_message("How do I log in?", f"u{turn}"),
        {"id": f"a{turn}", "role": "assistant", "parts": parts},
    ]


@pytest.mark.parametrize(("results", "size"), [(10, 9_000), (100, 800), (200, 350)])
async def test_an_ordinary_history_passes(results, size):
    """Twelve turns with 100 KB of search results each, in few large results or in many small ones."""
    history = [message for turn in range(12) for message in searched(turn, results, size)]
    history.append(user_message("And by SSO?", "last"))
    body = json.dumps({"id": "chat-1", "messages": history, "trigger": "submit-message"}).encode()
    assert len(body) > 1.1e6
    async with desk() as here:
        status, text, _ = await here.page.post(body)
        assert (status, text[:200] if status != 200 else b"") == (200, b"")
        assert len(here.asked["messages"]) == 25


LONG_SOURCE = {"type": "source-url", "sourceId": "s" * 900, "url": "/" + "a" * 900}


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [user_message("q", parts=[{"type": "text", "text": "x"}] * 1_501)]},
        {
            "messages": [
                user_message("q", f"u{n}", parts=[{"type": "text", "text": "x"}] * 16) for n in range(100)
            ]
        },
        {"messages": [user_message("x" * 30_000, f"u{n}") for n in range(20)]},
        {"messages": [user_message("q", f"u{n}") for n in range(201)]},
        {"messages": [{"id": "a", "role": "assistant", "parts": [LONG_SOURCE] * 300}, user_message("q")]},
    ],
    ids=[
        "parts of a message",
        "parts of all messages",
        "characters of all messages",
        "messages",
        "addresses",
    ],
)
async def test_what_the_session_would_take_long_for_never_reaches_it(body, monkeypatch):
    """The session reads each part and writes each character: their number is bounded over all messages."""
    asked: list[object] = []
    monkeypatch.setattr(MintlifySession, "ask", lambda *args, **more: asked.append(args))
    async with MintlifySession(domain="acme", assistant_key="mint_dsc_0123456789") as session:
        relay = Relay(session, secrets=[SECRET], user=x_user)
        assert (await answered(relay, request_of(body))).status_code == 413
    assert asked == []


def part(kind: str, **fields: Any) -> dict[str, Any]:
    usual = {
        "source-url": {"sourceId": "s", "url": "/a", "title": "A"},
        "file": {"mediaType": "image/png", "url": "data:image/png;base64,AA=="},
    }
    return {"type": kind, **usual[kind], **fields}


@pytest.mark.parametrize(
    "bad",
    [
        part("source-url", sourceId="s" * 1_001),
        part("source-url", url="/" + "a" * 2_000),
        part("source-url", title="t" * 1_001),
        part("source-url", url="javascript:alert(1)"),
        part("source-url", url="JavaScript:alert(1)"),
        part("source-url", url=" javascript:alert(1)"),
        part("source-url", url="\u3000" * 1_900 + "javascript:alert(1)"),
        part("source-url", url="java\nscript:alert(1)"),
        part("source-url", url="java\tscript:alert(1)"),
        part("source-url", url="\x01javascript:alert(1)"),
        part("source-url", url="data:text/html,<script>"),
        part("source-url", url="vbscript:x"),
        part("source-url", url="file:///etc/passwd"),
        part("source-url", url="blob:https://a/b"),
        part("file", url="javascript:alert(1)"),
        part("file", url="/relative"),
        part("file", url="https:alert(1)"),
        part("file", url="https://a/\n"),
        part("file", url="https://a/" + "b" * 2_000),
        part("file", url="data:text/plain,é"),
        part("file", filename="n" * 1_001),
        part("file", mediaType="m" * 1_001),
    ],
    ids=lambda bad: str(bad)[:60],
)
async def test_addresses_and_names_are_bounded(bad):
    """Long ones and addresses that are no web addresses are refused, in an answer of the history, too."""
    for role in ("user", "assistant"):
        message = {"id": "m", "role": role, "parts": [bad, {"type": "text", "text": "q"}]}
        async with desk() as here:
            status, text, _ = await here.page.post({"messages": [message, user_message("q", "last")]})
            assert (status, len(text) < 100) == (400, True)
            assert here.service.requests == []


@pytest.mark.parametrize(
    "url", ["/a#b", "https://docs.example/a?b=c:d", "HTTP://a/b", "//a/b", "a/b", "?a:b", "#a:b", "", "/é"]
)
async def test_web_addresses_and_paths_pass(url):
    """What the service names as sources, whole or as a path of the site."""
    async with desk() as here:
        message = {"id": "m", "role": "assistant", "parts": [part("source-url", url=url)]}
        await here.page.ask(message, user_message("q", "last"))
        assert here.asked["messages"][0]["parts"][0]["url"] == url


def test_no_pattern_reads_an_address_twice():
    """One that repeats, and goes back, takes the square of an address's length: of 2,000 blanks, 24 ms."""
    patterns = [str(each.pattern) for each in vars(page_question).values() if isinstance(each, re.Pattern)]
    assert not [pattern for pattern in patterns if re.search(r"[*+]|{[^}]*,", pattern)]


@pytest.mark.parametrize("place", ["chat", "message"])
@pytest.mark.parametrize("id", ["", "x" * 201, "a\nb", 7, ["a"]])
async def test_ids_are_short_and_printable(place, id):
    """They end in logs and databases."""
    body = {"id": "c", "messages": [user_message("q")]}
    (body if place == "chat" else body["messages"][0])["id"] = id
    async with desk() as here:
        assert (await here.page.post(body))[0] == 400
        assert here.service.requests == []


@pytest.mark.parametrize(
    "history",
    [
        [user_message("1", "u"), user_message("2", "u")],
        [user_message("1", "u"), {"id": "u", "role": "assistant", "parts": []}, user_message("2", "v")],
        [user_message("")],
        [user_message(" \n\t\u2003")],
        [user_message("1", "u"), user_message("", "v", parts=[{"type": "text", "text": ""}] * 3)],
        [user_message("", parts=[part("source-url")])],
    ],
    ids=["two ids", "an answer with a question's id", "nothing", "blanks", "empty parts", "a source alone"],
)
async def test_empty_questions_and_ids_that_occur_twice_are_refused(history):
    """A question says something, or has a file; each message is named once."""
    async with desk() as here:
        assert (await here.page.post({"messages": history}))[0] == 400
        assert here.service.requests == []


async def test_a_file_alone_is_a_question():
    """As useChat sends a picture without a word."""
    async with desk() as here:
        await here.page.ask(user_message("", parts=[part("file")]))
        assert here.asked["messages"][0]["parts"] == [part("file")]
