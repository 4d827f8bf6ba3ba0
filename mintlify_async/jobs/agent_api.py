"""The agent operations of the interface, and the connections and poll scheduler of each event loop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext

from attrs import define, field

from ..checks import check_dedupe_key
from ..errors import ConfigurationError, UnexpectedResponseError, printable
from ..http.dispatch import Dispatcher
from ..http.observer import following, note, note_job
from ..http.retry import http_date
from ..http.sending import Sending
from ..http.transport import Transport
from ..model.job_record import Job
from ..model.job_ref import Stamp
from ..model.response_info import ResponseInfo
from ..protocol.calls import Call, get_job_call
from ..runtime import dates
from ..runtime.per_event_loop import LoopLocal, running_loop
from ..runtime.tasks import finish_shielded
from ..settings.options import Observation, Options
from ..settings.policies import PollPolicy
from ..storage.store import Store
from .claims import LEASE_MARGIN, LONGEST_LEASE, Claim, request_parts
from .poll_scheduler import PollScheduler
from .send_once import OnceSender, Recordings
from .stale_guard import JobState, JobStates, Look, Moment, response_headers


def moment(headers: Mapping[str, str]) -> Moment:
    """Return this moment on the running loop. *headers* are the headers of the service's response."""
    loop = running_loop()  # None when Python closes the coroutine
    return Moment(
        Stamp(dates.now(), http_date(headers.get("date"))), loop, 0.0 if loop is None else loop.time()
    )


class LoopResources:
    """The connections, the poll scheduler and the unfinished recordings of one event loop."""

    def __init__(self, transport: Transport, policy: PollPolicy) -> None:
        """Keep them together, so that they are closed in the right order."""
        self.transport = transport
        self.recordings = Recordings()
        self.scheduler = PollScheduler(policy)

    async def close(self) -> None:
        """End every wait, stream and request, and finish all pending records, even if cancelled."""
        await finish_shielded(self._close())

    async def _close(self) -> None:
        await self.scheduler.close()
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
        poll: When its waits poll, and which failures they tolerate.
        defaults: The settings of a call that names no others.
        states: The states of the session's jobs.
        ledger: The store of the claims on dedupe keys, or None.
        observation: The operation that every call is a part of, or None.
        owner: What closes the connections when nothing refers to it.
        poll_key: The key, headers and timeouts of its polls.
    """

    http: Dispatcher
    loops: LoopLocal[LoopResources]
    poll: PollPolicy
    defaults: Options
    states: JobStates = field(factory=JobStates)
    ledger: Store | None = None
    observation: Observation | None = None
    owner: object = field(default=None, repr=False)
    poll_key: Hashable = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        defaults = self.defaults
        key = self.http.keys["admin"], frozenset(defaults.headers.items()), defaults.timeouts
        object.__setattr__(self, "poll_key", key)  # once, because each look asks for it

    def scheduler(self) -> PollScheduler:
        """Return the running loop's scheduler of polls."""
        return self.loops.get().scheduler

    def observed(
        self, operation: str, project_id: str, job_id: str | None, *, active: bool = True
    ) -> AbstractContextManager[Observation | None]:
        """Follow an operation for the length of a block; or the operation that contains it, if there is one.

        Args:
            operation: The operation's name.
            project_id: Its project.
            job_id: Its job, or None.
            active: Whether the block is one request.
        """
        if self.observation is not None:
            return following(self.observation, active=active, ends=False)
        observation = self.http.observe(operation, project_id=project_id, conversation_id=job_id)
        return nullcontext() if observation is None else following(observation, active=active, ends=True)

    async def create(self, call: Call, dedupe_key: str | None) -> Job | str:
        """Create a job with one POST; with *dedupe_key*, only when it has none yet.

        Returns:
            The job. Its status is empty if the response has none. If another caller created it with the same
            key: its id.
        """
        if dedupe_key is None:
            return await self.post(call)
        sender = self.once(dedupe_key, call)
        return await sender.send(lambda sending: self.post(call, sending=sending), lambda job: job.id)

    def once(self, dedupe_key: str, call: Call) -> OnceSender:
        """Return what sends *call* at most once, on the running loop.

        Raises:
            ConfigurationError: The session has no ledger, or *dedupe_key* cannot be a key.
        """
        if self.ledger is None:
            raise ConfigurationError(
                "dedupe_key needs a ledger to be recorded in: give the session ledger=SQLiteStore(path)",
                field="dedupe_key",
            )
        claim = Claim(
            key=check_dedupe_key(dedupe_key),
            operation=call.operation,
            parts=request_parts(self.http.base_url, call),
            token="",
            lease=min(call.timeouts.request + LEASE_MARGIN, LONGEST_LEASE),
        )
        resources = self.loops.get()
        return OnceSender(claim, self.ledger, resources.recordings, resources.transport.unless_closed)

    async def post(self, call: Call, *, sending: Sending | None = None) -> Job:
        """Send *call*, a POST, at most once, and return the job in its answer, which may have no status."""
        with self.observed(call.operation, call.project_id or "", call.job_id) as observation:
            note(observation, input=call.prompt)
            job = await self.http.job(call, sending=sending, observation=observation)
            note(observation, conversation_id=job.id)
            note_job(observation, job)
            return job

    async def look(self, state: JobState, *, retry: bool = False, limit: float = math.inf) -> Look:
        """Poll a job, and note a successful poll in *state*.

        Args:
            state: The job.
            retry: Whether to retry. If not, there is one attempt.
            limit: Limits that attempt, in seconds.
        """
        project_id, job_id = state.key
        call = get_job_call(self.defaults, project_id, job_id)
        if not retry:
            call = call.within(min(call.timeouts.request, limit))
        loop = asyncio.get_running_loop()
        began, date = loop.time(), dates.now()
        job: Job | None = None
        error: Exception | None = None
        try:
            job = await self.http.job(call, single=not retry)
            if job.id != job_id:
                raise _other_job(job_id, job)
        except Exception as failure:  # each wait decides whether to tolerate it
            error = failure
        served = http_date(response_headers(job, error).get("date"))
        look = Look(
            Moment(Stamp(date, served), loop, began), loop.time(), job if error is None else None, error
        )
        if error is None:
            state.see(look)
        return look


def _other_job(job_id: str, job: Job) -> UnexpectedResponseError:
    raw = job.raw or ResponseInfo(status=200, headers={})
    return UnexpectedResponseError(
        f"get_job: asked for job {printable(job_id)}, but the response is job {printable(job.id)}",
        excerpt=printable(repr(job)),
        status=raw.status,
        headers=raw.headers,
        request_id=raw.request_id,
    )
