"""Recordings: byte- and pause-exact, without keys, and by default without any text."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mintlify_async import ConfigurationError, MintlifyError, MintlifySession, StreamInterruptedError
from mintlify_async.testing import (
    AnswerStyle,
    Close,
    Customer,
    Cut,
    LocalService,
    NoAnswer,
    Raw,
    Recorder,
    ThreadStyle,
)
from mintlify_async.testing.http_response import to_bytes
from mintlify_async.testing.recorder import Exchange
from mintlify_async.testing.redaction import BodyRedactor, redact_text

QUESTION = "How does Zephyrine log in at 10 Baker Street?"
WORDS = ("Zephyrine", "Baker", "Quillon", "quillon", "grüßt", "Handbuch")
THREAD_KEY = "thread_key_5ecret5ecret5ecret"


pytestmark = pytest.mark.usefixtures("virtual")


def long_answer() -> list[bytes | float]:
    """Return the pieces of an answer of 55 KB with surrogates, a tool result, and pauses between them."""
    results = [
        {"path": f"/quillon/{n}", "metadata": {"title": "Handbuch"}, "content": "Quillon grüßt 😀. " * 60}
        for n in range(40)
    ]
    call = {"toolCallId": "call_1", "toolName": "search"}
    events: list[Any] = [
        {"type": "start", "messageId": "msg_1"},
        {"type": "tool-input-available", **call, "input": {"query": QUESTION, "pageSize": 5}},
        {"type": "tool-output-available", "toolCallId": "call_1", "output": {"results": results}},
        {"type": "data-thread", "data": ["Quillon"], "threadId": "thread_7", "threadKey": THREAD_KEY},
        {"type": "text-start", "id": "t"},
    ]
    for n in range(100):
        events += [{"type": "text-delta", "id": "t", "delta": f"Quillon {n} \ud83d"}]
        events += [{"type": "text-delta", "id": "t", "delta": '\ude00 says\n"yes" 😀 grüßt '}]
    data = b"".join(map(to_bytes, events))
    assert len(data) > 55_000
    return [part for at in range(0, len(data), 1500) for part in (0.25, data[at : at + 1500])]


class Seen(NamedTuple):
    """What a reader of an answer sees."""

    events: list[tuple[float, dict[str, Any]]]
    message: Any
    error: MintlifyError | None


def shape(seen: Seen) -> list[tuple[float, str, int]]:
    """Return the time, the type and the size of each event."""
    return [(at, event["type"], len(json.dumps(event))) for at, event in seen.events]


async def read(session: MintlifySession) -> Seen:
    """Ask and read to the end, each event with its time since the question."""
    events, error, began = [], None, asyncio.get_running_loop().time()
    reply = session.ask(QUESTION)
    try:
        async with reply:
            async for event in reply:
                events.append((asyncio.get_running_loop().time() - began, event.to_wire()))
    except MintlifyError as problem:
        error = problem
    return Seen(events, reply.message and reply.message.to_wire(), error)


async def recorded(path: Path, *, keep_text: bool, **answer: Any) -> Seen:
    """Record one answer of a service that sends *answer*."""
    async with LocalService() as service:
        service.script.ask(**answer)
        async with service.session() as session:
            Recorder(path, keep_text=keep_text).record(session)
            return await read(session)


async def replayed(path: Path) -> Seen:
    """Read the same answer from a service that plays the recording."""
    async with LocalService() as service, service.session() as session:
        service.replay(path)
        return await read(session)


KEY = {"X-Thread-Key": THREAD_KEY}
CUT_ANSWER: Any = {"body": long_answer(), "fault": Cut(at=-5), "delay": 0.5, "headers": KEY}


async def test_with_its_text_a_recording_plays_the_same_answer(tmp_path):
    """Events, message, error and times are the same, where 55 KB with half characters end in a cut."""
    first = await recorded(tmp_path / "answer.jsonl", keep_text=True, **CUT_ANSWER)
    second = await replayed(tmp_path / "answer.jsonl")
    assert isinstance(first.error, StreamInterruptedError)
    assert first.events[-1][0] > 9
    assert second.events == first.events
    assert second.message == first.message
    assert str(second.error) == str(first.error)
    assert type(second.error) is type(first.error)
    assert second.error.thread.id == first.error.thread.id == "thread_7"


async def test_redacted_a_recording_keeps_every_size_and_time(tmp_path):
    """The same event types, sizes, times and error; and nothing of keys, prompt and answer is in the file."""
    path = tmp_path / "answer.jsonl"
    first = await recorded(path, keep_text=False, **CUT_ANSWER)
    second = await replayed(path)

    assert shape(second) == shape(first)
    assert (type(second.error), str(second.error)) == (type(first.error), str(first.error))
    file = path.read_text()
    assert len(first.events) > 200
    for word in (*WORDS, THREAD_KEY, "5ecret", "mint_", QUESTION, "acme"):
        assert word not in file
        assert json.dumps(word)[1:-1] not in file
    assert '"recording": 1' in file.splitlines()[0]


@pytest.mark.parametrize("keep_text", [True, False])
async def test_no_key_is_in_a_recording(tmp_path, keep_text):
    """Neither an API key, here in Base64, nor a thread's: in headers, bodies, and text that repeats it."""
    path = tmp_path / "all.jsonl"
    places = ThreadStyle(key_in={"header", "finish", "metadata", "data"})
    customer = Customer(assistant_key="mint_dsc_c2VjcmV0LXZhbHVl==")
    async with LocalService(customers=[customer], answers=AnswerStyle(thread=places)) as service:
        recorder = Recorder(path, keep_text=keep_text)
        async with service.session() as session:
            recorder.record(session)
            answer = await session.ask("How do I log in?")
            await session.ask("And by SSO?", thread=answer.thread)
            key = service.assistant_key
            service.script.ask(f"Your key is {key}.", headers={"X-Echo": f"Bearer {key}", "Via": key})
            assert key in (await session.ask(f"Is {key} my key?")).text
            job = await session.create_job("Fix the typos", headers={"X-Api-Token": "token-5ecret"})
            await job.refresh()
            service.script.get_job(status=500, body={"error": f"bad {service.admin_key}"}, times=None)
            with pytest.raises(MintlifyError):
                await session.with_options(retry=None).job(job.ref).refresh()
        keys = [service.admin_key, "c2VjcmV0LXZhbHVl", answer.thread.key, "token-5ecret"]
    file = path.read_text()
    assert len(file.splitlines()) >= 7
    assert not [key for key in keys if key in file]
    assert ("Fix the typos" in file) is keep_text
    assert path.stat().st_mode & 0o077 == 0


async def test_a_key_that_contains_another_key_is_hidden_whole(tmp_path):
    """Wherever it is repeated: no end of it is left."""
    path = tmp_path / "keys.jsonl"
    short = {f"X-Short-{n}-Token": f"5ecret-{n}" for n in range(9)}
    long = {f"X-Long-{n}-Token": f"5ecret-{n}-more" for n in range(9)}
    async with LocalService() as service, service.session() as session:
        Recorder(path, keep_text=True).record(session)
        await session.create_job(" ".join(long.values()), headers=short | long)
    assert "more" not in path.read_text()


async def test_every_piece_is_recorded_with_its_pause(tmp_path):
    """A half character between two pieces, a pause before the headers, and bytes that are no UTF-8."""
    path = tmp_path / "answer.jsonl"
    pieces = [b'data: {"type":"start"}\n\n', 1.5, b": \xc3", 0.25, b"\xa9 \xff\n\ndata: [DONE]\n\n"]
    await recorded(path, keep_text=True, body=pieces, delay=2.0)
    opening, line = map(json.loads, path.read_text().splitlines())
    assert opening == {"recording": 1, "redacted": False, "client": opening["client"]}
    assert line["after"] == 2.0
    assert [pause for pause, _ in line["body"]] == [0.0, 1.5, 0.25]
    assert line["body"][0][1] == 'data: {"type":"start"}\n\n'
    assert line["body"][1][1] == {"base64": "OiDD"}
    assert (line["ended_after"], line["how"], line["error"]) == (0.0, "whole", None)


@pytest.mark.parametrize(
    "answer",
    [
        {"fault": Cut(at=300, how="rst")},
        {"fault": Cut(at=300, how="hang")},
        {"fault": Close()},
        {"fault": NoAnswer()},
        {"fault": Raw([b"HTTP/1.1 200"])},
        {"status": 429, "headers": {"Retry-After": "7200"}},
        {"body": b""},
        {"body": [b'data: {"type":"finish"}\n\n', 30.0]},
        {"error": "overloaded"},
    ],
    ids=str,
)
@pytest.mark.parametrize("keep_text", [True, False], ids=["text", "redacted"])
async def test_every_end_is_played_as_it_was(tmp_path, answer, keep_text):
    """The class of the error, the types, sizes and times of events are those of the recorded answer."""
    first = await recorded(tmp_path / "answer.jsonl", keep_text=keep_text, **answer)
    second = await replayed(tmp_path / "answer.jsonl")
    assert type(second.error) is type(first.error)
    if keep_text:
        assert str(second.error) == str(first.error)
        assert second.events == first.events
    assert shape(second) == shape(first)


async def test_a_job_is_played_with_all_its_polls(tmp_path):
    """The records of a job come again in their order, at their times, and end its wait."""
    path = tmp_path / "job.jsonl"
    async with LocalService() as service:
        async with service.session() as session:
            Recorder(path).record(session)
            job = await session.run_job("Fix the typos in the quickstart", timeout=900)
        polls = service.requests.count("get_job")
    async with LocalService() as service:
        service.replay(path)
        async with service.session() as session:
            again = await session.run_job("Another prompt", timeout=900)
        assert service.requests.count("get_job") == polls
    assert (again.id, again.status, again.created_at) == (job.id, job.status, job.created_at)
    assert len(again.pr_link) == len(job.pr_link)
    assert "quickstart" not in path.read_text()


async def test_a_reply_that_is_left_is_recorded(tmp_path):
    """What had arrived before ``break`` is in the file, and that we closed the connection."""
    path = tmp_path / "answer.jsonl"
    async with LocalService() as service:
        service.script.ask("A long answer.", pause=1.0)
        session = service.session()
        Recorder(path).record(session)
        async with session, session.ask("Hm?") as reply:
            async for _ in reply:
                break
    line = json.loads(path.read_text().splitlines()[1])
    assert line["how"] == "left"
    assert "start" in str(line["body"])


async def test_a_full_disk_ends_the_recording_and_no_request(tmp_path, caplog):
    """The answer is whole; one logged warning says that the recording ends."""
    path = tmp_path / "answer.jsonl"
    async with LocalService() as service, service.session() as session:
        Recorder(path).record(session)
        path.unlink()
        path.mkdir()
        assert (await session.ask("How do I log in?")).text
        assert (await session.ask("How do I log in?")).text
    assert [record.levelname for record in caplog.records if "recording" in record.message] == ["WARNING"]


async def test_every_request_is_recorded_with_its_time(tmp_path):
    """``at`` is in seconds since the first request of the file, and that one is at 0."""
    path = tmp_path / "answer.jsonl"
    async with LocalService() as service, service.session() as session:
        await asyncio.sleep(7.0)
        Recorder(path).record(session)
        for pause in (1.5, 90.0, 0.0):
            service.script.ask("It is in the settings.")
            await session.ask("How do I log in?")
            await asyncio.sleep(pause)
    _, *lines = map(json.loads, path.read_text().splitlines())
    assert [line["at"] for line in lines] == [0.0, 1.5, 91.5]


async def test_one_recorder_serves_many_answers_at_once(tmp_path):
    """Each exchange is one line, whatever runs beside it."""
    path = tmp_path / "answer.jsonl"
    async with LocalService() as service, service.session() as session:
        Recorder(path).record(session)
        await asyncio.gather(*(session.ask("How do I log in?") for _ in range(20)))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 21


def test_a_file_that_cannot_be_written_is_an_error_at_once(tmp_path):
    """Before anything is sent."""
    with pytest.raises(FileNotFoundError):
        Recorder(tmp_path / "none" / "answer.jsonl")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not a recording"),
        (b"\xff\xfe\n", "is not a recording"),
        (b"[1]\n", "is not a recording"),
        (b'{"recording": 2}\n', "newer mintlify-async"),
        (b'{"recording": 1}\n{}\n', "line 2 of .* is not an exchange"),
        (b'{"recording": 1}\nnull\n', "line 2 of .* is not an exchange"),
        (b'{"recording": 1}\n[' + b"[" * 100_000, "line 2 of .* is not an exchange"),
    ],
)
def test_another_file_is_not_played(tmp_path, content, says):
    """The error names the file and the line."""
    path = tmp_path / "recording.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=says):
        LocalService().replay(path)


# What is replaced


@settings(max_examples=40)
@given(st.binary() | st.text().map(lambda text: json.dumps({"type": "x", "delta": text}).encode()))
def test_every_length_stays(body):
    """Whatever the bytes are: as many of them, and line ends at the same places."""
    for keep_text in (True, False):
        redacted = BodyRedactor(keep_text).redact(body)
        assert re.sub(rb"[^\r\n]", b"x", redacted) == re.sub(rb"[^\r\n]", b"x", body)


@settings(max_examples=40)
@given(st.recursive(st.text() | st.integers() | st.booleans() | st.none(), lambda v: st.lists(v)), st.text())
def test_redacted_json_is_json(content, text):
    """Text of any kind, with the same escapes: it is read as JSON again, and no letter is left."""
    for ascii_only in (True, False):
        event = json.dumps({"type": "data-x", "data": content, "delta": text}, ensure_ascii=ascii_only)
        body = event.encode("utf-8", "surrogatepass")
        redacted = BodyRedactor(False).redact(b"data: " + body + b"\n\n")
        read = json.loads(redacted[6:].decode("utf-8", "surrogateescape"))
        assert read["type"] == "data-x"
        assert not set(re.findall(r"[^\W_]", read["delta"])) - {"x", "é"}


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("Log in 42!", "xxx xx xx!"),
        (r"a\nb\"c\\d", r"x\nx\"x\\x"),
        (r"\u0041\u00fc\ud83d\ude00\u000b", r"\u0078\u00e9\ud83d\ude00\u000b"),
        ("aß…😀", "xé…😀"),
    ],
)
def test_text_is_replaced_by_its_like(text, redacted):
    """Letters and digits, characters of as many bytes, escapes of the same kind."""
    assert redact_text(text) == redacted


@pytest.mark.parametrize(
    ("body", "redacted"),
    [
        (b"<p>Ada</p>\n", b"<x>xxx</x>\n"),
        (b'0:"Ada"\n', b'0:"xxx"\n'),
        (b'data: {"type":"text-delta","delta":"Ada', b'data: {"type":"text-delta","delta":"xxx'),
        (
            b'data: {"inputTextDelta":"{\\"q\\": \\"Ada"}\n\n',
            b'data: {"inputTextDelta":"{\\"x\\": \\"xxx"}\n\n',
        ),
    ],
    ids=["HTML", "AI SDK 4", "a cut event", "JSON in a text"],
)
def test_no_text_is_left_of_other_bodies(body, redacted):
    """What is no event of the stream is redacted, too."""
    assert BodyRedactor(False).redact(body) == redacted


@pytest.mark.parametrize("how", ["whole", "lost", "left"])
@pytest.mark.parametrize("delta", ["word and ", "Grüße, 世界! " * 40_000], ids=["many", "one"])
async def test_a_large_answer_does_not_stop_the_event_loop(tmp_path, delta, how):
    """A thread writes 1 MB redacted: before a whole answer is returned, or else before the session ends."""
    count = 1 + 400_000 // len(delta)
    start = [{"type": "start"}, {"type": "text-start", "id": "1"}]
    deltas = [{"type": "text-delta", "id": "1", "delta": delta}] * min(count, 15_000)
    end = [{"type": "text-end", "id": "1"}, {"type": "finish"}]
    in_loop = threading.current_thread()
    threads = list[threading.Thread]()

    class Watched(Recorder):
        def keep(self, exchange: Exchange) -> None:
            threads.append(threading.current_thread())
            time.sleep(0.1)
            super().keep(exchange)

    async with LocalService() as service, service.session() as session:
        fault = Cut(at=-5) if how == "lost" else None
        body = b"".join(map(to_bytes, [*start, *deltas, *end]))
        pieces = [body[:100_000], body[100_000:]] if how == "whole" else [body[:100_000], 1.0, body[100_000:]]
        service.script.ask(body=pieces, fault=fault)
        Watched(tmp_path / "r.jsonl").record(session)
        async with session.ask("Hm?") as reply:
            with suppress(StreamInterruptedError):
                async for event in reply:
                    if how == "left" and event.type == "text-start":
                        break
        if how == "whole":
            assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 2
    line = json.loads((tmp_path / "r.jsonl").read_text().splitlines()[1])
    assert line["how"] == how
    assert threads
    assert in_loop not in threads


@pytest.mark.parametrize("keep_text", [False, True])
async def test_a_word_that_begins_as_a_key_is_masked(tmp_path, keep_text):
    """A key of a colleague in a prompt or an answer, also behind a JSON escape. The length stays."""
    key = "mint_dsc_colleague-0123"
    async with LocalService() as service, service.session() as session:
        service.script.ask(f"Use\n{key}, not {key[5:]}")
        Recorder(tmp_path / "r.jsonl", keep_text=keep_text).record(session)
        await session.ask(f'Is "{key}" mine?\n{key}')
    text = (tmp_path / "r.jsonl").read_text()
    assert key not in text
    assert ("mine?" in text) is keep_text
