"""``job`` creates agent jobs, sends follow-ups, waits for jobs and shows them."""

from __future__ import annotations

import argparse
import asyncio
import re
from contextlib import nullcontext

import mintlify_async as mintlify

from ..model.job_ref import is_reference
from .exit_status import DONE, JOB_FAILED
from .settings import ADMIN_KEY, FOR_JOBS, open_session
from .standard_input import read_text
from .stores import open_ledger
from .terminal import OutputError, Terminal, one_word


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Run ``job create``, ``send``, ``wait``, ``watch`` or ``show``."""
    key = getattr(options, "dedupe_key", None)
    needed = [ADMIN_KEY] if is_reference(getattr(options, "ref", "")) else FOR_JOBS  # an id has no project
    async with (
        open_ledger(options, create=True) if key else nullcontext() as ledger,
        open_session(options, needed, ledger=ledger) as session,
    ):
        match options.verb:
            case "create":
                job = await session.create_job(read_text(options.prompt, "prompt"), dedupe_key=key)
            case "send":
                job = session.job(options.ref)
                job = await job.send(read_text(options.prompt, "prompt"), dedupe_key=key)
            case _:
                job = session.job(options.ref)
        if options.verb == "show":
            return _result(await job.refresh(), job.ref, options, terminal)
        if options.verb in ("wait", "watch"):
            return await _wait(job, options, terminal)
        # The reference is printed before anything else can fail, because the job costs money.
        _tell_reference(job, options, terminal)
        return await _wait(job, options, terminal) if options.wait else DONE


def _tell_reference(handle: mintlify.JobHandle, options: argparse.Namespace, terminal: Terminal) -> None:
    """Print the reference of a paid job. If one stream cannot be written, use the other stream."""
    note = f"reference: {handle.ref}"
    if options.wait and terminal.note(note):
        return
    try:
        if options.json:
            terminal.record({"ref": str(handle.ref), **(handle.job.to_wire() if handle.job else {})})
        else:
            terminal.write(str(handle.ref))
    except OutputError:
        terminal.note(note)
        raise
    except BrokenPipeError as error:
        terminal.note(note)
        raise OutputError(error) from None


async def _wait(handle: mintlify.JobHandle, options: argparse.Namespace, terminal: Terminal) -> int:
    """Wait for the job's end. Print its states as notes and its last record, or with watch each record."""
    watch = options.verb == "watch"
    job: mintlify.Job | None = None
    try:
        with nullcontext() if options.json or watch else terminal.progress(f"job {handle.ref.id}"):
            async for job in handle.watch(timeout=options.timeout):
                if watch:
                    _show(job, handle.ref, options, terminal)
                elif not job.done and not options.json:
                    terminal.note(record_line(job, handle.ref))
    except asyncio.CancelledError:  # Ctrl-C or SIGTERM; every other error names the job
        terminal.note(f"the job keeps running; wait for it with: mintlify-async job wait {handle.ref}")
        raise
    assert job is not None  # watch() yields at least one record
    if watch:
        return JOB_FAILED if job.status == "failed" else DONE
    return _result(job, handle.ref, options, terminal)


def _result(job: mintlify.Job, ref: mintlify.JobRef, options: argparse.Namespace, terminal: Terminal) -> int:
    _show(job, ref, options, terminal)
    return JOB_FAILED if job.status == "failed" else DONE


def _show(job: mintlify.Job, ref: mintlify.JobRef, options: argparse.Namespace, terminal: Terminal) -> None:
    if options.json:
        terminal.record(job.to_wire())
    else:
        terminal.write(record_line(job, ref))


def record_line(job: mintlify.Job, ref: mintlify.JobRef) -> str:
    """Return a record as one line. The service's texts cannot break the line.

    The first word can be used as REF of a command. If a shell would change the id, the reference is shown.
    """
    is_plain = re.fullmatch("[A-Za-z0-9_][A-Za-z0-9._-]*", job.id)
    name = job.id if is_plain else str(mintlify.JobRef(ref.project_id, job.id))
    text = f"{name}  {one_word(job.status)}"
    if job.pr_link:
        return f"{text}  {one_word(job.pr_link)}"
    if job.status == "completed":
        text += "  no pull request (no files changed, or pushed straight to the branch)"
    return text
