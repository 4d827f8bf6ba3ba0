"""Writes results to standard output, and everything else to standard error.

Colours and Markdown need rich (the extra ``cli``) and a terminal that supports them. Otherwise the output is
plain text. A growing answer is drawn repeatedly on the last lines. During this time, notes are printed above
these lines, and typed keys are not shown.
"""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, TextIO, cast
from urllib.parse import quote

from ..rendering.blocks import START, read_line

if TYPE_CHECKING:
    from rich.console import Console

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters except line endings and tabs. An answer's text must not control the terminal."""

REFRESHES_PER_SECOND = 8
"""Number of draws of a growing answer per second. Drawing each piece would take quadratic time."""


class OutputError(Exception):
    """Standard output cannot be written, because the disk is full or the stream is closed."""

    def __init__(self, error: OSError) -> None:
        is_closed = error.errno == errno.EBADF
        why = " is closed: redirect it, such as to /dev/null" if is_closed else f": {error.strerror or error}"
        super().__init__(f"standard output{why}")


class _Closed(io.TextIOBase):
    """Replaces a stream that the program was started without."""

    def write(self, text: str, /) -> int:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def one_word(text: str) -> str:
    """Return *text* of the service as one word without blanks, line endings and brackets.

    CI services execute lines that start with ``::`` or contain ``##[``. Only a colon at the start is quoted,
    so an id or a URL can still be copied.
    """
    word = quote(text, safe="/?#&=%@+~,;!$'()*:", errors="replace")
    return f"%3A{word[1:]}" if word.startswith(":") else word


def inert(text: str) -> str:
    """Return *text* as one line without controls of a terminal or of a CI service, such as ``##vso[…]``."""
    return re.sub(r"##(?=\w*\[)", "# #", CONTROLS.sub("", " ".join(text.splitlines())))


def shell_word(text: str) -> str:
    r"""Return *text* as one printable word to paste into bash, zsh or a POSIX shell.

    Invisible text, and the ``##[`` that CI services execute, need the form ``$'\n'`` of bash and zsh.
    """
    if text.isprintable() and "##[" not in text:
        return shlex.quote(text)
    escaped = (c if c.isprintable() and c not in "\\'#" else _escape(c) for c in text)
    return f"$'{''.join(escaped)}'"


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 128 else f"\\U{number:08x}"


def hide_keys(stream: IO[str]) -> Callable[[], None]:
    """Stop the terminal from showing typed keys, such as ``^C``. The keys still work.

    Returns:
        A function that lets the terminal show typed keys again.
    """
    try:
        import termios  # POSIX only

        descriptor = stream.fileno()
        previous = termios.tcgetattr(descriptor)
    except (ImportError, OSError):
        return lambda: None

    def apply(attributes: list[Any]) -> None:
        with suppress(OSError, termios.error):
            if os.tcgetpgrp(descriptor) == os.getpgrp():  # tcsetattr would stop a background process
                termios.tcsetattr(descriptor, termios.TCSANOW, attributes)

    hidden = list(previous)
    hidden[3] &= ~termios.ECHO  # 3 is the index of the local modes
    apply(hidden)
    return lambda: apply(previous)


class Blocks:
    """Splits growing Markdown text at blank lines between top-level blocks and list items."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._open: list[str] = []  # the pieces of the current line
        self._state = START

    def feed(self, text: str) -> list[str]:
        """Add a piece of text. Return the blocks that are now complete."""
        self._open.append(text)
        if "\n" not in text:
            return []
        *lines, rest = "".join(self._open).split("\n")
        self._open = [rest]
        return [block for line in lines if (block := self._end_line(line))]

    def _end_line(self, text: str) -> str:
        before, line = self._state, read_line(text, self._state)
        self._state = line.after
        block = ""
        if line.kind == "blank" and not line.after.containers:
            block, self._lines = "".join(self._lines), []
            return block
        if before.containers and not line.depth and not self._lines[-1].strip():  # after a quote or an item
            block, self._lines = "".join(self._lines).rstrip() + "\n", []
        self._lines.append(f"{text}\n")
        return block

    @property
    def tail(self) -> str:
        """The incomplete block."""
        return "".join([*self._lines, *self._open])


class _MarkdownView:
    """Prints each complete block once. Only the growing block is drawn repeatedly."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._blocks = Blocks()
        self._empty = True
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        # The growing block is cut to the size of the screen. A complete block is printed in full.
        self._live = Live(
            console=console,
            get_renderable=self._growing,
            auto_refresh=False,  # Live's thread would draw in the middle of a print
            transient=True,
            vertical_overflow="crop",
        )
        self._show_keys = hide_keys(console.file)
        self._drawing = self._loop.call_later(1 / REFRESHES_PER_SECOND, self._draw)
        self._live.start()

    def _growing(self) -> Any:
        from rich.text import Text

        if tail := self._blocks.tail.strip():
            return _markdown(tail)
        seconds = int(self._loop.time() - self._start)
        return Text(f"waiting for the answer  {seconds} s", style="dim") if self._empty and seconds else ""

    def feed(self, text: str) -> None:
        for block in self._blocks.feed(CONTROLS.sub("", text)):
            self._print(block)

    def _draw(self) -> None:
        self._live.refresh()
        self._drawing = self._loop.call_later(1 / REFRESHES_PER_SECOND, self._draw)

    def _print(self, block: str) -> None:
        if not self._empty:
            self._console.print()
        self._empty = False
        self._console.print(_markdown(block))

    def close(self) -> None:
        self._drawing.cancel()
        try:
            tail, self._blocks = self._blocks.tail, Blocks()
            self._live.stop()
            if tail.strip():
                self._print(tail)
        finally:
            self._show_keys()


def _markdown(text: str) -> Any:
    from rich.markdown import Markdown

    return Markdown(text, hyperlinks=False)  # print the URL of a link after its text


def _print(console: Console | None, stream: TextIO, text: str, style: str | None = None) -> None:
    """Write *text*. If a growing answer is drawn, a console writes the text above it."""
    if console is None:
        stream.write(text)
        stream.flush()
    else:
        console.print(text, end="", style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)


def _console(stream: TextIO) -> Console | None:
    """Return rich's console for a terminal. None for a pipe, or without rich."""
    if not stream.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(file=stream)
    return console if console.width > 0 else Console(file=stream, width=80)  # with COLUMNS=0


@contextmanager
def _output_errors() -> Generator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error) from None


class Terminal:
    """Standard output and standard error, or other streams. *plain* means no colours and no Markdown."""

    def __init__(
        self,
        *,
        plain: bool = False,
        out: TextIO | None = None,
        err: TextIO | None = None,
    ) -> None:
        self.out = cast("TextIO", out or sys.stdout or _Closed())
        self.err = cast("TextIO", err or sys.stderr or _Closed())
        self._one_screen = self.out.isatty() and self.err.isatty()
        self._in_line = False  # whether the last line of standard output has no line ending
        plain = plain or os.environ.get("TERM") == "dumb"
        self._out_console = None if plain else _console(self.out)
        self._err_console = None if plain else _console(self.err)
        if self._one_screen:  # one console draws both streams, so that no note appears in an answer
            self._err_console = self._out_console

    def write(self, text: str, end: str = "\n") -> None:
        """Write a piece of the answer, without control characters.

        Raises:
            OutputError: Standard output cannot be written.
            BrokenPipeError: The program that reads standard output has exited.
        """
        with _output_errors():
            _print(self._out_console, self.out, CONTROLS.sub("", text) + end)
        if text + end:
            self._in_line = not (text + end).endswith("\n")

    def record(self, value: Mapping[str, Any]) -> None:
        """Write a line of JSON. Its texts are unchanged."""
        # Only ASCII escapes can express a lone surrogate.
        with _output_errors():
            self.out.write(json.dumps(value) + "\n")
            self.out.flush()

    def note(self, text: str = "", style: str = "dim") -> bool:
        """Write one line that is not part of the answer. Return whether that succeeded."""
        text = inert(text)
        if self._one_screen and self._in_line:
            self.write("")
        try:
            _print(self._err_console, self.err, text + "\n", style)
        except OSError:  # a failed note must not end a command
            return False
        return True

    def error(self, text: str) -> None:
        """Write an error message."""
        self.note(f"mintlify-async: {text}", style="bold red")

    @contextmanager
    def answer(self) -> Generator[Callable[[str], None]]:
        """Show one answer while the block runs. Yield a function that adds a piece of its text."""
        if self._out_console is None:
            try:
                yield lambda text: self.write(text, end="")
            finally:
                if self._in_line:
                    self.write("")
            return
        view = _MarkdownView(self._out_console)
        try:
            yield view.feed
        finally:
            view.close()

    @contextmanager
    def progress(self, text: str) -> Generator[None]:
        """If the terminal supports it, show *text* with the elapsed time while the block runs."""
        if self._err_console is None:
            yield
            return
        from rich import progress

        what = progress.TextColumn("{task.description}", markup=False)
        columns = (progress.SpinnerColumn(), what, progress.TimeElapsedColumn())
        show_keys = hide_keys(self.err)
        try:
            with progress.Progress(*columns, console=self._err_console, transient=True) as bar:
                bar.add_task(CONTROLS.sub("", text))
                yield
        finally:
            show_keys()
