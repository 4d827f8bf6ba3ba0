"""A worker that creates agent jobs and waits for them. It may be stopped and started again at any time.

mintlify-async serve                  # prints `export` lines; or set your own key and project
python worker.py TASKS                # each line of the file TASKS is: NAME: INSTRUCTION
"""

import asyncio
import signal
import sys
from pathlib import Path

from mintlify_async import Job, MintlifyError, MintlifySession, PaymentRequiredError, SQLiteStore, Timeouts

AT_ONCE = 20  # running jobs


class Worker:
    def __init__(self, session: MintlifySession) -> None:
        self.session = session
        self.free = asyncio.Semaphore(AT_ONCE)
        self.waits: set[asyncio.Task[Job]] = set()
        self.ending = False
        self.paid = True  # until the credits are used up

    def end(self) -> None:
        """Create no more jobs, and stop waiting. A running creation is finished, because it costs money."""
        self.ending = True
        for wait in self.waits:
            wait.cancel()

    async def do(self, name: str, instruction: str) -> None:
        async with self.free:
            if self.ending or not self.paid:
                return
            try:
                handle = await self.session.create_job(instruction, dedupe_key=name)
            except MintlifyError as error:
                # Without credits, no more tasks are started.
                self.paid = self.paid and not isinstance(error, PaymentRequiredError)
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
                return
            wait = asyncio.create_task(handle.wait(timeout=None, check=False))
            self.waits.add(wait)
            if self.ending:  # meanwhile
                wait.cancel()
            try:
                job = await wait
                print(f"{name}: {job.status} {job.pr_link or 'without a pull request'}", flush=True)
            except asyncio.CancelledError:
                print(f"{name}: keeps running at the service: {handle.ref}", flush=True)
            except MintlifyError as error:
                print(f"{name}: {handle.ref}: {type(error).__name__}: {error}", flush=True)
            self.waits.discard(wait)


def tasks_in(path: Path) -> dict[str, str]:
    tasks = dict[str, str]()
    for line in path.read_text("utf-8").splitlines():
        name, _, instruction = (part.strip() for part in line.partition(":"))
        if name in tasks:
            print(f"{name}: a second line with this name is dropped: {instruction}", flush=True)
        elif name:
            tasks[name] = instruction
    return tasks


async def main(path: Path) -> None:
    ledger = SQLiteStore(path.with_suffix(".sqlite"))
    limits = Timeouts(request=20)  # less than the time that a process has after SIGTERM
    session = MintlifySession(ledger=ledger, timeouts=limits)
    session.check("agent")
    async with session, asyncio.TaskGroup() as group:
        worker = Worker(session)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.end)
        for name, instruction in tasks_in(path).items():
            group.create_task(worker.do(name, instruction))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
