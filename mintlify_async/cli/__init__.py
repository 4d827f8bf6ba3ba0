"""The command line ``mintlify-async``.

Results go to standard output, everything else to standard error. Keys are read only from the environment.
Each command has its own file, which is loaded when the command runs, so ``--help`` is fast. The arguments of
all commands are in ``argument_parser``.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from mintlify_async.version import __version__

from .argument_parser import make_parser
from .exit_status import CLOSED_PIPE, DONE, INTERRUPTED, TERMINATED, TROUBLE, USAGE
from .sigterm import on_sigterm


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        arguments: The arguments without the program's name. None takes the arguments of the process.
    """
    parser = make_parser()
    try:
        options = parser.parse_args(arguments)
        if options.version:
            sys.stdout.write(f"mintlify-async {__version__}\n")
            return DONE
        if options.command is None:
            parser.print_help(sys.stderr)
            return USAGE
        output: Any = sys.stdout
        # ``job`` runs without standard output, because standard error can show the reference of a paid job.
        if not output and options.command != "job":
            why = "standard output is closed: redirect it, such as to /dev/null; nothing was sent"
            parser.exit(USAGE, f"mintlify-async: {why}\n")
        if hasattr(output, "reconfigure"):  # the terminal's encoding may lack characters of an answer
            output.reconfigure(errors="replace")
        with on_sigterm(_terminate):  # a running event loop has its own handler
            runner = importlib.import_module(".run_command", __package__)
            status: int = runner.run(importlib.import_module(f".{options.command}", __package__).run, options)
        return _flushed(status)
    except SystemExit as end:  # argparse has printed the help or the error
        return end.code if isinstance(end.code, int) else USAGE
    except KeyboardInterrupt:  # Ctrl-C while modules are loaded, which takes a moment
        return INTERRUPTED
    except BrokenPipeError:  # the reading program has exited, as in `| head -1`, which is not an error
        return _flushed(CLOSED_PIPE)


def _terminate(*_: object) -> NoReturn:
    sys.exit(TERMINATED)


def _flushed(status: int) -> int:
    """Return *status*. If it is 0 and a stream cannot take the written output, return another status."""
    streams: list[Any] = [sys.stdout, sys.stderr]  # None if the program was started without the stream
    for stream in filter(None, streams):
        try:
            stream.flush()
        except OSError as error:
            # The interpreter flushes once more at exit, which would print an error and change the status.
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if stream is sys.stdout:
                status = status or (CLOSED_PIPE if isinstance(error, BrokenPipeError) else TROUBLE)
    return status
