"""``ledger`` lists the dedupe keys of a ledger, and closes claims with an unknown outcome."""

from __future__ import annotations

import argparse

import mintlify_async as mintlify

from ..runtime.clock import as_text
from .exit_status import DONE
from .stores import open_ledger
from .terminal import Terminal, shell_word


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """List the claims, record the job of a claim, or delete a key."""
    async with open_ledger(options, create=False) as store:
        ledger = mintlify.Ledger(store)
        match options.verb:
            case "list":
                await _list(ledger, terminal, recorded=options.all)
            case "resolve":
                await ledger.resolve(options.key, options.job)
            case _:
                await ledger.forget(options.key)
    return DONE


async def _list(ledger: mintlify.Ledger, terminal: Terminal, *, recorded: bool) -> None:
    claims = await ledger.open_claims()
    lines = [(claim.since, claim.state, claim.operation, claim.key, "") for claim in claims]
    if recorded:
        jobs = await ledger.jobs()
        lines += [(job.since, "done", job.operation, job.key, f"  {shell_word(job.job_id)}") for job in jobs]
    for since, state, operation, key, job_id in sorted(lines):
        terminal.write(f"{as_text(since)}  {state}  {operation}  {shell_word(key)}{job_id}")
    if not lines:
        terminal.note("the ledger is empty" if recorded else "no claim is open")
