"""``job`` creates agent jobs, sends follow-ups, waits for jobs and shows them."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import nullcontext
from pathlib import Path

import mintlify_async as mintlify

from .error_advice import UsageError
from .exit_status import DONE, JOB_FAILED
from .settings import ADMIN_KEY, FOR_JOBS, open_session
from .standard_input import read_text
from .terminal import Terminal, one_word


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Run ``job create``, ``send``, ``wait``, ``watch`` or ``show``."""
    key = getattr(options, "dedupe_key", None)
    if key and not options.ledger:
        raise UsageError("--dedupe-key needs --ledger FILE, which records it")
    has_project = getattr(options, "ref", "").startswith("mintlify-job:")  # otherwise it is only an id
    ledger = open_ledger(options.ledger) if key else None
    async with open_session(options, [ADMIN_KEY] if has_project else FOR_JOBS, ledger=ledger) as session:
        match options.verb:
            case "create":
                job = await session.create_job(read_text(options.prompt, "prompt"), dedupe_key=key)
            case "send":
                job = session.job(options.ref)
                job = await job.send(read_text(options.prompt, "prompt"), dedupe_key=key)
            case _:
                job = session.job(options.ref)
        if options.verb == "show":
            return _result(await job.refresh(), options, terminal)
        if options.verb in ("wait", "watch"):
            return await _wait(job, options, terminal)
        # The reference is printed before anything else can fail, because the job is paid for.
        if options.wait:
            terminal.note(f"reference: {job.ref}")
            return await _wait(job, options, terminal)
        if options.json:
            terminal.record({"ref": str(job.ref), **(job.job.to_wire() if job.job else {})})
        else:
            terminal.write(str(job.ref))
        return DONE


def open_ledger(file: str) -> mintlify.SQLiteStore:
    """Return the ledger in *file*. If its folder does not exist, make it."""
    if file == "git" or file.startswith("git:"):  # a ledger of 0.2: a file of that name would protect nothing
        raise UsageError(f"--ledger {file}: git ledgers are gone; name a FILE that the next run has, too")
    Path(file).parent.mkdir(parents=True, exist_ok=True)  # an empty cache of a CI service has no folder
    return mintlify.SQLiteStore(file)


async def _wait(handle: mintlify.JobHandle, options: argparse.Namespace, terminal: Terminal) -> int:
    """Wait for the end of the job. Print its states as notes and its last record, or with watch each one."""
    watch = options.verb == "watch"
    job: mintlify.Job | None = None
    try:
        with nullcontext() if options.json or watch else terminal.progress(f"job {handle.ref.id}"):
            async for job in handle.watch(timeout=options.timeout):
                if watch:
                    _show(job, options, terminal)
                elif not job.done and not options.json:
                    terminal.note(record_line(job))
    except asyncio.CancelledError:  # Ctrl-C or SIGTERM, because every other error names the job
        terminal.note(f"the job keeps running; wait for it with: mintlify-async job wait {handle.ref}")
        raise
    assert job is not None  # watch() yields at least one record
    if watch:
        return JOB_FAILED if job.status == "failed" else DONE
    return _result(job, options, terminal)


def _result(job: mintlify.Job, options: argparse.Namespace, terminal: Terminal) -> int:
    _show(job, options, terminal)
    return JOB_FAILED if job.status == "failed" else DONE


def _show(job: mintlify.Job, options: argparse.Namespace, terminal: Terminal) -> None:
    if options.json:
        terminal.record(job.to_wire())
    else:
        terminal.write(record_line(job))


def record_line(job: mintlify.Job) -> str:
    """Return a record as one line. The service's texts cannot break the line."""
    text = f"{one_word(job.id)}  {one_word(job.status)}"
    if job.pr_link:
        return f"{text}  {one_word(job.pr_link)}"
    if job.status == "completed":
        text += "  no pull request (no files changed, or pushed straight to the branch)"
    return text
