"""``doctor`` checks the settings, the versions, and the connection to the service. It creates nothing."""

from __future__ import annotations

import argparse
import asyncio
import platform
from collections import Counter
from importlib import metadata
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener

from attrs import define, field

import mintlify_async as mintlify

from ..errors import ConfigurationError, MintlifyError, NotFoundError
from ..http.connection_errors import known_flaw
from ..settings.proxy_and_tls import proxy_to, unused_proxy
from .error_advice import PASSWORD_ADVICE, UsageError, in_flags, message_of, missing_thing, proxy_advice
from .exit_status import DONE, TROUBLE
from .settings import BASE_URL, FOR_JOBS, FOR_QUESTIONS, PROJECT, PROXY, SITE, Setting, open_session
from .terminal import Terminal, inert, one_word

PROBE_SECONDS = 10.0
"""Maximum time to wait for the service, in seconds."""

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
"""A valid value of each setting, so that a setting can be checked without the others."""


@define
class Findings:
    """The results of the checks. Each has the mark ``ok``, ``missing``, ``wrong``, ``warning`` or ``-``."""

    terminal: Terminal
    marks: Counter[str] = field(factory=Counter[str])

    def show(self, mark: str, text: str) -> None:
        """Print the result of one check."""
        self.marks[mark] += 1
        self.terminal.write(f"{mark:8} {inert(text)}")


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Run all checks that need no job and no question. After a problem, the exit status is 1."""
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
    for setting in (SITE, BASE_URL, PROXY):
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
    """Show a setting. A key is not shown. Return whether the setting is set and valid."""
    value, name = setting.value(options), f"{setting.source(options)} ({setting.use or 'optional'})"
    if not value:
        findings.show("missing" if setting.use else "-", f"{name}: {setting.where}")
        return False
    prefix = mintlify.Assumptions().admin_key_prefix
    arguments: dict[str, Any] = {**VALID_ARGUMENTS, setting.argument: value}
    try:
        async with mintlify.MintlifySession(**arguments) as session:
            session.check()
        if setting.is_key and not value.startswith(prefix):
            raise ConfigurationError(f"the key does not begin with {prefix}", field=setting.argument)
    except ConfigurationError as error:
        findings.show("wrong", message_of(error, name))
        return False
    findings.show("ok", name + ("" if setting.is_secret else f": {value}"))
    return True


async def _service(options: argparse.Namespace, findings: Findings, *, with_key: bool) -> None:
    """Check that the service responds: with a GET if there is an admin key, otherwise with a connection."""
    try:
        session = open_session(options, ())
    except ConfigurationError:
        return  # a setting is wrong
    async with session:
        url, proxy = session.base_url, PROXY.value(options) or None
        unused = "" if proxy else unused_proxy(url)
        if unused:
            findings.show("warning", in_flags(unused))
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                if with_key:
                    await _read_missing_job(session, findings, hint=unused)
                else:
                    refusal = await asyncio.to_thread(_connect, url, proxy_to(url, proxy))
                    findings.show("wrong" if refusal else "ok", refusal or f"{url} is reached")
        except OSError as error:  # also a TimeoutError
            reason = getattr(error, "reason", error) if str(error) else f"no answer in {PROBE_SECONDS:g} s"
            findings.show("wrong", f"{url} is not reached ({reason}): check the network")


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _connect(url: str, proxy: str | None) -> str:
    """Connect to *url* without a key, in a thread. Return the proxy's refusal, or an empty text.

    Every response of the service is a success.
    """
    proxies: dict[str, str] = {} if proxy is None else {"http": proxy, "https": proxy}
    try:
        build_opener(ProxyHandler(proxies), _NoRedirects).open(url, timeout=PROBE_SECONDS).close()
    except HTTPError as error:
        status = error.code
        error.close()
    except URLError as error:
        status = 407 if " 407" in str(error) else 0  # only the text shows a refused tunnel
        if not status:
            raise
    else:
        status = 200
    return f"the proxy refused: 407; {PASSWORD_ADVICE}" if status == 407 else ""


async def _read_missing_job(session: mintlify.MintlifySession, findings: Findings, *, hint: str) -> None:
    """Read a job that does not exist. The response shows whether the admin key is accepted."""
    project = PROJECT.value()
    job = session.job(mintlify.JobRef(project_id=project, id=PROBE_JOB))
    try:
        await job.refresh()
    except NotFoundError as error:  # the expected response, whose text names the missing thing
        thing = missing_thing(error)
        if thing == "project":
            findings.show("wrong", f"{session.base_url} has no project {project}: check {PROJECT.variable}")
        elif not thing:
            what = f"{session.base_url} answers 404, but not as the service does: check {BASE_URL.variable}"
            findings.show("wrong", what)
        if thing != "job":
            return
    except MintlifyError as error:
        findings.show("wrong", message_of(error).removesuffix(f"; {in_flags(hint)}"))
        if advice := proxy_advice(error):
            findings.show("-", advice)
        return
    findings.show("ok", f"{session.base_url} is reached, and takes the admin key")
    findings.show(
        "-", f"not checked: that the key may create jobs, and that project {one_word(project)} exists"
    )
