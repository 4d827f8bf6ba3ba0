"""``ledger`` lists the dedupe keys whose outcome is open, and settles them by hand."""

from __future__ import annotations

import argparse
import asyncio
from datetime import UTC, datetime
from pathlib import Path

import mintlify_async as mintlify

from .error_advice import UsageError
from .exit_status import DONE
from .job import open_ledger
from .terminal import Terminal


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """List the open claims, record a job for one, or delete a key."""
    if not Path(options.file).is_file():
        raise UsageError(f"there is no ledger {options.file}")
    return asyncio.run(_settle(options, terminal))


async def _settle(options: argparse.Namespace, terminal: Terminal) -> int:
    ledger = mintlify.Ledger(open_ledger(options.file))
    match options.verb:
        case "list":
            claims = await ledger.open_claims()
            for claim in claims:
                since = datetime.fromtimestamp(claim.since, UTC)
                key = " ".join(claim.key.splitlines())
                terminal.write(f"{since:%Y-%m-%dT%H:%M:%SZ}  {claim.state}  {claim.operation}  {key}")
            if not claims:
                terminal.note("no claim is open")
        case "resolve":
            await ledger.resolve(options.key, options.job)
        case _:
            await ledger.forget(options.key)
    return DONE
