"""``doctor``: checks settings, versions, and whether the service can be reached. It creates nothing."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import ssl
from importlib import metadata
from urllib.parse import urlsplit

import mintlify_async as mintlify

from ..errors import (
    APIStatusError,
    AuthenticationError,
    ConfigurationError,
    MintlifyError,
    NotFoundError,
    PermissionDeniedError,
)
from ..http.failures import known_flaw
from ..protocol.api_keys import kind_in_words
from ..runtime.clock import SystemClock
from .error_advice import UsageError, in_command_line_words
from .exit_status import DONE, TROUBLE
from .settings import FOR_JOBS, FOR_QUESTIONS, Setting
from .terminal import Terminal

PROBE_SECONDS = 10.0
"""Longest wait for the service."""

PROBE_JOB = "doctor-no-such-job"
"""The id of a job that does not exist. Reading it shows whether the admin key is accepted."""


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Check everything that can be checked without a job or a question, and say what was not checked."""
    if options.verify:
        from . import verify  # imported on use, because it loads the testing kit

        return await verify.run(options, terminal)
    _check_flags(options)
    _versions(terminal)
    wrong = [setting for setting in (*FOR_JOBS, *FOR_QUESTIONS) if not _is_right(setting, terminal)]
    base_url = os.environ.get("MINTLIFY_BASE_URL")
    terminal.write(f"MINTLIFY_BASE_URL: {base_url or 'not set'} (for another address of the service)")
    ready = {
        settings: not any(setting in wrong or not setting.found()[1] for setting in settings)
        for settings in (FOR_JOBS, FOR_QUESTIONS)
    }
    works = await _service(options, terminal, with_key=ready[FOR_JOBS])
    if ready[FOR_JOBS]:
        terminal.write("not checked: whether the admin key may create jobs (that would start one)")
    if ready[FOR_QUESTIONS]:
        terminal.write(
            "not checked: whether the service accepts the assistant key and the domain "
            "(that takes a question, which is charged: --verify)"
        )
    return TROUBLE if wrong or not works else DONE


def _check_flags(options: argparse.Namespace) -> None:
    for flag in ("job", "yes", "json", "record", "keep_text"):
        if getattr(options, flag):
            raise UsageError(f"--{flag.replace('_', '-')} needs --verify")


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


def _is_right(setting: Setting, terminal: Terminal) -> bool:
    """Print a setting, but no key; return False if it is wrong. One that is not set is not wrong."""
    source, value = setting.found()
    if not value:
        terminal.write(f"{setting.variable}: not set (for {setting.used_for}: {setting.where}){setting.hint}")
        return True
    kind = mintlify.Assumptions().kind_of_key(value)
    mistake = setting.mistake(value)
    if setting.key and kind == "unknown" and mistake is None:
        mistake = f"is {kind_in_words(kind)}; it must be {setting.where}"
    terminal.write(f"{source}: {kind_in_words(kind) if setting.key else value}, for {setting.used_for}")
    if mistake:
        terminal.write(f"wrong: {source} {mistake}")
    return mistake is None


async def _service(options: argparse.Namespace, terminal: Terminal, *, with_key: bool) -> bool:
    """Return whether the service answers: to a GET with the admin key, or else to a connection alone."""
    clock = SystemClock()
    try:
        made = mintlify.MintlifySession(base_url=options.base_url, retry=mintlify.RetryPolicy(attempts=1))
    except ConfigurationError as error:
        terminal.write(f"wrong: {in_command_line_words(str(error))}")
        return False
    async with made as session:
        terminal.write(f"service: {session.base_url}")
        try:
            async with clock.deadline(clock.now() + PROBE_SECONDS):
                if with_key:
                    return await _read_missing_job(session, terminal)
                await _connect(str(session.base_url))
        except (OSError, TimeoutError, ssl.SSLError) as error:
            terminal.write(f"service: not reached ({type(error).__name__}: {error}); check the network")
            return False
    terminal.write("service: reached")
    terminal.write("not checked: the admin key and the project, since one of them is missing or wrong")
    return True


async def _read_missing_job(session: mintlify.MintlifySession, terminal: Terminal) -> bool:
    """Poll a job that does not exist; return whether the answer speaks for the admin key and the project."""
    project = os.environ["MINTLIFY_PROJECT_ID"]
    job = session.job(mintlify.JobRef(project_id=project, id=PROBE_JOB))
    try:
        await job.refresh()
        found = None
    except NotFoundError as error:  # the expected answer
        found = f"it has no project {project}: check MINTLIFY_PROJECT_ID" if _no_project(error) else None
    except AuthenticationError:
        found = "it refuses the admin key (401): the key is wrong or has expired; make a new one"
    except PermissionDeniedError:
        found = "the admin key may not read jobs (403): check its scopes and allowed addresses"
    except MintlifyError as error:
        found = in_command_line_words(str(error))
    if found is None:
        terminal.write("service: reached, and the admin key is accepted")
        terminal.write(
            f"not checked: whether the project {project} exists "
            "(the service may give the same answer for an unknown project as for an unknown job)"
        )
        return True
    terminal.write(f"wrong: {found}")
    return False


def _no_project(error: APIStatusError) -> bool:
    """Return whether a 404 for a job is the project's: the status alone does not tell."""
    body = error.body.lower()
    return "project" in body and "job" not in body


async def _connect(base_url: str) -> None:
    """Connect to the service's address and disconnect."""
    address = urlsplit(base_url)
    secure = address.scheme == "https"
    port = address.port or (443 if secure else 80)
    context = ssl.create_default_context() if secure else None
    _, writer = await asyncio.open_connection(address.hostname, port, ssl=context)
    writer.close()
