"""``doctor`` checks settings, versions, and whether the service can be reached. It creates nothing."""

from __future__ import annotations

import argparse
import asyncio
import platform
from collections import Counter
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

from attrs import define, field

import mintlify_async as mintlify

from ..errors import ConfigurationError, MintlifyError, NotFoundError
from ..http.failures import known_flaw
from .error_advice import UsageError, message_of
from .exit_status import DONE, TROUBLE
from .settings import BASE_URL, FOR_JOBS, FOR_QUESTIONS, PROJECT, SITE, Setting, open_session
from .terminal import Terminal, one_word

PROBE_SECONDS = 10.0
"""Longest wait for the service."""

PROBE_JOB = "doctor-no-such-job"
"""The id of a job that does not exist. Reading it shows whether the admin key is accepted."""

VALID_ARGUMENTS: dict[str, Any] = {
    "admin_key": "mint_0",
    "assistant_key": "mint_dsc_0",
    "project_id": "x",
    "domain": "x",
    "site": "https://x.example",
    "base_url": "https://x.example",
}
"""A valid value of each setting, so that each can be checked without the others."""


@define
class Findings:
    """The results of the checks. Each has the mark ``ok``, ``missing``, ``wrong``, ``warning`` or ``-``."""

    terminal: Terminal
    marks: Counter[str] = field(factory=Counter[str])

    def show(self, mark: str, text: str) -> None:
        """Print the result of one check."""
        self.marks[mark] += 1
        self.terminal.write(f"{mark:8} {text}")


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Run all checks that need no job or question. For a problem, the exit status is 1."""
    if options.verify:
        from . import verify  # loaded on use

        return await verify.run(options, terminal)
    for flag in ("job", "yes", "record", "keep_text"):
        if getattr(options, flag):
            raise UsageError(f"--{flag.replace('_', '-')} needs --verify")
    findings = Findings(terminal)
    _versions(findings)
    needed = [setting for setting in (*FOR_JOBS, *FOR_QUESTIONS) if options.use in (None, setting.use)]
    right = {setting for setting in needed if await _is_right(setting, options, findings)}
    for setting in (SITE, BASE_URL):
        await _is_right(setting, options, findings)
    await _service(options, findings, with_key=right.issuperset(FOR_JOBS))
    if right.issuperset(FOR_QUESTIONS):
        findings.show("-", "not checked: assistant key and domain, since a question costs credits (--verify)")
    missing, wrong = findings.marks["missing"], findings.marks["wrong"]
    if missing or wrong:
        terminal.write(f"{missing} missing, {wrong} wrong")
        return TROUBLE
    terminal.write("everything that was checked is right")
    return DONE


def _versions(findings: Findings) -> None:
    findings.show("ok", f"Python {platform.python_version()} on {platform.system()}")
    for name in ("mintlify-async", "aiohttp", "anyio", "attrs", "cattrs", "rich"):
        try:
            findings.show("ok", f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:  # rich is an extra, and the package may not be installed
            findings.show("-", f"{name} is not installed")
    if flaw := known_flaw(metadata.version("aiohttp")):
        findings.show("warning", flaw)


async def _is_right(setting: Setting, options: argparse.Namespace, findings: Findings) -> bool:
    """Show a setting, but no key. Return whether it is set and valid."""
    value, use = setting.value(options), setting.use or "optional"
    if not value:
        findings.show("missing" if setting.use else "-", f"{setting.variable} ({use}): {setting.where}")
        return False
    prefix = mintlify.Assumptions().admin_key_prefix
    arguments: dict[str, Any] = {**VALID_ARGUMENTS, setting.argument: value}
    try:
        async with mintlify.MintlifySession(**arguments) as session:
            session.check()
        if setting.is_key and not value.startswith(prefix):
            raise ConfigurationError(f"the key does not begin with {prefix}")
    except ConfigurationError as error:
        findings.show("wrong", f"{setting.variable} ({use}): {error}")
        return False
    findings.show("ok", f"{setting.variable} ({use})" + ("" if setting.is_key else f": {value}"))
    return True


async def _service(options: argparse.Namespace, findings: Findings, *, with_key: bool) -> None:
    """Check that the service answers, with a GET if there is an admin key, else with a connection."""
    try:
        session = open_session(options, ())
    except ConfigurationError:
        return  # a setting is wrong
    async with session:
        url = session.base_url
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                if with_key:
                    await _read_missing_job(session, findings)
                else:
                    address = urlsplit(url)
                    secure = address.scheme == "https"
                    port = address.port or (443 if secure else 80)
                    _, writer = await asyncio.open_connection(address.hostname, port, ssl=secure or None)
                    writer.close()
                    findings.show("ok", f"{url} is reached")
        except OSError as error:  # also a TimeoutError
            reason = str(error) or f"no answer in {PROBE_SECONDS:g} s"
            findings.show("wrong", f"{url} is not reached ({reason}): check the network")


async def _read_missing_job(session: mintlify.MintlifySession, findings: Findings) -> None:
    """Read a job that does not exist. The response shows whether the admin key is accepted."""
    project = PROJECT.value()
    job = session.job(mintlify.JobRef(project_id=project, id=PROBE_JOB))
    try:
        await job.refresh()
    except NotFoundError as error:  # the expected response, whose text says what is missing
        body = error.body.lower()
        if "project" in body and "job" not in body:
            findings.show("wrong", f"{session.base_url} has no project {project}: check {PROJECT.variable}")
            return
    except MintlifyError as error:
        findings.show("wrong", message_of(error))
        return
    findings.show("ok", f"{session.base_url} is reached, and takes the admin key")
    findings.show(
        "-", f"not checked: that the key may create jobs, and that project {one_word(project)} exists"
    )
