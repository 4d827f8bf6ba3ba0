"""Runs the command line in a thread of this process, which has imported everything, or as a process."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
from typing import NamedTuple, TextIO
from unittest import mock

from mintlify_async.cli import main
from mintlify_async.testing import LocalService
from tests.support.child_process import child_environment


class Ended(NamedTuple):
    """The result of a command."""

    status: int
    out: str
    err: str


async def run(
    *arguments: str,
    service: LocalService | None = None,
    stdin: str | bytes = b"",
    encoding: str = "utf-8",
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    **env: str | None,
) -> Ended:
    """Run the command to its end, with *service* in its environment, and other streams where given."""
    environment = child_environment(service, **{"NO_COLOR": "1", "COLUMNS": "100"} | env)
    given = stdin if isinstance(stdin, bytes) else stdin.encode()
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding, newline="") for _ in range(2))
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(given))),
        contextlib.redirect_stdout(stdout or out),
        contextlib.redirect_stderr(stderr or err),
    ):
        status = await asyncio.to_thread(main, list(arguments))
    for stream in (out, err):
        stream.seek(0)
    return Ended(status, out.read(), err.read())


async def start(*arguments: str, env: dict[str, str]) -> asyncio.subprocess.Process:
    """Start the command in a process of its own, with pipes."""
    command = (sys.executable, "-m", "mintlify_async", *arguments)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
