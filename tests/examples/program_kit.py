"""What the tests of several examples need: waiting for a program here, and running one in another process."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mintlify_async.testing import LocalService
from tests.support.child_process import child_environment

EXAMPLES = Path(__file__).parents[2] / "examples"


async def idle(*names: str) -> None:
    """Return when no task runs a coroutine with one of these names."""
    while running := [
        task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") in names
    ]:
        await asyncio.wait(running)


class Program:
    """An example in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def end(self, number: int | None = signal.SIGTERM) -> tuple[int | None, str]:
        """Send a signal, unless it is None; return the status, and what was written to standard error."""
        if number is not None:
            self.process.send_signal(number)
        _, errors = await self.process.communicate()
        return self.process.returncode, errors.decode()


@asynccontextmanager
async def running(
    name: str, service: LocalService | None, folder: Path, prelude: str = "", **env: str
) -> AsyncIterator[Program]:
    """Run an example as ``__main__`` after *prelude*, in *folder*, with the settings of *service*."""
    start = f"{prelude}\nimport runpy\nrunpy.run_path({str(EXAMPLES / name)!r}, run_name='__main__')"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        start,
        cwd=folder,
        env=child_environment(service, **{"PYTHONWARNINGS": "default", **env}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
