"""The agent operations of the interface, and the connections and poll scheduler of each event loop."""

from __future__ import annotations

import math
import random
from weakref import WeakValueDictionary

from attrs import define, evolve, field

from ..errors import ConfigurationError, UnexpectedResponseError, printable
from ..http.dispatch import Dispatcher
from ..http.observer import Observation, PartOf, following, note_job
from ..http.sending import Sending
from ..http.transport import Transport
from ..model.job_record import Job
from ..model.response_info import ResponseInfo
from ..protocol.api_keys import Key
from ..protocol.calls import Call, CallDefaults, get_job_call
from ..runtime.cancellation import finish_shielded
from ..runtime.per_event_loop import LoopLocal
from ..storage.store import Store
from .claims import Claim, check_key, request_parts
from .poll_scheduler import PollScheduler
from .polling import PollPolicy
from .send_once import LEASE_MARGIN, OnceSender, Recordings
from .stale_guard import JobStates


class LoopResources:
    """The connections, the poll schedulers and the unfinished recordings of one event loop."""

    __slots__ = ("_own_scheduler", "_schedulers", "recordings", "transport")

    def __init__(self, transport: Transport, calls: AgentAPI) -> None:
        """Keep them together, so that they are closed in the right order."""
        self.transport = transport
        self.recordings = Recordings()
        # By the keys that ``with_options`` took. Each lasts as long as its waits, the session's for good.
        self._schedulers: WeakValueDictionary[Key, PollScheduler] = WeakValueDictionary()
        self._own_scheduler = self.scheduler_for(calls)

    def scheduler_for(self, calls: AgentAPI) -> PollScheduler:
        """Return the scheduler that polls with the key of *calls*: no customer's job with another's key."""
        key = calls.http.keys["admin"]
        scheduler = self._schedulers.get(key)
        if scheduler is None:
            scheduler = self._schedulers[key] = PollScheduler(calls)
        return scheduler

    async def close(self) -> None:
        """End every wait, stream and request, and finish all pending records, even if cancelled."""
        await finish_shielded(self._close())

    async def _close(self) -> None:
        for scheduler in list(self._schedulers.values()):
            await scheduler.close()
        await self.transport.close()
        await self.recordings.close()

    def abandon(self) -> None:
        """Close the sockets without waiting."""
        self.transport.abandon()


@define(frozen=True, kw_only=True, eq=False, repr=False, match_args=False)
class AgentAPI:
    """The agent API for job handles and the poll scheduler.

    Args:
        http: Sends the requests.
        loops: The connections and the poll scheduler of each event loop.
        poll: When jobs are polled.
        defaults: The settings of a call that names no others.
        states: The states of the session's jobs.
        ledger: The store of the claims on dedupe keys, or None.
        observation: The operation that every call is a part of, or None.
        owner: An object that is kept alive by this one, or None.
    """

    # Only the owner keeps the session alive. So the session can warn if it was never closed.
    http: Dispatcher
    loops: LoopLocal[LoopResources]
    poll: PollPolicy
    defaults: CallDefaults
    states: JobStates = field(factory=JobStates)
    ledger: Store | None = None
    observation: Observation | None = None
    owner: object = field(default=None, repr=False)

    def random(self) -> float:
        """Return a number from 0 up to 1; it spreads polls and protects nothing."""
        return random.random()

    def owned_by(self, owner: object) -> AgentAPI:
        """Return a copy that keeps *owner* alive."""
        return evolve(self, owner=owner)

    def scheduler(self) -> PollScheduler:
        """Return the running loop's scheduler for this key."""
        return self.loops.get().scheduler_for(self)

    def observe(self, operation: str, project_id: str, job_id: str | None) -> Observation | None:
        """Start to follow an operation, or add it to the operation that contains it."""
        if self.observation is not None:
            return PartOf(self.observation)
        return self.http.observe(operation, project_id=project_id, conversation_id=job_id)

    async def create(self, call: Call, dedupe_key: str | None) -> Job | str:
        """Create a job with one POST; with *dedupe_key*, only when it has none yet.

        Returns:
            The job. Its status is empty if the response has none. If another caller created it with the same
            key: its id.
        """
        if dedupe_key is None:
            return await self.post(call)
        claim = self.claim(dedupe_key, call)
        return await self.once().send(
            claim, lambda sending: self.post(call, sending=sending), lambda job: job.id
        )

    def once(self) -> OnceSender:
        """Return what sends at most once per key, on the running loop.

        Raises:
            ConfigurationError: The session has no ledger.
        """
        if self.ledger is None:
            raise ConfigurationError(
                "dedupe_key needs a ledger to be recorded in: give the session ledger=SQLiteStore(path)",
                field="dedupe_key",
            )
        resources = self.loops.get()
        return OnceSender(self.ledger, resources.recordings, resources.transport.unless_closed)

    def claim(self, dedupe_key: str, call: Call) -> Claim:
        """Return the claim for a request."""
        return Claim(
            key=check_key(dedupe_key),
            operation=call.operation,
            parts=request_parts(self.http.base_url, call),
            token="",
            lease=call.timeouts.request + LEASE_MARGIN,
        )

    async def post(self, call: Call, *, sending: Sending | None = None) -> Job:
        """Send *call*, a POST, at most once, and return the job in its answer, which may have no status."""
        observation = self.observe(call.operation, call.project_id or "", call.job_id)
        if observation is None:
            return await self.http.job(call, sending=sending)
        observation.set("input", call.prompt)
        with following(observation), observation.active():
            job = await self.http.job(call, sending=sending, observation=observation)
            observation.set("conversation_id", job.id)
            note_job(observation, job)
            return job

    async def get_job(self, job_id: str, *, project_id: str, retry: bool, limit: float | None = None) -> Job:
        """Poll a job. If *retry* is false, poll once and within ``PollPolicy.timeout``.

        Raises:
            UnexpectedResponseError: The answer is another job, or not a job.
        """
        call = get_job_call(self.defaults, project_id, job_id)
        if not retry:
            limit = math.inf if limit is None else limit
            call = call.within(min(call.timeouts.request, self.poll.timeout, limit))
        job = await self.http.job(call, single=not retry)
        if job.id != job_id:
            raw = job.raw or ResponseInfo(status=200, headers={})
            raise UnexpectedResponseError(
                f"get_job: asked for job {printable(job_id)}, but the answer is job {printable(job.id)}",
                excerpt=printable(repr(job)),
                status=raw.status,
                headers=raw.headers,
                request_id=raw.request_id,
            )
        return job
