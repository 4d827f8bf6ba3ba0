"""``ask``: what it sends, what it prints where, and the thread that it saves."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import stat
import sys

import pytest

from tests.support.child_process import child_environment
from tests.support.command_line import run, start


def text_events(*texts: str):
    """Return the events of an answer with these texts, one character per event."""
    events = [{"type": "start"}]
    for id, text in enumerate(texts):
        deltas = [{"type": "text-delta", "id": str(id), "delta": character} for character in text]
        events += [{"type": "text-start", "id": str(id)}, *deltas, {"type": "text-end", "id": str(id)}]
    return events


FINISH = {"type": "finish"}
SUGGESTIONS = "```suggestions\n(7. Use `sso`)[/sso]\n```"


@pytest.mark.parametrize(
    ("words", "stdin", "sent"),
    [
        (["How", "do", "I", "log", "in"], "", "How do I log in"),
        (["-"], "From a pipe?", "From a pipe?"),
        ([], "From a pipe?", "From a pipe?"),
    ],
)
async def test_the_question_is_sent_with_the_interfaces_defaults(service, words, stdin, sent):
    """The words are one question; without words, standard input is."""
    ended = await run("ask", *words, service=service, stdin=stdin)
    assert ended.status == 0, ended.err
    (request,) = service.requests
    assert request.json["messages"][0]["parts"] == [{"type": "text", "text": sent}]
    assert (request.json["fp"], request.json["retrievalPageSize"]) == ("anonymous", 5)


async def test_each_option_is_a_field_of_the_interface(service, tmp_path):
    """User, results, page, and the code that the question is about."""
    code = tmp_path / "login.py"
    code.write_text("login()")
    options = ["--fp", "u1", "--results", "3", "--path", "/login", "--code", str(code)]
    ended = await run("ask", "Right?", *options, "--domain", service.domain, service=service)
    assert ended.status == 0, ended.err
    (request,) = service.requests
    assert {name: request.json[name] for name in ("fp", "retrievalPageSize", "currentPath", "context")} == {
        "fp": "u1",
        "retrievalPageSize": 3,
        "currentPath": "/login",
        "context": [{"type": "code", "value": "login()", "path": str(code)}],
    }


@pytest.mark.parametrize("site", ["", "https://docs.acme.com"])
async def test_people_read_texts_sources_and_suggestions(service, site):
    """Suggestions stand below, wherever they came; pages are listed once, with a site by their full URL."""
    page = {"path": "/login#sso", "metadata": {"title": "Log in"}}
    search = {"toolCallId": "1", "toolName": "search", "input": {"query": "log in"}}
    service.script.ask(
        events=[
            *text_events("Let me look that up.\n"),
            {"type": "tool-input-available", **search},
            {"type": "tool-output-available", "toolCallId": "1", "output": {"results": [page]}},
            {"type": "source-url", "sourceId": "s", "url": "/login", "title": "Log in"},
            *text_events("", "## Log in\n\nPress \ud83d\ude00.", SUGGESTIONS)[1:],
            FINISH,
        ]
    )
    ended = await run("ask", "How do I log in?", service=service, MINTLIFY_SITE=site)
    assert ended.out == (
        "Let me look that up.\n\n## Log in\n\nPress 😀.\n"
        f"\nSources:\n\n- Log in — {site}/login\n  - #sso — {site}/login#sso\n"
        f"\nSee next:\n\n- 7. Use `sso` — {site}/sso\n"
    )
    assert ended.err == ""


async def test_json_is_one_event_a_line(service):
    """Programs read what the service sent; the thread's key is not in it."""
    ended = await run("ask", "--json", "How do I log in?", service=service)
    events = [json.loads(line) for line in ended.out.splitlines()]
    assert (events[0]["type"], events[-1]["type"]) == ("start", "finish")
    assert not re.search("thread_key_[0-9a-f]+", ended.out)


@pytest.mark.parametrize(("encoding", "expected"), [("utf-8", "\U0001f600é\ufffd\n"), ("ascii", "???\n")])
async def test_characters_that_the_output_lacks_are_replaced(service, encoding, expected):
    """So is half of a character; one that was cut between two events is complete."""
    service.script.ask(events=[*text_events("\ud83d\ude00é\ud83d"), FINISH])
    ended = await run("ask", "Hm?", service=service, encoding=encoding)
    assert (ended.out, ended.err) == (expected, "")


@pytest.mark.parametrize("end", [[], [{"type": "abort"}]], ids=["breaks off", "is ended early"])
async def test_an_answer_that_is_not_complete(service, end):
    """The text that had arrived is printed, and the status says that it is not complete."""
    service.script.ask(body=[*text_events("Half")[:-1], *end])
    ended = await run("ask", "Hm?", service=service)
    assert (ended.status, ended.out) == (1, "Half\n")
    assert ended.err


async def test_a_thread_continues(service, tmp_path):
    """--thread sends what --save wrote; the file is the user's alone, even over an open file."""
    file = tmp_path / "thread.json"
    file.write_text("x" * 5000)
    file.chmod(0o644)
    first = await run("ask", "--save", str(file), "How do I log in?", service=service)
    second = await run("ask", "--thread", str(file), "--save", str(file), "And by SSO?", service=service)
    assert (first.status, second.status) == (0, 0), second.err
    thread = json.loads(file.read_text())
    assert {name: service.requests[1].json[name] for name in thread} == thread
    assert set(thread) == {"threadId", "threadKey"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("option", "name"),
    [("--save", "folder"), ("--save", "no/where.json"), ("--thread", "foreign.json"), ("--thread", "binary")],
)
async def test_files_are_checked_before_the_question(service, tmp_path, monkeypatch, option, name):
    """One line with the file; nothing is sent, and nothing is paid for."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "foreign.json").write_text('{"name": "package", "version": 1}')
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    monkeypatch.chdir(tmp_path)
    ended = await run("ask", option, name, "Hm?", service=service)
    assert (ended.status, ended.out) == (2, "")
    assert name in ended.err
    assert len(ended.err.splitlines()) == 1
    assert service.requests == []


@pytest.mark.parametrize("answer", [{"status": 500}, {"events": [{"type": "start"}, FINISH]}])
async def test_without_a_thread_the_file_stays_as_it_is(service, tmp_path, answer):
    """A failed question, or an answer that names no thread; a new file is not left behind."""
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text('{"threadId": "t"}')
    service.script.ask(**answer, times=None)
    for file in (old, new):
        ended = await run("ask", "--save", str(file), "Hm?", service=service)
        assert ended.status == ("status" in answer)
        assert ended.err
    assert old.read_text() == '{"threadId": "t"}'
    assert list(tmp_path.iterdir()) == [old]


@pytest.mark.real
async def test_a_closed_pipe_ends_it_quietly(service):
    """`| head -1` is not an error."""
    data = [{"type": "data-x", "data": "y" * 5000} for _ in range(400)]
    service.script.ask(events=[{"type": "start"}, *data, FINISH])
    command = f"{sys.executable} -m mintlify_async ask --json 'Hm?' | head -1; exit ${{PIPESTATUS[0]}}"
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", command),
        env=child_environment(service),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (141, "")
    assert json.loads(out)["type"] == "start"


@pytest.mark.real
async def test_a_signal_in_a_stream(service):
    """It ends with the shell's status and without a traceback, and the answer's connection is closed."""
    service.script.ask(events=[*text_events("Half")[:-1], 60.0])
    process = await start("ask", "Hm?", env=child_environment(service))
    assert await process.stdout.readexactly(4) == b"Half"
    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()
    assert (process.returncode, out) == (130, b"\n")
    assert b"Traceback" not in err
    await service.until(lambda service: not service.answering)
    assert service.requests[-1].client_left
