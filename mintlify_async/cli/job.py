"""``job``: creates agent jobs, sends follow-ups, waits for jobs and shows them."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING

import mintlify_async as mintlify

from .error_advice import UsageError
from .exit_status import DONE, JOB_FAILED
from .run_command import read_text
from .settings import ADMIN_KEY, FOR_JOBS, check_settings, recorder
from .terminal import Terminal

if TYPE_CHECKING:
    from ..storage import Ledger

DEFAULT_WAIT = 1800.0
"""Longest wait in seconds without ``--timeout``."""


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Run ``job create``, ``send``, ``wait``, ``watch`` or ``show``."""
    has_project = getattr(options, "ref", "").startswith("mintlify-job:")  # else it is an id alone
    check_settings(options, [ADMIN_KEY] if has_project else FOR_JOBS)
    ledger = _ledger(options) if options.verb == "create" else None
    async with mintlify.MintlifySession(
        project_id=options.project, base_url=options.base_url, ledger=ledger, recorder=recorder(options)
    ) as session:
        match options.verb:
            case "create":
                prompt = read_text(options.prompt, "prompt")
                handle = await session.create_job(prompt, dedupe_key=options.dedupe_key)
                return await _started(handle, options, terminal)
            case "send":
                prompt = read_text(options.prompt, "prompt")
                turn = await session.job(options.ref).send(prompt)
                return await _started(turn, options, terminal)
            case "show":
                return _result(await session.job(options.ref).refresh(), options, terminal)
            case _:
                every = options.verb == "watch"
                return await _wait(session.job(options.ref), options, terminal, every_record=every)


def _ledger(options: argparse.Namespace) -> Ledger | None:
    if options.ledger:
        from .ledgers import open_ledger  # imported on use, because few commands need what it loads

        return open_ledger(options.ledger)
    if options.dedupe_key:
        raise UsageError("--dedupe-key needs --ledger FILE (or git), which stores it")
    return None


async def _started(handle: mintlify.JobHandle, options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the reference before anything else can fail: the job is paid for. Then wait, with ``--wait``."""
    if options.wait:
        terminal.note(f"reference: {handle.ref}")
        return await _wait(handle, options, terminal, every_record=False)
    if options.json:
        terminal.record({"ref": str(handle.ref), **(handle.job.to_wire() if handle.job else {})})
    else:
        terminal.write(str(handle.ref))
    return DONE


async def _wait(
    handle: mintlify.JobHandle, options: argparse.Namespace, terminal: Terminal, *, every_record: bool
) -> int:
    """Wait for the end of the job; print its last record, or each one."""
    quiet = options.json or every_record
    last: mintlify.Job | None = None
    try:
        progress = nullcontext(_nothing) if quiet else terminal.progress(f"job {handle.ref.id}")
        with progress as tell:
            async for last in handle.watch(timeout=options.timeout or DEFAULT_WAIT):
                if every_record:
                    _show(last, options, terminal)
                elif not last.done:  # the end is printed below, as the result
                    tell(line(last))
    except asyncio.CancelledError:  # Ctrl-C; every other failure has an error that says it
        terminal.note(f"the job goes on; wait for it with: mintlify-async job wait {handle.ref}")
        raise
    if handle.settled_by == "grace":
        terminal.note(
            "the follow-up was not seen at work; the status did not change, so it counts as the result"
        )
    assert last is not None  # watch() yields at least one record
    if every_record:
        return JOB_FAILED if last.status == "failed" else DONE
    return _result(last, options, terminal)


def _nothing(text: str) -> None:
    """Show no state."""


def _result(job: mintlify.Job, options: argparse.Namespace, terminal: Terminal) -> int:
    _show(job, options, terminal)
    return JOB_FAILED if job.status == "failed" else DONE


def _show(job: mintlify.Job, options: argparse.Namespace, terminal: Terminal) -> None:
    if options.json:
        terminal.record(job.to_wire())
    else:
        terminal.write(line(job))


def line(job: mintlify.Job) -> str:
    """Return a record as one line."""
    said = [job.id, job.status]
    if job.pr_link:
        said.append(job.pr_link)
    elif job.status == "completed":
        said.append("no pull request (no files changed, or pushed straight to the branch)")
    return "  ".join(said)
