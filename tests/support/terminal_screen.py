"""Runs a command on a pseudo-terminal, and returns the lines of its output on a screen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import re
import signal
import sys
import termios
from collections.abc import AsyncIterator

from tests.support.child_process import LONGEST_SECONDS

CTRL_C, CTRL_D = "\x03", "\x04"

ON_TERMINAL = """
import os, sys
os.login_tty(0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Makes the terminal on standard input the one whose Ctrl-C reaches the command that follows."""

HEIGHT = 24


def lines_left(output: str, width: int) -> list[str]:
    """Return the lines that a terminal of *width* columns shows, and the lines that it has scrolled away.

    It supports rich's output, with colours, the cursor's moves upward and the erasing of lines.
    """
    lines: list[list[str]] = [[]]
    row = column = 0
    for token in re.findall(r"\x1b\[[\d;?]*[A-Za-z]|.", output, re.DOTALL):
        if token == "\r":
            column = 0
        elif token == "\n" or (not token.startswith("\x1b") and column == width):
            row, column = row + 1, 0
            lines += [[] for _ in range(row + 1 - len(lines))]
        elif token.startswith("\x1b") and token.endswith("A"):
            row = max(row - int(token[2:-1] or 1), len(lines) - HEIGHT, 0)
        elif token == "\x1b[2K":
            lines[row] = []
        if not token.startswith("\x1b") and token not in "\r\n":
            lines[row] += " " * (column - len(lines[row]))
            lines[row][column : column + 1] = [token]
            column += 1
    return ["".join(line).rstrip() for line in lines]


class Screen:
    """A command on a real terminal, with its screen and its keys."""

    def __init__(self, process: asyncio.subprocess.Process, descriptor: int) -> None:
        self.process = process
        self.descriptor = descriptor
        self._arrived = asyncio.Event()
        self.output = ""
        self.shown = ""
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        data = os.read(self.descriptor, 65536).decode(errors="replace")
        self.output += data
        self.shown += re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", data)
        self._arrived.set()

    async def ended(self) -> int:
        """Wait until the command has ended and all of its output is here. Return its status."""
        status = await self.process.wait()
        os.set_blocking(self.descriptor, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.output += os.read(self.descriptor, 65536).decode(errors="replace")
        return status

    async def until(self, text: str, seconds: float = LONGEST_SECONDS) -> None:
        """Wait until *text* is on the screen, and drop everything before its end."""
        async with asyncio.timeout(seconds):
            while text not in self.shown:
                self._arrived.clear()
                await self._arrived.wait()
        self.shown = self.shown[self.shown.index(text) + len(text) :]

    def press(self, keys: str) -> None:
        """Type *keys*, control characters among them."""
        os.write(self.descriptor, keys.encode())

    async def press_until(self, keys: str, text: str) -> None:
        """Type *keys*, and again each second, until *text* is on the screen.

        This is for Ctrl-C at the prompt. Python's ``readline`` does not see one that comes
        after it shows the prompt and before it waits for keys. It sees the next one.
        """
        for _ in range(20):
            self.press(keys)
            with contextlib.suppress(TimeoutError):
                await self.until(text, seconds=1)
                return
        raise TimeoutError(f"{text!r} is not on the screen")

    def shows_keys(self) -> bool:
        """Return whether the terminal shows typed keys."""
        return bool(termios.tcgetattr(self.descriptor)[3] & termios.ECHO)


@contextlib.asynccontextmanager
async def on_terminal(*arguments: str, env: dict[str, str], width: int = 80) -> AsyncIterator[Screen]:
    """Run Python with *arguments* on its own terminal, for both of its streams."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (HEIGHT, width))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ON_TERMINAL, *arguments, env=env, stdin=theirs, stdout=theirs, stderr=theirs
    )
    screen = Screen(process, ours)
    try:
        yield screen
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)
        os.close(theirs)  # not before, because the last output could be lost
