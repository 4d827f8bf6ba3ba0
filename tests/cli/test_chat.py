"""``chat`` as a person uses it: lines in a pipe, keys on a real terminal, another day."""

from __future__ import annotations

import asyncio
import signal
import stat
import termios
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import mintlify_async
from mintlify_async.testing import Cut, LocalService
from tests.support.child_process import LONGEST_SECONDS, child_environment
from tests.support.command_line import Ended, run, start
from tests.support.terminal_screen import CTRL_C, CTRL_D, Screen, on_terminal

BOTH = "How do I create a job?\n\nAnd how do I wait for it?\n"


def settings(service: LocalService, home: Path, **changes: str) -> dict[str, str]:
    """Return a child's environment, with a place of its own for what it keeps."""
    terminal = {"TERM": "xterm-256color", "NO_COLOR": "1"}
    return child_environment(service, XDG_DATA_HOME=str(home), **terminal, **changes)


async def talk(service: LocalService, home: Path, lines: str, *arguments: str) -> Ended:
    """Give *lines* to ``chat`` on its standard input; return its status, output and errors."""
    ended = await run("chat", *arguments, service=service, stdin=lines, XDG_DATA_HOME=str(home))
    assert "Traceback" not in ended.err
    return ended


@pytest.mark.parametrize("days", [[BOTH], BOTH.splitlines(keepends=True)], ids=["one day", "two days"])
async def test_history_and_thread_go_on(service, tmp_path, days):
    """The second question carries the first with its answer, and the thread with its key.

    So it does in another process, because a folder that is its owner's alone keeps them.
    """
    for lines in days:
        status, out, err = await talk(service, tmp_path, lines, "work")
        assert status == 0, err
    assert "Earlier in this thread you asked" in out
    first, second = (request.json for request in service.requests)
    assert "threadId" not in first
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "user"]
    assert second["threadId"]
    assert second["threadKey"]
    assert second["messages"][0]["id"] == first["messages"][0]["id"]
    assert stat.S_IMODE((tmp_path / "mintlify-async").stat().st_mode) == 0o700


async def test_a_thread_that_is_gone_is_begun_anew(service, tmp_path):
    """A conversation that the service has forgotten goes on with its history, and says so."""
    await talk(service, tmp_path, "How do I create a job?\n", "work")
    service.threads.clear()
    status, out, err = await talk(service, tmp_path, "And how do I wait for it?\n", "work")
    assert status == 0, err
    assert "Earlier in this thread you asked" in out
    refused, asked = (request.json for request in service.requests[1:])
    assert "threadId" in refused
    assert "threadId" not in asked
    assert refused["messages"] == asked["messages"]


@pytest.mark.real
async def test_a_connection_that_ended_at_the_prompt_is_not_used(service, tmp_path):
    """The prompt stops the loop, which must see what happened meanwhile before it sends."""
    process = await start("chat", env=settings(service, tmp_path))
    for count in range(1, 4):
        process.stdin.write(b"How do I create a job?\n")
        while process.returncode is None and (len(service.requests) < count or service.answering):
            await asyncio.sleep(0.01)
        async with service.refusing():  # drops the connections that idle
            await asyncio.sleep(0.05)
    _, err = await process.communicate(b"")
    assert process.returncode == 0, err.decode()
    assert len(service.requests) == 3


async def test_users_and_files_are_kept_apart(service, tmp_path):
    """Another user's conversation, and another store's, begin anew."""
    for more in ([], ["--fp", "other"], ["--store", str(tmp_path / "other.db")]):
        assert (await talk(service, tmp_path, "How do I create a job?\n", "work", *more))[0] == 0
    assert [len(request.json["messages"]) for request in service.requests] == [1, 1, 1]


async def test_a_cut_turn_is_not_kept(service, tmp_path):
    """The error is told, the next question goes on from the last whole turn, the status tells of it."""
    service.script.ask()
    service.script.ask(fault=Cut(at=-300, how="rst"))
    status, _, err = await talk(
        service, tmp_path, "How do I create a job?\nLost?\nAnd how do I wait for it?\n"
    )
    assert status == 1
    assert err
    assert [len(request.json["messages"]) for request in service.requests] == [1, 3, 3]


@pytest.mark.real
async def test_a_conversation_without_a_name_is_not_kept(service, tmp_path):
    """It says how to keep one."""
    async with on_terminal("-m", "mintlify_async", "chat", env=settings(service, tmp_path)) as screen:
        await screen.until("is not kept; `mintlify-async chat NAME` keeps one")
    assert not (tmp_path / "mintlify-async").exists()


async def test_a_broken_store_is_named_in_one_line(service, tmp_path):
    """A file that is no store: its name and what is wrong, before a question is asked."""
    file = tmp_path / "notes.txt"
    file.write_text("These are my notes. " * 100)
    status, out, err = await talk(service, tmp_path, "Hm?\n", "work", "--store", str(file))
    assert (status, out) == (1, "")
    (line,) = [line for line in err.splitlines() if line.startswith("mintlify-async: ")]
    assert str(file) in line
    assert "not a database" in line
    assert service.requests == []


@pytest.fixture
async def screen(service, tmp_path) -> AsyncIterator[Screen]:
    """``chat work`` on a terminal of its own."""
    command = ("-m", "mintlify_async", "chat", "work", "--plain")
    async with on_terminal(*command, env=settings(service, tmp_path)) as screen:
        yield screen


@pytest.mark.real
async def test_ctrl_c_stops_an_answer_and_keeps_the_conversation(service, screen):
    """The half answer is dropped, the next question is answered, Ctrl-D ends it with 0."""
    await screen.until("> ")
    screen.press("How do I create a job?\n")
    await screen.until("Sources:")
    await screen.until("> ")
    started = [{"type": "start"}, {"type": "text-start", "id": "1"}]
    service.script.ask(events=[*started, {"type": "text-delta", "id": "1", "delta": "Half of"}, 60.0])
    screen.press("Stopped?\n")
    await screen.until("Half of")
    screen.press(CTRL_C)
    await screen.until("stopped")
    await screen.until("> ")
    screen.press("And how do I wait for it?\n")
    await screen.until("Earlier in this thread you asked")
    await screen.until("> ")
    screen.press(CTRL_D)
    assert await screen.process.wait() == 0
    assert [len(request.json["messages"]) for request in service.requests] == [1, 3, 3]


@pytest.mark.real
async def test_ctrl_c_at_the_prompt_ends_nothing(screen, tmp_path):
    """It clears the line and says how to end; the first line says where the conversation is kept."""
    await screen.until(str(tmp_path / "mintlify-async" / "chats.db"))
    await screen.until("> ")
    screen.press("half a question")
    await screen.until("half a question")  # a Ctrl-C takes away what is typed and not yet read
    screen.press(CTRL_C)
    await screen.until("Ctrl-D ends the conversation")
    await screen.until("> ")
    screen.press(CTRL_D)
    assert await screen.process.wait() == 0


async def test_what_is_kept_is_a_conversation(service, tmp_path):
    """The file can be read from Python: the same store, the same owner, the same name."""
    await talk(service, tmp_path, "How do I create a job?\n", "work")
    store = mintlify_async.SQLiteStore(tmp_path / "mintlify-async" / "chats.db")
    async with service.session() as session:
        chat = await session.conversation(owner="anonymous", store=store, id="work").load()
    await store.close()
    assert [message.role for message in chat.messages] == ["user", "assistant"]


async def test_a_line_of_one_word_with_a_slash_is_a_command(service, tmp_path):
    """Nothing of it is sent: each question costs. An unknown one lists the commands, /exit ends."""
    lines = "/help\n/reset\n/undo\n/sources\nHow do I create a job?\n/SOURCES\n/undo\n/exit\nAnd then?\n"
    status, out, err = await talk(service, tmp_path, lines, "work")
    assert status == 0, err
    assert service.requests.count("ask") == 1
    assert out.count("Sources:") == 2
    for says in (
        "/reset is no command",
        "there is no question to take back",
        "there is no answer with sources",
        "taken back: How do I create a job?",
    ):
        assert says in err
    assert err.count("/sources  ") == 2  # of /help and of /reset
    await talk(service, tmp_path, "And then?\n", "work")
    assert len(service.requests[-1].json["messages"]) == 1


async def test_new_begins_a_conversation_and_keeps_the_other(service, tmp_path):
    """Its questions carry no history, and the kept conversation goes on another day."""
    await talk(service, tmp_path, "One?\n/new\nTwo?\n", "work")
    await talk(service, tmp_path, "Three?\n", "work")
    questions = [
        [one["parts"][0]["text"] for one in request.json["messages"]] for request in service.requests
    ]
    assert [texts[-1] for texts in questions] == ["One?", "Two?", "Three?"]
    assert [len(texts) for texts in questions] == [1, 1, 3]


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("/docs/login is broken?", "/docs/login is broken?"),
        ("/docs/login", "/docs/login"),
        ("//help", "/help"),
        ("// what is this?", "// what is this?"),
        ("/help me", "/help me"),
        ("/", "/"),
        ("/v2", "/v2"),
    ],
)
async def test_other_lines_with_a_slash_are_questions(service, tmp_path, line, sent):
    """Two slashes send a word with one."""
    assert (await talk(service, tmp_path, line + "\n"))[0] == 0
    assert service.requests[0].json["messages"][0]["parts"][0]["text"] == sent


@pytest.mark.real
@pytest.mark.parametrize("moment", ["load", "prompt", "answer"])
async def test_sigterm_ends_it_in_order(service, tmp_path, moment):
    """Status 143 without a traceback. The terminal shows typed keys again."""
    command = ("-m", "mintlify_async", "chat", *(["work"] if moment == "load" else []))
    if moment == "load":
        command = ("-c", SLOW_LOAD, *command[2:])
    async with on_terminal(*command, env=settings(service, tmp_path)) as screen:
        if moment == "load":
            await screen.until("loading")
        else:
            await screen.until("> ")
        if moment == "answer":
            started = [{"type": "start"}, {"type": "text-start", "id": "1"}]
            service.script.ask(events=[*started, {"type": "text-delta", "id": "1", "delta": "Half of"}, 60.0])
            screen.press("How do I create a job?\n")
            await screen.until("Half of")
        await asyncio.sleep(0.1)  # readline begins to wait a moment after its prompt
        screen.process.terminate()
        async with asyncio.timeout(LONGEST_SECONDS):
            assert await screen.ended() == 143
        assert "Traceback" not in screen.output
        assert termios.tcgetattr(screen.descriptor)[3] & termios.ECHO
    assert not service.answering


PAUSE_BEFORE_KEYS = """
import ctypes, readline, sys
from mintlify_async.cli import main

hook = ctypes.c_void_p.in_dll(ctypes.CDLL(readline.__file__), "rl_pre_input_hook")
hook.value = ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p).value
sys.exit(main())
"""
"""Lets readline wait for a signal after it shows the prompt and before it waits for keys."""


@pytest.mark.real
async def test_a_signal_before_the_prompt_waits_for_keys(service, tmp_path):
    """It is seen without a key: each Ctrl-C gives a new prompt, and SIGTERM ends the command."""
    async with on_terminal("-c", PAUSE_BEFORE_KEYS, "chat", env=settings(service, tmp_path)) as screen:
        for _ in range(3):
            await screen.until("> ")
            await asyncio.sleep(0.2)
            screen.process.send_signal(signal.SIGINT)
            await screen.until("Ctrl-D ends the conversation", seconds=20)
        await screen.until("> ")
        await asyncio.sleep(0.2)
        screen.process.terminate()
        async with asyncio.timeout(20):
            assert await screen.ended() == 143


SLOW_LOAD = """
import asyncio, sys
from mintlify_async import Conversation
from mintlify_async.cli import main

async def load(self):
    print("loading", flush=True)
    await asyncio.sleep(60)

Conversation.load = load
sys.exit(main())
"""
