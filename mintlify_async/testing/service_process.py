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

from ..errors import ConfigurationError
from .local_service import LocalService
from .request_log import RecordedRequest


async def serve(service: LocalService, *, quiet: bool = False) -> None:
    """Run *service* until SIGTERM or SIGINT; ``mintlify-async serve`` calls this.

    ::

        asyncio.run(serve(LocalService(port=8765, cors="http://localhost:5173", control=True)))

    Args:
        service: The service, which is started here.
        quiet: Whether to leave the lines per request out.

    Raises:
        ConfigurationError: *service* is no local service; ``.field`` is ``service``.
        OSError: The port is in use.
    """
    if not isinstance(service, LocalService):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without types
        raise ConfigurationError(
            "serve takes a LocalService, as in serve(LocalService(port=8765))", field="service"
        )
    if service.observer is None and not quiet:
        service.observer = _log_request
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


def _log_request(request: RecordedRequest) -> None:
    """Log one request, without its key and its text."""
    if request.finished:
        end = f"{request.status}"
    elif request.client_left:
        end = "the client disconnected"
    else:
        end = "broken off"
    moment = datetime.fromtimestamp(request.wall, UTC).strftime("%H:%M:%S")
    _log(f"{moment} {request.method} {request.path} -> {end} ({request.operation}, {request.seconds:.3f} s)")


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
