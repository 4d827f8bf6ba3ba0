"""Runs one command with its terminal and event loop, and reports errors without a traceback."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ..errors import MintlifyError
from .error_advice import UsageError, explain
from .exit_status import INTERRUPTED, TERMINATED
from .sigterm import on_sigterm
from .terminal import OutputError, Terminal

T = TypeVar("T")

Command = Callable[[argparse.Namespace, Terminal], Coroutine[Any, Any, int] | int]
"""A coroutine function, which runs in an event loop, or a plain function, which makes its own loop."""


class _Notes(logging.Handler):
    """Prints log lines as notes, so that they do not appear inside a growing answer."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        self._terminal.note(self.format(record))


def run(command: Command, options: argparse.Namespace) -> int:
    """Run *command* and return the exit status."""
    terminal = Terminal(plain=bool(getattr(options, "plain", False)))
    log = logging.getLogger("mintlify_async")
    notes = _Notes(terminal)
    notes.setLevel(logging.DEBUG if options.verbose else logging.WARNING)
    log.addHandler(notes)
    if options.verbose:
        log.setLevel(logging.DEBUG)
    try:
        result = command(options, terminal)
        return result if isinstance(result, int) else asyncio.run(until_terminated(result))
    except KeyboardInterrupt:
        terminal.note("interrupted")
        return INTERRUPTED
    except asyncio.CancelledError:
        terminal.note("terminated")
        return TERMINATED
    except BrokenPipeError:  # an OSError, but one for which `main` exits without a message
        raise
    except (MintlifyError, UsageError, OutputError, OSError) as error:
        return explain(error, terminal)
    finally:
        log.removeHandler(notes)
        log.setLevel(logging.NOTSET)


async def until_terminated(step: Coroutine[Any, Any, T]) -> T:
    """Run *step*, and cancel it on SIGTERM."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()

    def cancel(*_: object) -> None:  # like asyncio's handler for Ctrl-C, which also wakes a waiting loop
        task.cancel()
        loop.call_soon_threadsafe(lambda: None)

    with on_sigterm(cancel):
        return await step
