"""Translates errors of aiohttp and asyncio into errors of this package.

aiohttp's own errors are never chained, because their ``repr`` shows the request's headers.
"""

from __future__ import annotations

import logging
import re
import ssl as ssl_module
from functools import cache
from typing import NamedTuple

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from ..errors import (
    APIConnectionError,
    APITimeoutError,
    CauseSummary,
    ConfigurationError,
    MintlifyError,
    Sent,
    StateError,
    printable,
)
from ..protocol.requests import Call

__all__ = ["FOREIGN_ERRORS", "known_flaw", "log_known_flaw", "summarize", "translate", "version_numbers"]

log = logging.getLogger("mintlify_async")

# The errors of aiohttp and asyncio for a failed request. Any other error is a defect and is not caught.
# HttpProcessingError comes from the pure Python parser while it reads a body.
FOREIGN_ERRORS = (
    aiohttp.ClientError,
    HttpProcessingError,
    OSError,
    TimeoutError,
    RuntimeError,
    ValueError,
    EOFError,
)

CLOSED = "session_closed"  # the `reason` if the session was closed during the request


class AttemptLimit(NamedTuple):
    """The time by which an attempt must have its response, and the timeout that sets this time.

    Attributes:
        at: The time of the limit, by the loop's time. Infinity means no limit.
        seconds: The length of the timeout, in seconds.
        phase: The name of the timeout: ``request``, ``first_event`` or ``total``.
    """

    at: float
    seconds: float
    phase: str


def summarize(error: BaseException) -> CauseSummary:
    """Return a replacement for *error* that cannot show a key or a header. Clear the traceback of *error*."""
    # aiohttp raises the same object each time a response was closed, and each raise adds frames to the
    # object. These frames would keep every reply in memory.
    error.__traceback__ = error.__context__ = None
    text = ""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        text = _status_of(error)
    elif isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientResponseError):
        text = ""  # the texts of these errors contain all headers
    elif isinstance(error, OSError | aiohttp.ClientError | RuntimeError):
        text = printable(str(error))
    name = f"{type(error).__module__.partition('.')[0]}.{type(error).__name__}".removeprefix("builtins.")
    return CauseSummary(f"{name}: {text}" if text else name)


def timed_out(operation: str, phase: str, seconds: float, sent: Sent, what: str = "") -> APITimeoutError:
    """Return the error for an attempt whose time was over. *what* says what did not happen in this time."""
    words = {"connect": "could not connect", "first_event": "no event", "total": "not complete"}
    return APITimeoutError(
        f"{operation}: {what or words.get(phase, 'no answer')} within {seconds:g} s ({phase} timeout)",
        phase=phase,
        seconds=seconds,
        sent=sent,
        operation=operation,
    )


def translate(
    error: BaseException, call: Call, *, written: bool | None, limit: AttemptLimit
) -> MintlifyError:
    """Return this package's error for *error*, which ended a request before its headers arrived.

    Args:
        error: The error of aiohttp or asyncio.
        call: The request.
        written: Whether a byte of the body was passed to a live connection. None if there is no body.
        limit: The limit of the attempt.
    """
    operation = call.operation.name
    sent: Sent = "no" if written is False else "maybe"
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        # Nothing can have been written at this point, but a mistake about this would cost a second job.
        return timed_out(operation, "connect", call.timeouts.connect, "maybe" if written else "no")
    if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientConnectorError):
        return timed_out(operation, limit.phase, limit.seconds, sent)
    # The error of a certificate is both a ValueError and an OSError.
    if isinstance(error, ValueError) and not isinstance(error, OSError) and not written:
        return ConfigurationError(
            "aiohttp rejected the request. Check base_url and proxy. "
            "A password in auth= of your ClientSession also causes this, "
            "and with its trust_env=True a password in ~/.netrc",
            field="base_url",
        )
    if isinstance(error, RuntimeError):
        if "Session is closed" in str(error) or "Connector is closed" in str(error):
            return StateError(f"{operation}: the aiohttp session is closed")
        return APIConnectionError(f"{operation}: the connection was lost", sent=sent, operation=operation)
    words, reason = _describe(error)
    if reason in _BEFORE_SENDING and written is None:
        sent = "no"
    failure = APIConnectionError(f"{operation}: {words}", sent=sent, operation=operation, reason=reason)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        failure.proxy_status = error.status
    return failure


def closed_here(operation: str, sent: Sent) -> APIConnectionError:
    """Return the error for an attempt that ended because the session was closed."""
    return APIConnectionError(
        f"{operation}: the session was closed before the answer arrived",
        sent=sent,
        operation=operation,
        reason=CLOSED,
    )


_BEFORE_SENDING = frozenset(("dns", "certificate", "tls", "proxy", "connect"))


def _status_of(refusal: aiohttp.ClientHttpProxyError) -> str:
    """Return the status and the message of a proxy."""
    return f"{refusal.status} {printable(refusal.message, 200)}".rstrip()


def _describe(error: BaseException) -> tuple[str, str]:
    """Return a description of the error, and the error's ``reason``."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"could not resolve the host {printable(error.host, 80)}", "dns"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ServerFingerprintMismatch):
        return "the server's certificate is not trusted", "certificate"
    if isinstance(error, aiohttp.ClientSSLError | ssl_module.SSLError):
        return "the TLS handshake failed", "tls"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy refused: {_status_of(error)}", "proxy"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return "the proxy could not be used", "proxy"
    if isinstance(error, aiohttp.ClientConnectorError):
        host = f"[{error.host}]" if ":" in str(error.host) else error.host
        return f"could not connect to {printable(f'{host}:{error.port}', 80)}", "connect"
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError | OSError):
        return "the connection was lost before an answer came", "lost"
    if isinstance(error, aiohttp.ClientResponseError | HttpProcessingError):
        return "the answer is not readable HTTP", "protocol"
    return "the request failed", "lost"


# Applications pin aiohttp, so unsafe versions are allowed, with a warning. Before this version, aiohttp's
# parser of responses has the flaw GHSA-cq5v-8q36-5273.
FIRST_SAFE_VERSION = (3, 14, 3)


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the first three numbers of *version*, such as ``(3, 14, 0)`` for ``3.14.0rc1``."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def known_flaw(version: str) -> str | None:
    """Return the known flaw of aiohttp *version* and its fix, or None."""
    if version_numbers(version) >= FIRST_SAFE_VERSION:
        return None
    safe = ".".join(map(str, FIRST_SAFE_VERSION))
    return (
        f"aiohttp {version} has a flaw in its response parser (GHSA-cq5v-8q36-5273); "
        f"install a newer one: pip install 'aiohttp>={safe},<4'"
    )


@cache  # once per process
def log_known_flaw(version: str) -> None:
    """Log a warning if aiohttp *version* has a known flaw. Repeated calls do nothing."""
    flaw = known_flaw(version)
    if flaw is not None:
        log.warning("%s", flaw)
