"""A scripted agent API in place of a session's. It plays statuses, and records the times of polls."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any, cast

from mintlify_async.errors import (
    APIConnectionError,
    APIStatusError,
    QuotaExceededError,
    ServerError,
)
from mintlify_async.http.send_progress import Sending
from mintlify_async.http.session_core import Core, LoopResources
from mintlify_async.jobs.handle import JobHandle, handle_for
from mintlify_async.jobs.job_calls import created
from mintlify_async.jobs.shared_polls import PollScheduler, scheduler_of
from mintlify_async.model.job_record import Job
from mintlify_async.model.job_ref import JobRef
from mintlify_async.model.operation import GET_JOB
from mintlify_async.model.response_info import ResponseInfo
from mintlify_async.protocol.requests import Call
from mintlify_async.protocol.responses import WholeResponse, read_job
from mintlify_async.protocol.status_errors import status_error_class
from mintlify_async.runtime import clock
from mintlify_async.settings.api_keys import Key
from mintlify_async.settings.options import Options
from mintlify_async.settings.paths_and_headers import Assumptions
from mintlify_async.settings.poll_policy import PollPolicy
from mintlify_async.settings.retry_policy import RetryBudget, RetryPolicy

Seen = str | Job | BaseException
Script = Callable[[float], Seen]
"""A function from the time to a status, a record or an error."""


def record(status: str, job_id: str = "job_1", **fields: Any) -> Job:
    return Job(id=job_id, status=status, **fields)


def refused(status: int, retry_after: float | None = None) -> Exception:
    return status_error_class(status)(
        f"the service answered {status}", status=status, retry_after=retry_after
    )


def lost() -> Exception:
    return APIConnectionError("the connection was lost")


def down() -> Exception:
    return ServerError("the service failed", status=503)


def answered_with(status: str, headers: dict[str, str]) -> Job:
    return record(status, raw=ResponseInfo(status=200, headers=headers))


def at_times(*steps: tuple[float, Seen]) -> Script:
    """Show each thing from its time on, and the first from the start."""
    return lambda now: next((seen for since, seen in reversed(steps) if now >= since), steps[0][1])


def in_turn(*seen: Seen) -> Script:
    """Show one thing per poll, then always the last one."""
    left = list(seen)
    return lambda now: left.pop(0) if len(left) > 1 else left[0]


class FakeAgent:
    """A session's core whose connections are played. ``scripts`` has the results of each job's polls.

    Its times count from 0 at the first use. ``date`` gives the ``Date`` of a poll's response, or None.
    """

    def __init__(self, script: Script | None = None, *, poll: PollPolicy | None = None) -> None:
        self.poll = poll or PollPolicy()
        self.resources = LoopResources(cast(Any, self))  # it is also the transport
        self.parts: dict[type, Any] = {}
        shared: Any = SimpleNamespace(
            transport=SimpleNamespace(base_url="https://fake.test"),
            budget=RetryBudget(10.0),
            poll=self.poll,
            loops=SimpleNamespace(get=lambda: self.resources),
            part=lambda kind: self.parts.setdefault(kind, kind()),
        )
        key = Key("admin", "mint_for_tests", Assumptions())
        options = Options(
            admin_key=key, assistant_key=key, project_id="docs", poll=self.poll, retry=RetryPolicy(attempts=1)
        )
        self.core = Core(options, shared)
        self.scripts: dict[str, Script] = {"job_1": script or in_turn("completed")}
        self.looks: list[float] = []
        self.asked: list[tuple[str, str, bool]] = []
        self.sent: list[tuple[str, str]] = []
        self.on_send: Callable[[], Awaitable[Seen]] | None = None
        self.latency = 0.0
        self.exclusive = True
        self.under_way: dict[str, int] = {}
        self.most_under_way = 0
        self.date: Callable[[], float | None] = lambda: None
        self._began: float | None = None

    def now(self) -> float:
        """Return the loop's time since the first call."""
        time = asyncio.get_running_loop().time()
        if self._began is None:
            self._began = time
        return round(time - self._began, 6)

    async def send(self, call: Call, key: str, limit: Any, sending: Sending, **_: Any) -> WholeResponse:
        """Play the transport."""
        job_id = call.job_id or ""
        if call.operation is not GET_JOB:
            return await self._take(call, job_id, sending)
        now = self.now()
        self.looks.append(now)
        self.asked.append((call.project_id or "", job_id, call.seconds > self.poll.timeout))
        assert not (self.exclusive and job_id in self.under_way), "one job was asked for twice at once"
        self.under_way[job_id] = 1
        self.most_under_way = max(self.most_under_way, len(self.under_way))
        try:
            seen = self.scripts[job_id](now)
            if self.latency:
                async with asyncio.timeout(call.seconds if call.seconds < self.poll.timeout else None):
                    await asyncio.sleep(self.latency)
            return self._give(seen, job_id)
        except TimeoutError:
            raise lost() from None
        finally:
            self.under_way.pop(job_id, None)

    async def unless_closed(self, step: Awaitable[Any]) -> Any:
        return await step

    async def _take(self, call: Call, job_id: str, sending: Sending) -> WholeResponse:
        self.sent.append((job_id, call.prompt))
        await sending.first_byte(sending.begin())
        await asyncio.sleep(0)
        seen = await self.on_send() if self.on_send else "active"
        if isinstance(seen, QuotaExceededError) or getattr(seen, "sent", None) == "no":
            sending.sent_at = None
        sending.status = seen.status if isinstance(seen, APIStatusError) else 0
        return self._give(seen, job_id)

    def _give(self, seen: Seen, job_id: str) -> WholeResponse:
        date = self.date()
        headers = {} if date is None else {"date": formatdate(date, usegmt=True)}
        if isinstance(seen, APIStatusError):
            seen.headers = headers
        if isinstance(seen, BaseException):
            raise seen
        job = record(seen, job_id) if isinstance(seen, str) else seen
        headers |= {} if job.raw is None else job.raw.headers
        return WholeResponse(200, headers, json.dumps(job.to_wire()).encode())

    def scheduler(self) -> PollScheduler:
        return scheduler_of(self.core)

    async def close(self) -> None:
        await self.scheduler().close()

    def job(self, named: JobRef | str = "job_1") -> JobHandle:
        return handle_for(self.core, named)

    def created(self) -> JobHandle:
        job = read_job(Assumptions(), self._give("active", "job_1"))
        return JobHandle(self.core, created(self.core, "docs", job))

    def elsewhere(self, named: JobRef | str = "job_1") -> JobHandle:
        """Return a handle in another process, which has only the text of *named*."""
        self.parts.clear()
        return self.job(named)

    def jobs(self, names: Iterable[str], script: Callable[[], Script]) -> list[JobHandle]:
        handles = []
        for name in names:
            self.scripts[name] = script()
            handles.append(self.job(name))
        return handles


@contextlib.contextmanager
def machine(ahead: float) -> Iterator[None]:
    """Let this machine's clock be ahead of the true one."""
    true = clock.now
    with clock.read_from(lambda source=clock._source: source() + ahead):
        yield
    assert clock.now is true


def tasks_left() -> list[asyncio.Task[Any]]:
    """Return the tasks other than the current one."""
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def timers_left() -> list[asyncio.TimerHandle]:
    """Return the scheduler's timers on the running loop that were not cancelled."""
    timers = [timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()]
    return [timer for timer in timers if "PollScheduler" in repr(timer)]


async def settle() -> None:
    """Give way until every task waits for a time or for another task."""
    for _ in range(20):
        await asyncio.sleep(0)
