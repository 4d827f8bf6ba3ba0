"""``serve``: the local service as a process, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import signal

from mintlify_async.testing import JobLife, LocalService

from .statuses import DONE
from .terminal import Terminal

__all__ = ["run"]


async def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Serve until a signal comes; the ready line on standard output holds the address."""
    service = LocalService(
        docs=options.docs,
        host=options.host,
        port=options.port,
        cors=options.cors,
        life=JobLife(seconds=options.job_seconds) if options.job_seconds else None,
    )
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with service:
        terminal.note("In another terminal:")
        for name, value in (
            ("MINTLIFY_BASE_URL", service.base_url),
            ("MINTLIFY_PROJECT_ID", service.project_id),
            ("MINTLIFY_DOMAIN", service.domain),
            ("MINTLIFY_ADMIN_API_KEY", service.admin_key),
            ("MINTLIFY_ASSISTANT_API_KEY", service.assistant_key),
        ):
            terminal.note(f"  export {name}={value}", style="none")
        terminal.write(f"ready {service.base_url}")
        await stopped.wait()
    terminal.note("stopped")
    return DONE
