"""``doctor``: checks settings, versions, and whether the service can be reached. It creates nothing."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import ssl
from contextlib import suppress
from importlib import metadata
from urllib.parse import urlsplit

import mintlify_async as mintlify

from ..errors import (
    AuthenticationError,
    ConfigurationError,
    MintlifyError,
    NotFoundError,
    PermissionDeniedError,
)
from ..http.failures import known_flaw
from ..runtime.clock import SystemClock
from .exit_status import DONE, TROUBLE, USAGE
from .terminal import Terminal

PROBE_SECONDS = 10.0
"""Longest wait for the service."""

PROBE_JOB = "doctor-looks-for-nothing"
"""A job that does not exist: a 404 for it proves that the address, the key and the project are right."""

KINDS = {
    "admin": "an admin key",
    "assistant": "an assistant key",
    "foreign": "a key of another product",
    "unknown": "not a key of this service, judging by its prefix",
}


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Check everything; wrong settings count before a service that is not reached."""
    _versions(terminal)
    wrong = _settings(terminal)
    reached = await _service(options, terminal)
    if wrong:
        return USAGE
    return DONE if reached else TROUBLE


def _versions(terminal: Terminal) -> None:
    terminal.write(f"Python {platform.python_version()} on {platform.system()}")
    for name in ("mintlify-async", "aiohttp", "anyio", "attrs", "cattrs", "rich"):
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            found = "is not installed" + (" (pip install 'mintlify-async[cli]')" if name == "rich" else "")
        terminal.write(f"{name} {found}")
    if flaw := known_flaw(metadata.version("aiohttp")):
        terminal.write(f"warning: {flaw}")


def _settings(terminal: Terminal) -> bool:
    """Print each setting, but no key; return whether one is wrong."""
    admin = _key("MINTLIFY_ADMIN_API_KEY", "admin", "jobs", terminal)
    assistant = _key("MINTLIFY_ASSISTANT_API_KEY", "assistant", "ask and chat", terminal)
    for name, used_for in (
        ("MINTLIFY_PROJECT_ID", "jobs"),
        ("MINTLIFY_DOMAIN", "ask and chat"),
        ("MINTLIFY_BASE_URL", "another address of the service"),
    ):
        value = os.environ.get(name)
        terminal.write(f"{name}: {value or 'not set'} (for {used_for})")
    return admin or assistant


def _key(name: str, wanted: str, used_for: str, terminal: Terminal) -> bool:
    value, shared = os.environ.get(name), os.environ.get("MINTLIFY_API_KEY", "")
    if not value and mintlify.Assumptions().kind_of_key(shared) == wanted:
        name, value = "MINTLIFY_API_KEY", shared
    if not value:
        terminal.write(f"{name}: not set (for {used_for}; make one on the dashboard's API keys page)")
        return False
    kind = mintlify.Assumptions().kind_of_key(value)
    wrong = kind not in (wanted, "unknown")
    advice = f"; it must be {KINDS[wanted]}" if wrong else ""
    terminal.write(f"{name}: {KINDS[kind]}, for {used_for}{advice}")
    if value != value.strip():
        terminal.write(f"{name}: it begins or ends with spaces; remove them")
        wrong = True
    return wrong


async def _service(options: argparse.Namespace, terminal: Terminal) -> bool:
    """Return whether the service answers: to a GET if a key is set, else to a connection alone."""
    clock = SystemClock()
    async with mintlify.MintlifySession(
        base_url=options.base_url, retry=mintlify.RetryPolicy(attempts=1)
    ) as session:
        terminal.write(f"service: {session.base_url}")
        try:
            async with clock.deadline(clock.now() + PROBE_SECONDS):
                try:
                    session.check("agent")
                except ConfigurationError:
                    await _connect(str(session.base_url))
                else:
                    return await _look(session, terminal)
        except (OSError, TimeoutError, ssl.SSLError) as error:
            terminal.write(f"service: not reached ({type(error).__name__}: {error}); check the network")
            return False
    terminal.write(
        "service: reached; no key was tried (set MINTLIFY_ADMIN_API_KEY and MINTLIFY_PROJECT_ID for that)"
    )
    return True


async def _look(session: mintlify.MintlifySession, terminal: Terminal) -> bool:
    """Poll a job that does not exist; return whether the answer shows that the admin key is accepted."""
    job = session.job(mintlify.JobRef(project_id=os.environ["MINTLIFY_PROJECT_ID"], id=PROBE_JOB))
    try:
        with suppress(NotFoundError):  # the expected answer
            await job.refresh()
        terminal.write("service: reached, and the admin key is accepted")
        return True
    except AuthenticationError:
        found = "reached, but it refuses the admin key (401): the key is wrong or has expired; make a new one"
    except PermissionDeniedError:
        found = "reached, but the admin key may not read jobs (403): check its scopes and allowed addresses"
    except MintlifyError as error:
        found = str(error)
    terminal.write(f"service: {found}")
    return False


async def _connect(base_url: str) -> None:
    """Connect to the service's address and disconnect."""
    address = urlsplit(base_url)
    secure = address.scheme == "https"
    port = address.port or (443 if secure else 80)
    context = ssl.create_default_context() if secure else None
    _, writer = await asyncio.open_connection(address.hostname, port, ssl=context)
    writer.close()
