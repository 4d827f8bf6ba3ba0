"""The command line: arguments in, an exit status out.

Answers go to standard output, everything else to standard error. Keys come
from the environment only. Each command is a room of its own, loaded when it is
called, so that ``--help`` is fast.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from mintlify_async.version import __version__

from .argument_parser import make_parser
from .exit_status import CLOSED_PIPE, DONE, USAGE

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        arguments: The arguments without the program's name; None takes the process's own.
    """
    parser = make_parser()
    try:
        options = parser.parse_args(arguments)
    except SystemExit as end:  # argparse has printed its help or its complaint
        return end.code if isinstance(end.code, int) else USAGE
    if options.version:
        sys.stdout.write(f"mintlify-async {__version__}\n")
        return DONE
    if options.command is None:
        parser.print_help(sys.stderr)
        return USAGE
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    """Load the command's room and run it; a reader that went away ends it quietly."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:  # an answer may hold what the terminal's encoding cannot show
        reconfigure(errors="replace")
    running = importlib.import_module(".run_command", __package__)
    command = importlib.import_module(f".{options.command}", __package__)
    try:
        status: int = running.run(command.run, options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter would flush once more at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE
    return status
