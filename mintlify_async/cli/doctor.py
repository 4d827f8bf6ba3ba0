"""``doctor``: what is set, which versions, and whether the service can be reached; it creates nothing."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import ssl
from importlib import metadata
from urllib.parse import urlsplit

import mintlify_async as mintlify

from ..aiohttp_version import known_flaw
from .statuses import DONE, TROUBLE, USAGE
from .terminal import Terminal

__all__ = ["run"]

PROBE_SECONDS = 10.0
"""Longest look at the service's address."""

PROBE_JOB = "doctor-looks-for-nothing"
"""A job that does not exist: a 404 for it proves the address, the key and the project's route."""

KINDS = {
    "admin": "an admin key",
    "assistant": "an assistant key",
    "foreign": "a key of another product",
    "unknown": "not a key of this service, by its beginning",
}


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Check everything; the first thing that is wrong decides the status."""
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
            terminal.write(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            terminal.write(
                f"{name} is not installed"
                + (" (pip install 'mintlify-async[cli]')" if name == "rich" else "")
            )
    flaw = known_flaw(metadata.version("aiohttp"))
    if flaw is not None:
        terminal.write(f"warning: {flaw}")


def _settings(terminal: Terminal) -> bool:
    """Say what each setting is, never a key's text; return whether one of them is wrong."""
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
    value = os.environ.get(name)
    if not value:
        terminal.write(f"{name}: not set (for {used_for}; make one on the dashboard's API keys page)")
        return False
    kind = mintlify.Assumptions().kind_of_key(value)
    wrong = kind not in (wanted, "unknown")
    terminal.write(
        f"{name}: {KINDS[kind]}, for {used_for}" + (f"; it must be {KINDS[wanted]}" if wrong else "")
    )
    if value != value.strip():
        terminal.write(f"{name}: it begins or ends with blanks; remove them")
        wrong = True
    return wrong


async def _service(options: argparse.Namespace, terminal: Terminal) -> bool:
    """Look whether the service answers: with a GET where there is a key, else by connecting alone."""
    clock = mintlify.SystemClock()
    async with mintlify.MintlifySession(
        base_url=options.base_url, retry=mintlify.RetryPolicy(attempts=1)
    ) as session:
        terminal.write(f"service: {session.base_url}")
        try:
            async with clock.deadline(clock.now() + PROBE_SECONDS):
                if os.environ.get("MINTLIFY_ADMIN_API_KEY") and os.environ.get("MINTLIFY_PROJECT_ID"):
                    return await _look(session, terminal)
                await _connect(str(session.base_url))
        except (OSError, TimeoutError, ssl.SSLError) as error:
            terminal.write(f"service: not reached ({type(error).__name__}: {error}); is the network up?")
            return False
    terminal.write(
        "service: reached; no key was tried (set MINTLIFY_ADMIN_API_KEY and MINTLIFY_PROJECT_ID for that)"
    )
    return True


async def _look(session: mintlify.MintlifySession, terminal: Terminal) -> bool:
    try:
        await session.job(
            mintlify.JobRef(project_id=os.environ["MINTLIFY_PROJECT_ID"], id=PROBE_JOB)
        ).refresh()
    except mintlify.NotFoundError:
        terminal.write("service: reached, and the admin key is accepted")
        return True
    except mintlify.AuthenticationError:
        terminal.write(
            "service: reached, but it refuses the admin key (401): it is wrong or has expired; make a new one"
        )
    except mintlify.PermissionDeniedError:
        terminal.write(
            "service: reached, but the admin key may not read jobs (403): look at its scopes and addresses"
        )
    except mintlify.MintlifyError as error:
        terminal.write(f"service: {error}")
    else:
        terminal.write("service: reached, and the admin key is accepted")
        return True
    return False


async def _connect(base_url: str) -> None:
    """Connect to the service's address and hang up."""
    address = urlsplit(base_url)
    secure = address.scheme == "https"
    port = address.port or (443 if secure else 80)
    context = ssl.create_default_context() if secure else None
    _, writer = await asyncio.open_connection(address.hostname, port, ssl=context)
    writer.close()
