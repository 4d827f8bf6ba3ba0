"""A worker that creates agent jobs and waits for them. It may be stopped and started again at any time.

mintlify-async serve                  # prints `export` lines; or set your own key and project
python worker.py TASKS                # each line of the file TASKS is: NAME: INSTRUCTION

SIGTERM and Ctrl-C stop it as soon as no request is on its way. It prints the references of running jobs.
The next start creates none of them again. The ledger has each name's job, and the worker waits for it.
"""

import asyncio
import logging
import signal
import sys
from pathlib import Path

from mintlify_async import (
    Job,
    MintlifyError,
    MintlifySession,
    PaymentRequiredError,
    PollPolicy,
    SQLiteStore,
    Timeouts,
)

AT_ONCE = 20  # running jobs

log = logging.getLogger("worker")


class Worker:
    def __init__(self, session: MintlifySession) -> None:
        self.session = session
        self.free = asyncio.Semaphore(AT_ONCE)
        self.waits: set[asyncio.Task[Job]] = set()
        self.ending = False
        self.paid = True  # until the credits are used up

    def end(self) -> None:
        """Create no more jobs, and stop waiting. A creation on its way is finished, as it costs money."""
        self.ending = True
        for wait in self.waits:
            wait.cancel()

    async def do(self, name: str, instruction: str) -> None:
        async with self.free:
            if self.ending or not self.paid:
                return
            try:
                handle = await self.session.create_job(instruction, dedupe_key=name)
            except PaymentRequiredError as error:
                self.paid = False
                log.error("%s: %s; no further job is created", name, error)
                return
            except MintlifyError as error:
                log.error("%s: %s: %s", name, type(error).__name__, error)
                return
            wait = asyncio.create_task(handle.wait(timeout=None, check=False))
            self.waits.add(wait)
            if self.ending:  # meanwhile
                wait.cancel()
            try:
                job = await wait
                log.info("%s: %s %s", name, job.status, job.pr_link or "without a pull request")
            except asyncio.CancelledError:
                log.info("%s: goes on at the service: %s", name, handle.ref)
            except MintlifyError as error:
                log.error("%s: %s: %s: %s", name, handle.ref, type(error).__name__, error)
            finally:
                self.waits.discard(wait)


def tasks_in(path: Path) -> dict[str, str]:
    tasks = dict[str, str]()
    for line in path.read_text("utf-8").splitlines():
        name, _, instruction = (part.strip() for part in line.partition(":"))
        if name in tasks:
            log.warning(
                "%s: there is another line with this name; this one is dropped: %s", name, instruction
            )
        elif name:
            tasks[name] = instruction
    return tasks


async def main(path: Path) -> None:
    ledger = SQLiteStore(path.with_suffix(".sqlite"))
    limits = Timeouts(request=20)  # less than the time that a process has after SIGTERM
    async with MintlifySession(ledger=ledger, timeouts=limits, poll=PollPolicy(per_second=20)) as session:
        session.check("agent")
        worker = Worker(session)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.end)
        async with asyncio.TaskGroup() as group:
            for name, instruction in tasks_in(path).items():
                group.create_task(worker.do(name, instruction))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    logging.getLogger("mintlify_async").setLevel(logging.WARNING)  # the worker's own lines say enough
    asyncio.run(main(Path(sys.argv[1])))
