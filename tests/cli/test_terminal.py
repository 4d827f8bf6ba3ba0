"""What the terminal shows: blocks finished for good, nothing lost at any split."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.live import Live

from mintlify_async.cli.terminal import Blocks, Terminal
from mintlify_async.testing import LocalService
from tests.support.child_process import child_environment
from tests.support.terminal_screen import CTRL_C, lines_left, on_terminal

ANSWER = """\
Use the **login** page.

```python
a = 1

b = 2
```

1. one
2. two

Last words.
"""


PIECES = re.findall(r"(?s).{1,7}", ANSWER)


class FakeTerminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch):
    """A terminal of 40 columns that rich draws on."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm-256color")
    return FakeTerminal()


@given(st.lists(st.text("ab`~ \n", max_size=8)))
@settings(max_examples=200, deadline=None)
def test_blocks_lose_nothing(pieces):
    """The finished blocks and the growing one hold every line that is not blank, in order."""
    blocks = Blocks()
    finished = [block for piece in pieces for block in blocks.feed(piece)]
    said = "".join([*finished, blocks.tail])
    assert [line for line in said.split("\n") if line.strip()] == [
        line for line in "".join(pieces).split("\n") if line.strip()
    ]


def test_a_code_block_is_one_block():
    """A blank line in a fence ends nothing."""
    finished = Blocks().feed(ANSWER)
    assert finished[1] == "```python\na = 1\n\nb = 2\n```\n"


async def answered(terminal: Terminal, pieces: list[str]) -> None:
    with terminal.answer() as feed:
        for piece in pieces:
            feed(piece)


@pytest.mark.parametrize(
    ("stream", "term", "rich"),
    [(io.StringIO, "xterm", True), (FakeTerminal, "dumb", True), (FakeTerminal, "xterm", False)],
    ids=["pipe", "dumb terminal", "without rich"],
)
@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (PIECES, ANSWER),
        (["no line end"], "no line end\n"),
        (["a\x1b]0;title\x07\x1b[2Jb\x9b2J\r\n", "\tc\n"], "a]0;title[2Jb2J\n\tc\n"),
    ],
    ids=["Markdown", "no line end", "controls"],
)
async def test_plain_output_is_the_text(monkeypatch, stream, term, rich, pieces, text):
    """No colour, no Markdown drawn, no control characters, and the answer ends its line.

    Everything else is on standard error: a note is one line, whatever its text.
    """
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setenv("TERM", term)
    out, err = stream(), stream()
    terminal = Terminal(out=out, err=err)
    await answered(terminal, pieces)
    with terminal.progress("job"):
        terminal.note("[bold]as it is[/bold]\n::error::\x1b[2J")
    terminal.error("away")
    assert out.getvalue() == text
    assert err.getvalue() == "[bold]as it is[/bold] ::error::[2J\nmintlify-async: away\n"


async def test_no_text_can_steer_the_terminal(monkeypatch, screen):
    """What the service says is on the screen without escape sequences, and is no markup of rich's.

    A line that is written during progress stands above the line of the progress, which is gone at the end.
    """
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal(out=screen, err=screen)
    await answered(terminal, ["a\x1b]0;title\x07b\x9b2Jc\n"])
    with terminal.progress("job [red]\x1b[2J"):
        terminal.note("j1\x1b[2J [red]active")
        terminal.write("job_1  [active]  :smile:")
    assert not re.search(r"\x1b\]0|\x07|\x9b|\x1b\[2J", screen.getvalue())
    left = [line for line in lines_left(screen.getvalue(), 40) if line]
    assert left == ["a]0;titleb2Jc", "j1[2J [red]active", "job_1  [active]  :smile:"]


@pytest.mark.parametrize("colours", [True, False])
async def test_a_terminal_shows_all_of_it(colours, monkeypatch, screen):
    """Every word of the answer is on the screen at the end, and NO_COLOR means no colour."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not colours:
        monkeypatch.setenv("NO_COLOR", "1")
    await answered(Terminal(out=screen, err=FakeTerminal()), PIECES)
    seen = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", screen.getvalue())
    for words in ("login", "a = 1", "b = 2", "one", "two", "Last words."):
        assert words in seen
    assert bool(re.search(r"\x1b\[[\d;]*3[0-8]", screen.getvalue())) == colours


def test_json_is_what_the_service_sent():
    """Programs get every character, escaped where JSON escapes it."""
    out = FakeTerminal()
    Terminal(out=out, err=io.StringIO()).record({"text": "a\x1b[2J\x7f\ud83d"})
    assert json.loads(out.getvalue()) == {"text": "a\x1b[2J\x7f\ud83d"}


WORDS = [f"word{number:02}" for number in range(40)]


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("moment", range(4, 41, 4))
async def test_every_line_is_on_the_screen_once(width, moment, monkeypatch, screen):
    """Notes between the pieces of a growing paragraph stand above it, and an interruption leaves it once."""
    regions: list[Live] = []

    class Region(Live):
        def start(self, refresh: bool = False) -> None:
            regions.append(self)
            super().start(refresh)

    monkeypatch.setattr("rich.live.Live", Region)
    monkeypatch.setenv("COLUMNS", str(width))
    terminal = Terminal(out=screen, err=screen)
    with terminal.answer() as feed:
        for number, word in enumerate(WORDS[:moment]):
            feed(word + ("\n\n" if number % 17 == 16 else " "))
            if number % 3 == 0:
                regions[0].refresh()  # as its timer does
                terminal.note(f"note{number:02}")
    left = "\n".join(lines_left(screen.getvalue(), width))
    assert re.findall(r"word\d\d", left) == WORDS[:moment]
    assert re.findall(r"note\d\d", left) == [f"note{number:02}" for number in range(0, moment, 3)]


async def test_a_growing_answer_is_drawn_without_a_thread(screen, virtual):
    """A thread that draws between the two halves of a print leaves lines on the screen."""
    threads = set(threading.enumerate())
    with Terminal(out=screen, err=screen).answer() as feed:
        while "waiting for the answer  1 s" not in screen.getvalue():
            await asyncio.sleep(0.01)
        feed("Let me ")
        assert set(threading.enumerate()) == threads
        while "Let me" not in screen.getvalue():  # although nothing follows
            await asyncio.sleep(0.01)
    assert [line for line in lines_left(screen.getvalue(), 40) if line] == ["Let me"]


async def test_a_note_does_not_stand_in_a_line_of_the_answer():
    """On one screen, a plain answer's line ends before a note; a pipe gets the answer as it is."""
    screen, pipe = FakeTerminal(), io.StringIO()
    for out in (screen, pipe):
        terminal = Terminal(plain=True, out=out, err=screen)
        with terminal.answer() as feed:
            feed("Let me look.")
            terminal.note("search: login")
            feed("It is here.")
    assert screen.getvalue().startswith("Let me look.\nsearch: login\nIt is here.\n")
    assert pipe.getvalue() == "Let me look.It is here.\n"


def environment(service: LocalService) -> dict[str, str]:
    return child_environment(service, TERM="xterm-256color", COLUMNS=None, LINES=None, NO_COLOR="1")


@pytest.mark.real
async def test_keys_do_not_shift_a_growing_paragraph(service):
    """What is typed before and during an answer, Ctrl-C too, is not shown; afterwards it is again."""
    width, full = 40, "f" * 40  # the cursor stands at the end of this line, and any key would begin another
    delta = {"type": "text-delta", "id": "1", "delta": f"First {full}"}
    service.script.ask(events=[{"type": "start"}, {"type": "text-start", "id": "1"}, 0.5, delta, 60.0])
    command = ("-m", "mintlify_async", "ask", "Hm?")
    async with on_terminal(*command, env=environment(service), width=width) as screen:
        while not service.requests:
            await asyncio.sleep(0.01)
        screen.press("early\n")
        await screen.until(full)
        screen.press("late\n" + CTRL_C)
        assert await screen.ended() == 130
        assert screen.shows_keys()
        left = [line for line in lines_left(screen.output, width) if line]
    assert left == ["First", full, "interrupted"]


IN_BACKGROUND = """
import os, sys
from mintlify_async.cli.terminal import hide_keys
child = os.fork()
if child == 0:
    os.setpgid(0, 0)  # a shell's `&`
    hide_keys(sys.stdout)()
    os._exit(0)
_, status = os.waitpid(child, os.WUNTRACED)
print("stopped" if os.WIFSTOPPED(status) else "went on", flush=True)
"""


@pytest.mark.real
async def test_a_command_in_the_background_is_not_stopped(service):
    """A background process that changes its terminal is stopped by the system; this one changes nothing."""
    async with on_terminal("-c", IN_BACKGROUND, env=environment(service)) as screen:
        await screen.until("went on")
        assert screen.shows_keys()


@pytest.mark.real
async def test_the_result_of_a_wait_is_printed_once(service):
    """On a terminal that shows both streams; its reference and states stand above it."""
    command = ("-m", "mintlify_async", "job", "create", "Fix", "--wait")
    async with on_terminal(*command, env=environment(service), width=120) as screen:
        assert await screen.ended() == 0
        left = lines_left(screen.output, 120)
    assert len([line for line in left if "completed" in line]) == 1
    assert len([line for line in left if line.endswith("  active")]) == 1


@pytest.mark.real
@pytest.mark.parametrize(("last_look", "status"), [("completed", 0), ("active", 130)])
async def test_keys_are_shown_again_after_a_wait(service, last_look, status):
    """They are hidden only while the elapsed time is shown, also if Ctrl-C ends the wait."""
    service.script.job("active", last_look)
    command = ("-m", "mintlify_async", "job", "create", "Fix", "--wait")
    async with on_terminal(*command, env=environment(service), width=120) as screen:
        await screen.until("active")
        assert not screen.shows_keys()
        if last_look == "active":
            screen.press(CTRL_C)
        assert await screen.ended() == status
        assert screen.shows_keys()
