"""``serve``: runs the local service until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import errno

from mintlify_async.testing import AnswerStyle, JobLife, LocalService, load_script, serve

from .error_advice import UsageError
from .exit_status import DONE
from .terminal import Terminal


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Serve until a signal arrives; the ready line on standard output has the address."""
    service = LocalService(
        host=options.host,
        port=options.port,
        docs=options.docs,
        cors=True if options.cors == "*" else options.cors or False,
        answers=AnswerStyle(pause=options.pause or 0.0),
        life=JobLife(seconds=options.job_seconds) if options.job_seconds else None,
        replay=options.replay,
        control=True,
    )
    if options.replay:
        terminal.note(f"{len(service.script.rules)} recorded answers from {options.replay}")
    if options.script:
        rules = load_script(options.script, service.script)
        terminal.note(f"{len(rules)} scripted answers from {options.script}")
    try:
        await serve(service, quiet=options.quiet)
    except BrokenPipeError:
        raise
    except OSError as error:
        host = f"[{options.host}]" if ":" in options.host else options.host
        raise UsageError(_why_not(f"{host}:{options.port}", error)) from None
    return DONE


def _why_not(address: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{address} is in use: end the program that listens there, or give another --port (0: a free one)"
        )
    return f"cannot listen on {address}: {error.strerror}"
