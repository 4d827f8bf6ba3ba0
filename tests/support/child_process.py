"""The environment of the command line and of users' programs in their own processes, and how they run."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import mintlify_async
from mintlify_async.testing import LocalService

PACKAGE = Path(mintlify_async.__file__).parent
ROOT = Path(__file__).parents[2]


def child_environment(service: LocalService | None = None, **changes: str | None) -> dict[str, str]:
    """Return the variables that ``serve`` prints for export, and no other setting of ours.

    Warnings are also errors in the child.

    Args:
        service: The service of the settings. None means none.
        changes: Additional variables. None leaves one out.
    """
    ours = ("MINTLIFY_", "PYTEST_")
    env: dict[str, str | None] = {
        name: value for name, value in os.environ.items() if not name.startswith(ours)
    }
    env |= {"PYTHONPATH": f"{PACKAGE.parent}{os.pathsep}{ROOT}", "PYTHONWARNINGS": "error"}
    if service is not None:
        env |= service.environment
    return {name: value for name, value in (env | changes).items() if value is not None}


LONGEST_SECONDS = 600.0
"""A program that runs longer waits for something that never comes."""


async def run_to_end(*command: str, **options: Any) -> str:
    """Run *command* without input. Return its standard output. A status other than 0 is an error."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, **options
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), LONGEST_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, f"status {process.returncode}\n{out.decode()}\n{err.decode()}"
    return out.decode()
