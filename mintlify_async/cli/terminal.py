"""What people see: text in, lines on standard output and standard error out.

Standard output carries the answer alone. Colours and Markdown come with rich
(the extra ``cli``) on a terminal that can show them; without either, plain text.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

__all__ = ["AnswerView", "Blocks", "Progress", "Terminal", "WholeCharacters", "WithoutSuggestions"]

FENCE = "```suggestions"
"""Opens the block of follow-up suggestions; it is shown below the answer instead."""

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What could steer a terminal, line ends and tabs left out: an answer's text comes from elsewhere."""

REFRESHES_PER_SECOND = 8
"""How often a growing answer is drawn: by time, since drawing at each token is quadratic."""


class AnswerView(Protocol):
    """Shows an answer while it grows."""

    def feed(self, text: str) -> None:
        """Show *text*, the next piece."""
        ...

    def close(self) -> None:
        """Show what was held back, and end the last line."""
        ...


class WithoutSuggestions:
    """Takes the suggestions block out of a growing text.

    A line's beginning is held back only as long as it may still open the block.
    """

    def __init__(self) -> None:
        """Begin at the start of a line."""
        self._line = ""
        self._shown = 0
        self._hidden = False

    def feed(self, text: str) -> str:
        """Return what of *text*, and of what was held back, can be shown now."""
        return "".join(self._piece(piece) for piece in re.findall(r"[^\n]*\n|[^\n]+", text))

    def _piece(self, piece: str) -> str:
        self._line += piece
        ended = piece.endswith("\n")
        if self._hidden:
            self._hidden = not (ended and self._line.strip() == "```")
            self._line = "" if ended else self._line
            return ""
        if self._line.strip() == FENCE or (not ended and FENCE.startswith(self._line)):
            self._hidden = ended
            self._line = "" if ended else self._line
            return ""
        show = self._line[self._shown :]
        self._line, self._shown = ("", 0) if ended else (self._line, len(self._line))
        return show

    def close(self) -> str:
        """Return what was still held back and is no suggestions block."""
        held = "" if self._hidden or self._line.strip() == FENCE else self._line[self._shown :]
        self._line, self._shown = "", 0
        return held


class WholeCharacters:
    """Holds half a character back until its other half has come; the service may cut between the two."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._half = ""

    def feed(self, text: str) -> str:
        """Return the whole characters so far; a half that fits nothing becomes U+FFFD."""
        text = self._half + text
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        whole = text[:-1] if self._half else text
        return whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def close(self) -> str:
        """Return U+FFFD for a half that is left."""
        return "\ufffd" if self._half else ""


class Blocks:
    """Cuts a growing Markdown text at the blank lines between its blocks, never inside a code fence."""

    def __init__(self) -> None:
        """Begin empty."""
        self._lines: list[str] = []
        self._open: list[str] = []
        self._fence = ""

    def feed(self, text: str) -> list[str]:
        """Take the next piece of text; return the blocks that are finished now."""
        finished: list[str] = []
        for piece in re.findall(r"[^\n]*\n|[^\n]+", text):
            self._open.append(piece)
            if piece.endswith("\n"):
                self._end_line(finished)
        return finished

    def _end_line(self, finished: list[str]) -> None:
        line = "".join(self._open)
        self._open = []
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if mark and not self._fence:
            self._fence = mark.group(1)
        elif mark and mark.group(1).startswith(self._fence):
            self._fence = ""
        if line.strip() or self._fence:
            self._lines.append(line)
        elif self._lines:
            finished.append("".join(self._lines))
            self._lines = []

    @property
    def tail(self) -> str:
        """The block that is still growing."""
        return "".join([*self._lines, *self._open])


class _PlainView:
    """Writes each piece as it comes."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._filter = WithoutSuggestions()
        self._last = "\n"

    def _write(self, text: str) -> None:
        if text:
            self._terminal.write(text, end="")
            self._last = text[-1]

    def feed(self, text: str) -> None:
        self._write(self._filter.feed(text))

    def close(self) -> None:
        self._write(self._filter.close())
        if self._last != "\n":
            self._write("\n")


class _MarkdownView:
    """Prints finished blocks for good; only the growing one is drawn again, and by time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._filter = WithoutSuggestions()
        self._blocks = Blocks()
        self._printed = False
        self._live: Live | None = None

    def _growing(self) -> Any:
        tail = self._blocks.tail
        return _markdown(tail) if tail.strip() else ""

    def feed(self, text: str) -> None:
        if self._live is None:
            from rich.live import Live  # the extra `cli`; loaded when something is shown

            # The growing block is cut at the screen's height while it grows; whole when it is finished.
            self._live = Live(
                console=self._console,
                get_renderable=self._growing,
                refresh_per_second=REFRESHES_PER_SECOND,
                transient=True,
                vertical_overflow="crop",
            )
            self._live.start()
        for block in self._blocks.feed(self._filter.feed(CONTROLS.sub("", text))):
            self._print(block)

    def _print(self, block: str) -> None:
        if self._printed:
            self._console.print()
        self._console.print(_markdown(block))
        self._printed = True

    def close(self) -> None:
        if self._live is None:
            return
        rest = self._blocks.feed(self._filter.close())
        tail = self._blocks.tail
        self._blocks = Blocks()
        self._live.stop()
        self._live = None
        for block in [*rest, tail]:
            if block.strip():
                self._print(block)


def _markdown(text: str) -> Any:
    from rich.markdown import Markdown  # the extra `cli`; loaded when something is shown

    return Markdown(text, hyperlinks=False)  # a link's address is shown, not hidden behind its words


class Progress(Protocol):
    """Shows how a job is getting on."""

    def change(self, text: str) -> None:
        """Show a new state."""
        ...


class _Lines:
    """One line for each change, for a pipe or a log."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def change(self, text: str) -> None:
        self._terminal.note(text)


class _Spinner(_Lines):
    """One line for each change, and below them one that moves with the time."""

    def __init__(self, terminal: Terminal, bar: Any, task: Any) -> None:
        super().__init__(terminal)
        self._bar, self._task = bar, task

    def change(self, text: str) -> None:
        self._bar.console.print(text, style="dim", markup=False, highlight=False)


class Terminal:
    """Standard output and standard error, as far as they can be pleasant.

    Args:
        plain: Never Markdown nor colours.
        out: Where answers go; None takes standard output.
        err: Where everything else goes; None takes standard error.
        environ: The environment; None takes the process's own.
    """

    def __init__(
        self,
        *,
        plain: bool = False,
        out: TextIO | None = None,
        err: TextIO | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Look at what the two streams can do."""
        self.out = sys.stdout if out is None else out
        self.err = sys.stderr if err is None else err
        environ = os.environ if environ is None else environ
        self._coloured = not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        able = not plain and environ.get("TERM") != "dumb"
        self._out_console = self._console(self.out) if able else None
        self._err_console = self._console(self.err) if able else None

    def _console(self, stream: TextIO) -> Console | None:
        """Return rich's console for a terminal, or None for a pipe or where rich is not installed."""
        if not stream.isatty():
            return None
        try:
            from rich.console import Console  # the extra `cli`; plain text does without
        except ImportError:
            return None
        return Console(file=stream, no_color=not self._coloured, soft_wrap=False)

    def write(self, text: str, end: str = "\n") -> None:
        """Write a piece of the answer: as it is to a pipe, without control characters to a terminal."""
        self.out.write((CONTROLS.sub("", text) if self.out.isatty() else text) + end)
        self.out.flush()

    def note(self, text: str = "", style: str = "dim") -> None:
        """Say something that is not the answer."""
        text = CONTROLS.sub("", text)
        if self._err_console is not None:
            self._err_console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
        else:
            self.err.write(text + "\n")
            self.err.flush()

    def error(self, text: str) -> None:
        """Say what went wrong."""
        self.note(f"mintlify-async: {text}", style="bold red")

    def answer(self) -> AnswerView:
        """Return what shows one answer while it grows."""
        return _PlainView(self) if self._out_console is None else _MarkdownView(self._out_console)

    def shown(self, text: str) -> None:
        """Write a finished piece of Markdown as part of the answer."""
        if self._out_console is None:
            self.write(text)
        else:
            self._out_console.print(_markdown(CONTROLS.sub("", text)))

    @contextmanager
    def progress(self, text: str) -> Generator[Progress]:
        """Show *text* with the elapsed time, where that can be shown, while the block runs."""
        if self._err_console is None:
            yield _Lines(self)
            return
        from rich import progress  # the extra `cli`; loaded when something is shown

        columns = (
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}"),
            progress.TimeElapsedColumn(),
        )
        with progress.Progress(*columns, console=self._err_console, transient=True) as bar:
            yield _Spinner(self, bar, bar.add_task(text))
