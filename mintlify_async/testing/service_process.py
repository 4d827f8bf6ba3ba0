"""A port and a folder in; the local service as a process, for tests in any language, out.

Standard output has one line, ``ready http://127.0.0.1:8765``. The settings for a
client, and everything that happens, are told on standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from .assistant_answers import AnswerStyle
from .local_jobs import JobLife
from .local_service import LocalService
from .request_log import RecordedRequest
from .script_file import load_script

__all__ = ["serve", "settings_lines"]


async def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    docs: Path | str | None = None,
    script: Path | str | None = None,
    cors: str | bool = False,
    pause: float = 0.0,
    life: JobLife | None = None,
    quiet: bool = False,
    output: TextIO | None = None,
    log: TextIO | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then stop in order.

    Args:
        host: The address to listen on.
        port: The port; 0 takes a free one, which the ready line names.
        docs: The folder with the pages; the default ships with the package.
        script: A file with scripted answers, see :mod:`mintlify_async.testing.script_file`.
        cors: The origin whose pages may call, such as ``http://localhost:5173``; True for all.
        pause: Seconds between two events of an answer.
        life: How jobs live.
        quiet: Whether to tell nothing of single requests.
        output: Where the ready line goes; the default is standard output.
        log: Where the log goes; the default is standard error.

    Raises:
        ConfigurationError: The folder, the port or the script is wrong.
        OSError: The port is taken.
    """
    told: TextIO = log or sys.stderr
    service = LocalService(
        host=host,
        port=port,
        docs=docs,
        cors=cors,
        life=life,
        answers=AnswerStyle(pause=pause),
        control=True,
        observer=None if quiet else lambda request: _tell(told, _line(request)),
    )
    if script is not None:
        rules = load_script(script, service.script)
        _tell(told, f"{len(rules)} scripted answers from {script}")
    with _stop_signal() as stopped:
        async with service:
            _tell(told, f"serving {len(service.docs.pages)} pages from {service.docs.folder}")
            for line in settings_lines(service):
                _tell(told, line)
            _tell(output or sys.stdout, f"ready {service.base_url}")
            await stopped.wait()
            _tell(told, "stopping")
    _tell(told, f"stopped after {len(service.requests)} requests")


def settings_lines(service: LocalService) -> list[str]:
    """Return the shell commands that make this package's sessions talk to *service*."""
    settings = {
        "MINTLIFY_BASE_URL": service.base_url,
        "MINTLIFY_PROJECT_ID": service.project_id,
        "MINTLIFY_DOMAIN": service.domain,
        "MINTLIFY_ADMIN_API_KEY": service.admin_key,
        "MINTLIFY_ASSISTANT_API_KEY": service.assistant_key,
    }
    return [f"export {name}={value}" for name, value in settings.items()]


@contextlib.contextmanager
def _stop_signal() -> Generator[asyncio.Event]:
    """Give an event that SIGTERM and SIGINT set; the signals' old handling comes back at the end."""
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
    """Return what is told of one request: never its key, never its text."""
    if request.finished:
        end = f"{request.status}"
    elif request.client_left:
        end = "the client left"
    else:
        end = "broken off"
    moment = datetime.fromtimestamp(request.wall, UTC).strftime("%H:%M:%S")
    return f"{moment} {request.method} {request.path} -> {end} ({request.operation}, {request.seconds:.3f} s)"


def _tell(where: TextIO, line: str) -> None:
    print(line, file=where, flush=True)
