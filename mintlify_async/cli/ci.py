"""``ci``: one agent job per pull request, one turn per commit; a re-run creates and sends nothing."""

from __future__ import annotations

import argparse
import asyncio
import signal
from contextlib import suppress

import mintlify_async as mintlify
from mintlify_async.contrib.git import GitLedgerError
from mintlify_async.errors import MintlifyError, NotFoundError, OutcomeUnknownError

from .ci_service import Change, Report, find_change
from .error_advice import SettingsError, UsageError, in_command_line_words
from .exit_status import DONE, INTERRUPTED, JOB_FAILED
from .job import DEFAULT_WAIT, line
from .ledgers import TurnLedger, open_ledger
from .run_command import read_text
from .settings import FOR_JOBS, check_settings
from .terminal import Terminal

FORK = (
    "this pull request comes from a fork: its runs get no secrets, and a token that may not push. "
    "Nothing was sent"
)


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Create the job of this change, or send its follow-up, unless that was done; wait, and report."""
    change = find_change(name=options.name, key=options.key, turn=options.turn)
    report = Report(terminal, options.dotenv)
    ledger = TurnLedger(open_ledger(options.ledger, prefix=options.ref_prefix), change.turn)
    ending = _end_at_sigterm()
    try:
        return await _run(options, change, ledger, report)
    except asyncio.CancelledError:
        _tell_what_goes_on(change, ledger, report)
        report.add(status="cancelled")
        if not ending:  # Ctrl-C: the caller says so
            raise
        return INTERRUPTED
    except (MintlifyError, UsageError, OSError) as error:
        refused = isinstance(error, GitLedgerError) and error.reason == "permission"
        if change.fork and (refused or isinstance(error, SettingsError)):
            report.add(status="skipped", action="none")
            report.annotate("notice", FORK)
            terminal.note(FORK)
            report.summarize(FORK)
            return DONE
        message = in_command_line_words(str(error))
        if advice := _advice(error, change, ledger):
            message += f"\n{advice}"
            terminal.note(advice)
        report.add(status=_STATUSES.get(type(error), "error"))
        report.annotate("error", message)
        report.summarize(message)
        raise


async def _run(options: argparse.Namespace, change: Change, ledger: TurnLedger, report: Report) -> int:
    check_settings(options, FOR_JOBS)
    prompt = read_text(options.prompt, "prompt")
    terminal = report.terminal
    async with mintlify.MintlifySession(
        project_id=options.project, base_url=options.base_url, ledger=ledger
    ) as session:
        began = session.clock.now()
        handle = await session.create_job(prompt, dedupe_key=change.key)
        if not ledger.is_of_this_turn(change.key):
            handle = await handle.send(options.follow_up or prompt, dedupe_key=change.turn_key)
        action = "created" if change.key in ledger.made else "none"
        action = "sent" if change.turn_key in ledger.made else action
        report.add(reference=handle.ref, job_id=handle.id, action=action, status="active")
        terminal.note(f"{_ACTIONS[action]}; reference: {handle.ref}")
        for key in ledger.open:
            terminal.error(f"the ledger did not record it: {ledger.advice(key)}")

        def show(job: mintlify.Job) -> None:
            if not job.done:
                terminal.note(line(job))

        try:
            job = await handle.wait(options.timeout or DEFAULT_WAIT, check=False, on_change=show)
        finally:
            seconds = session.clock.now() - began
            report.add(pull_request=handle.pr_link, duration=round(seconds), reference=handle.ref)
    report.add(status=job.status)
    failed = job.status == "failed"
    verdict = f"{line(job)} ({seconds:.0f} s)"
    terminal.write(verdict)
    if failed:
        report.annotate("error", f"the agent job failed: {verdict}")
    report.summarize()
    return JOB_FAILED if failed else DONE


_ACTIONS = {
    "created": "the job was created",
    "sent": "a follow-up was sent to the job of this change",
    "none": "nothing was sent: an earlier run for this commit did it",
}


_STATUSES: dict[type[Exception], str] = {
    OutcomeUnknownError: "unknown",
    mintlify.JobTimeoutError: "active",
}
"""The status of a run that ends with an error; of every other one it is ``error``."""


def _advice(error: Exception, change: Change, ledger: TurnLedger) -> str:
    """Say what a person does with the ledger about *error*; nothing where it is not for the ledger."""
    match error:
        case OutcomeUnknownError():
            return ledger.advice(change.key if error.operation == "create_job" else change.turn_key)
        case NotFoundError(operation="send_message" | "get_job") if change.key not in ledger.made:
            return f"the job of this change is gone; to begin a new one, {ledger.forgetting(change.key)}"
        case _:
            return ""


def _end_at_sigterm() -> list[int]:
    """Cancel the running task at SIGTERM; return a list that is filled then."""
    task, ending = asyncio.current_task(), list[int]()

    def end() -> None:
        ending.append(signal.SIGTERM)
        if task is not None:
            task.cancel()

    with suppress(ValueError, RuntimeError, NotImplementedError):  # not in the main thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    return ending


def _tell_what_goes_on(change: Change, ledger: TurnLedger, report: Report) -> None:
    """Say, after a cancellation, what goes on at the service, or may."""
    terminal = report.terminal
    known = report.values.get("reference") or ledger.recorded.get(change.turn_key)
    known = known or ledger.recorded.get(change.key)
    if known:
        terminal.note(f"the job goes on; wait for it with: mintlify-async job wait {known}")
        report.add(reference=known)
    elif ledger.open:
        for key in ledger.open:
            terminal.error(f"interrupted while it was sent: the outcome is not known; {ledger.advice(key)}")
    else:
        terminal.note("nothing was sent")
