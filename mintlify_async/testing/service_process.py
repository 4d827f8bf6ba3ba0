"""The local service as a process of its own, for tests in any language.

It writes one line to standard output, ``ready http://127.0.0.1:8765``. The settings for a client and a line
per request go to standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path

from .assistant_answers import AnswerStyle
from .local_jobs import JobLife
from .local_service import LocalService
from .request_log import RecordedRequest
from .script_file import load_script


async def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    docs: Path | str | None = None,
    script: Path | str | None = None,
    replay: Path | str | None = None,
    cors: str | bool = False,
    pause: float = 0.0,
    life: JobLife | None = None,
    quiet: bool = False,
) -> None:
    """Run a local service until SIGTERM or SIGINT; ``mintlify-async serve`` calls this.

    ::

        asyncio.run(serve(port=8765, docs="docs", cors="http://localhost:5173"))

    Args:
        host: The address to listen on.
        port: The port to listen on; 0 takes a free one, which the ready line names.
        docs: A folder of Markdown pages to answer from; by default the package's own documentation.
        script: A file of scripted answers, see :mod:`mintlify_async.testing.script_file`.
        replay: A recording, whose answers come first.
        cors: The origin whose web pages may call, such as ``http://localhost:5173``; True for all.
        pause: Seconds between two events of an answer.
        life: How jobs proceed.
        quiet: Whether to leave the lines per request out.

    Raises:
        ConfigurationError: The folder has no page, the port is not a port, or the script or the recording
            has a mistake.
        OSError: The port is in use, or a file cannot be read.
    """
    service = LocalService(
        host=host,
        port=port,
        docs=docs,
        cors=cors,
        life=life,
        answers=AnswerStyle(pause=pause),
        control=True,
        replay=replay,
        observer=None if quiet else lambda request: _log(_line(request)),
    )
    if replay is not None:
        _log(f"{len(service.script.rules)} recorded answers from {replay}")
    if script is not None:
        rules = load_script(script, service.script)
        _log(f"{len(rules)} scripted answers from {script}")
    with _stop_signal() as stopped:
        async with service:
            _log(f"serving {len(service.docs.pages)} pages from {service.docs.folder}")
            for name, value in service.environment.items():
                _log(f"export {name}={value}")
            _log("# its jobs are short, so a follow-up need not take a minute to be sure of:")
            _log(f"# MintlifySession(poll=PollPolicy(settle_seconds={service.settle_seconds:g}))")
            print(f"ready {service.base_url}", flush=True)
            await stopped.wait()
            _log("stopping")
    _log(f"stopped after {len(service.requests)} requests")


@contextlib.contextmanager
def _stop_signal() -> Generator[asyncio.Event]:
    """Yield an event that SIGTERM and SIGINT set; the earlier handling is restored at the end."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C cancels the main task instead
        for number in signals:
            loop.add_signal_handler(number, stopped.set)
    try:
        yield stopped
    finally:
        with contextlib.suppress(NotImplementedError):
            for number in signals:
                loop.remove_signal_handler(number)


def _line(request: RecordedRequest) -> str:
    """Return the line for one request, without its key and its text."""
    if request.finished:
        end = f"{request.status}"
    elif request.client_left:
        end = "the client disconnected"
    else:
        end = "broken off"
    moment = datetime.fromtimestamp(request.wall, UTC).strftime("%H:%M:%S")
    return f"{moment} {request.method} {request.path} -> {end} ({request.operation}, {request.seconds:.3f} s)"


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
