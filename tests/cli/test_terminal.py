"""What the terminal shows: blocks finished for good, nothing lost at any split."""

from __future__ import annotations

import io
import random
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mintlify_async.cli.terminal import Blocks, Terminal

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


class FakeTerminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def split(text: str, seed: int) -> list[str]:
    """Cut *text* into pieces of one to nine characters."""
    dice, pieces = random.Random(seed), []
    while text:
        size = dice.randint(1, 9)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


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


def answered(terminal: Terminal, pieces: list[str]) -> None:
    view = terminal.answer()
    for piece in pieces:
        view.feed(piece)
    view.close()


def test_a_pipe_gets_the_plain_text():
    """No colour, no Markdown drawn, the text as it is."""
    out = io.StringIO()
    answered(Terminal(out=out, err=io.StringIO(), environ={}), split(ANSWER, 1))
    assert out.getvalue() == ANSWER


def test_a_plain_answer_ends_its_line():
    """The prompt of the shell stands on a line of its own."""
    out = io.StringIO()
    answered(Terminal(out=out, err=io.StringIO(), environ={}), ["no line end"])
    assert out.getvalue() == "no line end\n"


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "xterm"}])
def test_a_terminal_shows_all_of_it(environ, monkeypatch):
    """Every word of the answer is on the screen at the end, and NO_COLOR means no colour."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = FakeTerminal()
    answered(Terminal(out=out, err=FakeTerminal(), environ=environ), split(ANSWER, 2))
    seen = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", out.getvalue())
    for words in ("login", "a = 1", "b = 2", "one", "two", "Last words."):
        assert words in seen
    assert bool(re.search(r"\x1b\[[\d;]*3[0-8]", out.getvalue())) == ("NO_COLOR" not in environ)


def test_a_dumb_terminal_gets_plain_text():
    """TERM=dumb can show no Markdown."""
    out = FakeTerminal()
    answered(Terminal(out=out, err=FakeTerminal(), environ={"TERM": "dumb"}), [ANSWER])
    assert out.getvalue() == ANSWER


def test_notes_go_to_standard_error():
    """Standard output carries the answer alone."""
    out, err = io.StringIO(), io.StringIO()
    terminal = Terminal(out=out, err=err, environ={})
    terminal.note("[bold]as it is[/bold]")
    with terminal.progress("job") as progress:
        progress("active")
    terminal.error("away")
    assert (out.getvalue(), err.getvalue()) == ("", "[bold]as it is[/bold]\nactive\nmintlify-async: away\n")


def test_progress_on_a_terminal_keeps_each_change():
    """What has happened stays on the screen above the line that moves."""
    err = FakeTerminal()
    with Terminal(out=io.StringIO(), err=err, environ={"TERM": "xterm"}).progress("job j1") as progress:
        progress("j1  active")
        progress("j1  completed")
    assert "j1  active" in err.getvalue()
    assert "j1  completed" in err.getvalue()


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}])
def test_an_answer_cannot_steer_the_terminal(environ, monkeypatch):
    """Escape sequences in the service's text never reach a terminal; line ends and tabs do."""
    monkeypatch.setenv("TERM", environ["TERM"])
    out, err = FakeTerminal(), FakeTerminal()
    terminal = Terminal(out=out, err=err, environ=environ)
    answered(terminal, ["a\x1b]0;title\x07b\x9b2J\tc\n"])
    terminal.shown("\x1b[2Jshown")
    terminal.note("\x1b[2Jnote")
    assert not re.search(r"\x1b\]0|\x07|\x9b|\x1b\[2J", out.getvalue() + err.getvalue())
    assert "shown" in out.getvalue()


def test_a_pipe_gets_every_byte():
    """What goes to a program is the service's text, unchanged."""
    out = io.StringIO()
    answered(Terminal(out=out, err=io.StringIO(), environ={}), ["a\x1b[2Jb\n"])
    assert out.getvalue() == "a\x1b[2Jb\n"


def test_without_rich_everything_is_plain(monkeypatch):
    """The extra is a comfort: a terminal without it gets the text."""
    monkeypatch.setitem(sys.modules, "rich.console", None)
    out, err = FakeTerminal(), FakeTerminal()
    terminal = Terminal(out=out, err=err, environ={"TERM": "xterm"})
    answered(terminal, split(ANSWER, 3))
    terminal.note("a note")
    with terminal.progress("job") as progress:
        progress("active")
    assert (out.getvalue(), err.getvalue()) == (ANSWER, "a note\nactive\n")
