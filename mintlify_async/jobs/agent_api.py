"""The agent operations of the interface, and the connections and poll scheduler of each event loop."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from attrs import define, evolve, field

from ..errors import ConfigurationError, UnexpectedResponseError, printable
from ..http.dispatch import Dispatcher
from ..http.observer import Fact, Observation, PartOf, following, note_job
from ..http.transport import Transport
from ..model.job import Job
from ..protocol.argument_checks import merged
from ..protocol.requests import Request, create_job_request, get_job_request, send_message_request
from ..runtime.cancellation import finish_shielded
from ..runtime.clock import Clock
from ..runtime.per_event_loop import LoopLocal
from ..storage.ledger import LEASE_MARGIN, Ledger
from .create_once import check_key, create_once, fingerprint, send_once
from .poll_scheduler import PollScheduler
from .polling import PollPolicy
from .stale_guard import JobStates


class LoopResources:
    """The connections and the poll scheduler of one event loop."""

    __slots__ = ("scheduler", "transport")

    def __init__(self, transport: Transport, scheduler: PollScheduler) -> None:
        """Keep both together, so that they are closed in the right order."""
        self.transport = transport
        self.scheduler = scheduler

    async def close(self) -> None:
        """Wake every waiter, close every stream and connection, and wait for the polls; even if cancelled."""
        self.scheduler.close()
        await finish_shielded(self._close_connections())

    async def _close_connections(self) -> None:
        await self.transport.close()
        await self.scheduler.drained()

    def abandon(self) -> None:
        """Close the sockets without waiting."""
        self.transport.abandon()


@define(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)
class AgentAPI:
    """What job handles and the poll scheduler call.

    Args:
        http: Sends the requests.
        loops: The connections and the poll scheduler of each event loop.
        poll: When jobs are polled.
        project_id: The session's project, or None.
        states: What the session knows of its jobs.
        ledger: Where the turns of follow-ups with a ``dedupe_key`` are recorded, or None.
        observation: The operation that every call is a part of, or None.
        owner: An object that is kept alive by this one, or None.
    """

    # It does not keep the session alive unless that is the owner, so that a session that was left
    # without being closed is noticed.
    http: Dispatcher
    loops: LoopLocal[LoopResources]
    poll: PollPolicy
    project_id: str | None
    states: JobStates = field(factory=JobStates)
    ledger: Ledger | None = None
    observation: Observation | None = None
    owner: object = field(default=None, repr=False)

    @property
    def clock(self) -> Clock:
        """The session's clock."""
        return self.http.clock

    def random(self) -> float:
        """Return a number from 0 up to 1; it spreads polls and protects nothing."""
        return self.http.random()

    def owned_by(self, owner: object) -> AgentAPI:
        """Return a copy that keeps *owner* alive."""
        return evolve(self, owner=owner)

    def scheduler(self) -> PollScheduler:
        """Return the running loop's scheduler."""
        return self.loops.get().scheduler

    def observe(self, operation: str, project_id: str, job_id: str | None) -> Observation | None:
        """Begin to follow an operation, or note it in the one that it is a part of."""
        if self.observation is not None:
            return PartOf(self.observation)
        if self.http.observer is None:
            return None
        facts: dict[str, Fact] = {"project_id": project_id, "base_url": self.http.base_url}
        if job_id is not None:
            facts["conversation_id"] = job_id
        return self.http.observer.start(operation, facts)

    async def create(
        self,
        project_id: str,
        prompt: str,
        dedupe_key: str | None,
        ledger: Ledger | None,
        timeout: float | None,
        headers: Mapping[str, str] | None,
        extra_body: Mapping[str, Any] | None,
    ) -> Job | str:
        """Create a job with one POST; with *ledger*, only when *dedupe_key* has none yet.

        Returns:
            The job; or its id, when another caller has created it with the same key, or when
            the answer has no status.
        """
        http = self.http
        fields = merged(http.extra_body, extra_body)
        request = create_job_request(
            http.assumptions,
            project_id,
            prompt,
            headers=merged(http.headers, headers),
            extra_body=fields,
        )
        if dedupe_key is None or ledger is None:
            created: Job | str = await self.post(request, timeout=timeout)
        else:
            created = await create_once(
                ledger,
                dedupe_key,
                fingerprint(project_id, prompt, base_url=http.base_url, extra_body=fields),
                (timeout if timeout is not None else http.timeouts.request) + LEASE_MARGIN,
                lambda: self.post(request, timeout=timeout),
                http.clock,
                self.loops.get().transport.unless_closed,
            )
        return created if isinstance(created, str) or created.status else created.id

    async def post(self, request: Request, *, timeout: float | None = None) -> Job:
        """Send *request*, a POST, at most once, and return the job in its answer."""
        seconds = self.http.timeouts.request if timeout is None else timeout
        observation = self.observe(request.operation, request.project_id or "", request.job_id)
        if observation is None:
            return await self.http.job(request, seconds)
        observation.set("input", request.prompt or "")
        with following(observation), observation.active():
            job = await self.http.job(request, seconds)
            observation.set("conversation_id", job.id)
            note_job(observation, job)
            return job

    async def get_job(self, job_id: str, *, project_id: str, retry: bool, limit: float | None = None) -> Job:
        """Poll a job; once and within ``PollPolicy.timeout`` when *retry* is false.

        Raises:
            UnexpectedResponseError: The answer is another job, or not a job.
        """
        http, seconds = self.http, self.http.timeouts.request
        request = get_job_request(http.assumptions, project_id, job_id, headers=http.headers)
        if not retry:
            seconds = min(seconds, self.poll.timeout, math.inf if limit is None else max(limit, 0.001))
        job = await http.job(request, seconds, single=not retry)
        if job.id != job_id:
            raise UnexpectedResponseError(
                f"get_job: asked for job {printable(job_id)}, but the answer is job {printable(job.id)}",
                excerpt=printable(repr(job)),
                status=200 if job.raw is None else job.raw.status,
                headers=None if job.raw is None else job.raw.headers,
                request_id=None if job.raw is None else job.raw.request_id,
            )
        return job

    async def send_message(
        self,
        job_id: str,
        prompt: str,
        *,
        project_id: str,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> Job | None:
        """Send a follow-up: one POST, at most once; None when its answer is no record of this job."""
        request = send_message_request(
            self.http.assumptions,
            project_id,
            job_id,
            prompt,
            headers=merged(self.http.headers, headers),
            extra_body=merged(self.http.extra_body, extra_body),
        )
        job = await self.post(request, timeout=timeout)
        return job if job.status and job.id == job_id else None

    async def is_claimed(self, dedupe_key: str) -> bool:
        """Return whether *dedupe_key* was used already, or is in use."""
        return await self._turn_ledger().find(check_key(dedupe_key)) is not None

    async def send_once(
        self,
        job_id: str,
        prompt: str,
        dedupe_key: str,
        send: Callable[[], Awaitable[str]],
        *,
        project_id: str,
        timeout: float | None,
        extra_body: Mapping[str, Any] | None,
    ) -> str:
        """Call *send* unless *dedupe_key* has a turn already; return the turn's reference."""
        limit = timeout if timeout is not None else self.http.timeouts.request
        fields = merged(self.http.extra_body, extra_body)
        identity = fingerprint(
            f"{project_id}/{job_id}", prompt, base_url=self.http.base_url, extra_body=fields
        )
        ledger = self._turn_ledger()
        wait = self.loops.get().transport.unless_closed
        return await send_once(ledger, dedupe_key, identity, limit + LEASE_MARGIN, send, self.clock, wait)

    def _turn_ledger(self) -> Ledger:
        if self.ledger is None:
            raise ConfigurationError(
                "dedupe_key needs a ledger to be recorded in: give the session ledger=SQLiteLedger(path)",
                field="dedupe_key",
            )
        return self.ledger
