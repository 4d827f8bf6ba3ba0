"""Output to the terminal: answers on standard output, everything else on standard error.

Colours and Markdown need rich (the extra ``cli``) and a terminal that can show them; otherwise the output is
plain text. A region that is drawn again and again needs the lines below it for itself: while there is one,
notes are printed above it, and typed keys are not shown.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters but line ends and tabs: the text of an answer must not control the terminal."""

REFRESHES_PER_SECOND = 8
"""How often a growing answer is drawn. Drawing it at each piece would take quadratic time."""


def hide_keys(stream: IO[str]) -> Callable[[], None]:
    """Stop the terminal from showing typed keys, such as ``^C``, which still work.

    Returns:
        A function that shows them again.
    """
    try:
        import termios  # POSIX only

        descriptor = stream.fileno()
        before = termios.tcgetattr(descriptor)
    except (ImportError, OSError):
        return lambda: None

    def apply(attributes: list[Any]) -> None:
        with suppress(OSError, termios.error):
            if os.tcgetpgrp(descriptor) == os.getpgrp():  # a background process would be stopped for it
                termios.tcsetattr(descriptor, termios.TCSANOW, attributes)

    hidden = list(before)
    hidden[3] &= ~termios.ECHO  # 3 is the place of the local modes
    apply(hidden)
    return lambda: apply(before)


class Blocks:
    """Splits growing Markdown text at the blank lines between its blocks, but not inside code blocks."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._open: list[str] = []
        self._fence = ""

    def feed(self, text: str) -> list[str]:
        """Add a piece of text; return the blocks that are finished now."""
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
        """The block that is not finished yet."""
        return "".join([*self._lines, *self._open])


class _PlainView:
    """Writes each piece as it arrives."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def feed(self, text: str) -> None:
        self._terminal.write(text, end="")

    def close(self) -> None:
        self._terminal.end_line()


class _MarkdownView:
    """Prints each block once when it is finished; only the growing one is drawn again and again."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._blocks = Blocks()
        self._printed = False
        self._live: Live | None = None
        self._drawing: asyncio.TimerHandle | None = None
        # From now on: keys that are typed before the first text would move its beginning.
        self._show_keys = hide_keys(console.file)

    def _growing(self) -> Any:
        tail = self._blocks.tail
        return _markdown(tail) if tail.strip() else ""

    def feed(self, text: str) -> None:
        if self._live is None:
            from rich.live import Live

            # The growing block is cropped to the screen; the finished one is printed whole.
            self._live = Live(
                console=self._console,
                get_renderable=self._growing,
                auto_refresh=False,  # its thread draws between the two halves of a print
                transient=True,
                vertical_overflow="crop",
            )
            self._live.start()
        for block in self._blocks.feed(CONTROLS.sub("", text)):
            self._print(block)
        if self._drawing is None:
            self._drawing = asyncio.get_running_loop().call_later(1 / REFRESHES_PER_SECOND, self._draw)

    def _draw(self) -> None:
        self._drawing = None
        if self._live is not None:
            self._live.refresh()

    def _print(self, block: str) -> None:
        if self._printed:
            self._console.print()
        self._console.print(_markdown(block))
        self._printed = True

    def close(self) -> None:
        try:
            self._finish()
        finally:
            self._show_keys()

    def _finish(self) -> None:
        if self._drawing is not None:
            self._drawing.cancel()
        if self._live is None:
            return
        tail = self._blocks.tail
        self._blocks = Blocks()
        self._live.stop()
        self._live = None
        if tail.strip():
            self._print(tail)


def _markdown(text: str) -> Any:
    from rich.markdown import Markdown

    return Markdown(text, hyperlinks=False)  # print the address of a link beside its text


class Terminal:
    """Standard output and standard error, or the streams and environment given in their place.

    *plain* means neither Markdown nor colours.
    """

    def __init__(
        self,
        *,
        plain: bool = False,
        out: TextIO | None = None,
        err: TextIO | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.out = sys.stdout if out is None else out
        self.err = sys.stderr if err is None else err
        self._coloured = not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        able = not plain and environ.get("TERM") != "dumb"
        self._one_screen = self.out.isatty() and self.err.isatty()
        self._in_line = False  # whether standard output stands in the middle of a line
        self._out_console = self._console(self.out) if able else None
        self._err_console = self._console(self.err) if able else None
        if self._one_screen:  # one console draws both, so that a note does not land in a growing answer
            self._err_console = self._out_console

    def _console(self, stream: TextIO) -> Console | None:
        """Return rich's console for a terminal; None for a pipe, or if rich is not installed."""
        if not stream.isatty():
            return None
        try:
            from rich.console import Console
        except ImportError:
            return None
        return Console(file=stream, no_color=not self._coloured, soft_wrap=False)

    def write(self, text: str, end: str = "\n") -> None:
        """Write a piece of the answer, without control characters."""
        text = CONTROLS.sub("", text) + end
        self.out.write(text)
        self.out.flush()
        if text:
            self._in_line = not text.endswith("\n")

    def end_line(self) -> None:
        """End the line of standard output, if one was begun."""
        if self._in_line:
            self.write("")

    def record(self, value: Mapping[str, Any]) -> None:
        """Write a line of JSON. Its text is as the service sent it."""
        # ASCII only: half of a surrogate pair cannot be written in another way.
        self.out.write(json.dumps(value) + "\n")
        self.out.flush()

    def note(self, text: str = "", style: str = "dim") -> None:
        """Write a line that is not part of the answer."""
        text = CONTROLS.sub("", text)
        if self._one_screen:
            self.end_line()
        if self._err_console is not None:
            self._err_console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
        else:
            self.err.write(text + "\n")
            self.err.flush()

    def error(self, text: str) -> None:
        """Write what went wrong."""
        self.note(f"mintlify-async: {text}", style="bold red")

    def answer(self) -> _PlainView | _MarkdownView:
        """Return a view of one answer."""
        return _PlainView(self) if self._out_console is None else _MarkdownView(self._out_console)

    @contextmanager
    def progress(self, text: str) -> Generator[Callable[[str], None]]:
        """Show *text* with the elapsed time while the block runs, if the terminal can.

        Yields:
            A function that prints a new state as a line of its own.
        """
        if self._err_console is None:
            yield self.note
            return
        from rich import progress

        what = progress.TextColumn("{task.description}", markup=False)
        columns = (progress.SpinnerColumn(), what, progress.TimeElapsedColumn())
        show_keys = hide_keys(self.err)
        try:
            with progress.Progress(*columns, console=self._err_console, transient=True) as bar:
                bar.add_task(CONTROLS.sub("", text))
                yield self.note
        finally:
            show_keys()
