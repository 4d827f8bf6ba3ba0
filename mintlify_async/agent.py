"""The three agent operations: a prompt or a job's id goes in, the job's record comes out."""

from __future__ import annotations

import random
from collections.abc import Coroutine, Mapping
from typing import Any

from attrs import define, evolve, field

from .clock import Clock
from .dispatch import Dispatcher
from .hooks import Fact, Observation, Observer, PartOf, following, note_job
from .job import Job
from .loops import LoopLocal
from .polling import PollPolicy, PollScheduler
from .protocol import Assumptions, Request, get_job_request, send_message_request
from .shield import to_the_end
from .timeouts import Timeouts
from .transport import Transport

__all__ = ["AgentClient", "Resources"]


LOOKS_KEPT = 1024  # a job is looked at again and again; this many of those requests are not built anew


class Resources:
    """What belongs to one event loop: its connections and its poll scheduler."""

    __slots__ = ("scheduler", "transport")

    def __init__(self, transport: Transport, scheduler: PollScheduler) -> None:
        """Keep both together."""
        self.transport = transport
        self.scheduler = scheduler

    async def close(self) -> None:
        """Wake every waiter, close every live reply, then the connections; all of it, even when cancelled."""
        self.scheduler.close()
        await to_the_end(self._rest())

    async def _rest(self) -> None:
        await self.transport.close()
        await self.scheduler.drained()

    def abandon(self) -> None:
        """Give the connections back without waiting."""
        self.transport.abandon()


@define(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)
class AgentClient:
    """What handles and the poll scheduler call.

    It does not keep the session alive by itself, so that one that was left without
    being closed is noticed; handles do, through *owner*.
    """

    assumptions: Assumptions
    dispatch: Dispatcher
    loops: LoopLocal[Resources]
    clock: Clock
    poll: PollPolicy
    timeouts: Timeouts
    project_id: str | None
    headers: Mapping[str, str] = field(repr=False)
    extra_body: Mapping[str, Any] = field(repr=False)
    base_url: str
    observer: Observer | None = None
    observation: Observation | None = None
    owner: object = field(default=None, repr=False)
    looks: dict[tuple[str, str], Request] = field(factory=dict[tuple[str, str], Request])

    def owned_by(self, owner: object) -> AgentClient:
        """Return a copy that keeps *owner* alive."""
        return evolve(self, owner=owner)

    def random(self) -> float:
        """Return a number from 0 up to 1; it spreads polls, it guards nothing."""
        return random.random()

    def scheduler(self) -> PollScheduler:
        """Return the running loop's scheduler."""
        return self.loops.get().scheduler

    def observe(self, operation: str, project_id: str, job_id: str | None) -> Observation | None:
        """Begin to follow an operation, or note it in the one that it is part of."""
        if self.observation is not None:
            return PartOf(self.observation)
        if self.observer is None:
            return None
        facts: dict[str, Fact] = {"project_id": project_id, "base_url": self.base_url}
        if job_id is not None:
            facts["conversation_id"] = job_id
        return self.observer.start(operation, facts)

    async def post(self, request: Request, *, timeout: float | None = None) -> Job:
        """Send *request*, a POST, at most once, and return the job in its answer."""
        timeouts = self.timeouts if timeout is None else evolve(self.timeouts, request=timeout)
        observation = self.observe(request.operation, request.project_id or "", request.job_id)
        if observation is None:
            return await self.dispatch.job(self.loops.get().transport, request, timeouts)
        observation.set("input", request.prompt or "")
        with following(observation), observation.active():
            job = await self.dispatch.job(self.loops.get().transport, request, timeouts)
            observation.set("conversation_id", job.id)
            note_job(observation, job)
            return job

    def get_job(self, job_id: str, *, project_id: str, retry: bool) -> Coroutine[Any, Any, Job]:
        """Look at a job; once, when *retry* is false."""
        request = self.looks.get((project_id, job_id))
        if request is None:
            if len(self.looks) >= LOOKS_KEPT:
                self.looks.clear()
            request = get_job_request(self.assumptions, project_id, job_id, headers=self.headers)
            self.looks[project_id, job_id] = request
        return self.dispatch.job(self.loops.get().transport, request, self.timeouts, single=not retry)

    async def send_message(
        self,
        job_id: str,
        prompt: str,
        *,
        project_id: str,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> Job:
        """Send a follow-up: one POST, at most once."""
        request = send_message_request(
            self.assumptions,
            project_id,
            job_id,
            prompt,
            headers=merged(self.headers, headers),
            extra_body=merged(self.extra_body, extra_body),
        )
        return await self.post(request)


def merged(ours: Mapping[str, Any], given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the call's further fields over the session's; what is no mapping is left for the check."""
    if given is None:
        return ours
    return {**ours, **given} if isinstance(given, Mapping) else given or ours  # pyright: ignore[reportUnnecessaryIsInstance] - users pass anything
