"""``serve`` runs the local service until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import errno
import signal
from contextlib import suppress
from datetime import UTC, datetime

from mintlify_async.testing import AnswerStyle, JobLife, LocalService, RecordedRequest

from .error_advice import UsageError
from .exit_status import DONE
from .terminal import Terminal


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Serve until a signal arrives. The ready line on standard output has the URL."""
    style = AnswerStyle(pause=options.pause or 0.0)
    service = LocalService(
        host=options.host,
        port=options.port,
        docs=options.docs,
        cors=True if options.cors == "*" else options.cors or False,
        answers=style,
        life=JobLife(seconds=options.job_seconds) if options.job_seconds else None,
    )
    if options.replay:
        service.replay(options.replay)
    if not options.quiet:
        service.observer = lambda request: terminal.note(_line(request))
    try:
        await service.start()
    except OSError as error:
        raise UsageError(_why_not(f"{options.host}:{options.port}", error)) from None
    try:
        if options.replay:
            terminal.note(f"{len(service.script.rules)} recorded responses from {options.replay}")
        for name, value in (service.environment | {"MINTLIFY_SITE": style.site}).items():
            terminal.note(f"export {name}={value}")
        terminal.note(
            f"# jobs are short here: PollPolicy(settle_seconds={service.settle_seconds:g}) fits them"
        )
        terminal.write(f"ready {service.base_url}")
        await _signal()
    finally:
        await service.stop()
    terminal.note(f"stopped after {len(service.requests)} requests")
    return DONE


async def _signal() -> None:
    """Wait for Ctrl-C or SIGTERM."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    with suppress(NotImplementedError):  # on Windows, Ctrl-C cancels the command
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
    await stopped.wait()


def _line(request: RecordedRequest) -> str:
    """Return a line about *request*, without its key and its text."""
    if request.finished:
        end = str(request.status)
    else:
        end = "the client disconnected" if request.client_left else "interrupted"
    moment = datetime.fromtimestamp(request.wall, UTC)
    seconds = f"{request.seconds:.3f} s"
    return f"{moment:%H:%M:%S} {request.method} {request.path} -> {end} ({request.operation}, {seconds})"


def _why_not(address: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{address} is in use: end the program that listens there, or give another --port (0: a free one)"
        )
    return f"cannot listen on {address}: {error.strerror}"
