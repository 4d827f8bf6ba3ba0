"""The example of a chat in the terminal, on a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from mintlify_async.testing import LocalService
from tests.support.child_process import ROOT, child_environment
from tests.support.terminal_screen import CTRL_C, CTRL_D, on_terminal

pytestmark = pytest.mark.real

PROGRAM = str(ROOT / "examples" / "terminal_chat.py")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the program keeps its files."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_a_conversation_is_kept(service: LocalService, folder: Path):
    """It goes on under its name on another day; Ctrl-D ends it with status 0."""
    env = child_environment(service, MINTLIFY_SITE="https://docs.acme.com")
    async with on_terminal(PROGRAM, "help", env=env) as screen:
        await screen.until("0 messages so far")
        screen.press("How do I install it?\n")
        await screen.until("**Sources**")
        await screen.until("](https://docs.acme.com/")
        await screen.until("> ")
        screen.press(CTRL_D)
        assert await screen.ended() == 0
    async with on_terminal(PROGRAM, "help", env=env) as screen:
        await screen.until("2 messages so far")
        screen.press("And then?\n")
        await screen.until("Earlier in this thread you asked: “How do I install it?”")
        await screen.until("> ")
        screen.press(CTRL_D)
        assert await screen.ended() == 0


async def test_ctrl_c_stops_an_answer(service: LocalService, folder: Path):
    """Here and at the service; at the prompt it ends nothing, and the next question begins anew."""
    words = [{"type": "text-start", "id": "0"}, {"type": "text-delta", "id": "0", "delta": "Well,\x1b[2J "}]
    service.script.ask(events=[*words, 3600.0])
    async with on_terminal(PROGRAM, env=child_environment(service)) as screen:
        await screen.until("> ")
        await screen.press_until(CTRL_C, "Ctrl-D ends the chat.")
        await screen.until("> ")
        screen.press("How do I log in?\n")
        await screen.until("Well,[2J ")
        screen.press(CTRL_C)
        await screen.until("[stopped; this question and its answer are not kept]")
        screen.press("How do I install it?\n")
        await screen.until("**Sources**")
        await screen.until("> ")
        screen.press(CTRL_D)
        assert await screen.ended() == 0
        assert "Traceback" not in screen.output
    assert [len(request.json["messages"]) for request in service.requests.of("ask")] == [1, 1]
    assert service.requests[0].client_left


async def test_an_answer_that_ends_early_does_not_look_complete(service: LocalService, folder: Path):
    """An `abort` raises no error, so the program says that the answer is not complete."""
    service.script.ask(events=[{"type": "start"}, {"type": "abort", "reason": "too long"}])
    async with on_terminal(PROGRAM, env=child_environment(service)) as screen:
        await screen.until("> ")
        screen.press("How do I log in?\n")
        await screen.until("Sorry, the answer is not complete: the service ended it early")
        await screen.until("> ")
        screen.press(CTRL_D)
        assert await screen.ended() == 0
