"""``serve``: runs the local service until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse

from mintlify_async.testing import JobLife, serve

from .exit_status import DONE
from .terminal import Terminal


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Serve until a signal arrives; the ready line on standard output has the address."""
    await serve(
        host=options.host,
        port=options.port,
        docs=options.docs,
        script=options.script,
        cors=True if options.cors == "*" else options.cors or False,
        pause=options.pause or 0.0,
        life=JobLife(seconds=options.job_seconds) if options.job_seconds else None,
        quiet=options.quiet,
        output=terminal.out,
        log=terminal.err,
    )
    return DONE
