"""Sends the requests for agent jobs: a new job, a follow-up, a poll. ``protocol.requests`` makes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from attrs import evolve

from ..argument_checks import check_dedupe_key
from ..errors import ConfigurationError, UnexpectedResponseError, printable
from ..http.attempts import send_job
from ..http.header_times import http_date
from ..http.observer import begin_observation, following, note, note_job
from ..http.send_progress import Sending
from ..http.session_core import Core
from ..model.job_record import Job
from ..model.job_ref import JobRef, Stamp
from ..model.response_info import ResponseInfo
from ..protocol.requests import Call
from ..runtime import clock
from ..runtime.logs import log_fields
from ..runtime.tasks import running_loop
from ..settings.options import Observation
from .key_watch import KeyWatch
from .ledger import Claim, request_parts
from .send_once import OnceSender
from .stale_guard import JobState, JobStates, Look, Moment, next_order, response_headers

log = logging.getLogger("mintlify_async")


def moment(headers: Mapping[str, str]) -> Moment:
    """Return the current moment on the running loop. *headers* are the headers of the service's response."""
    loop = running_loop()  # None if Python closes the coroutine
    return Moment(
        Stamp(clock.now(), http_date(headers.get("date"))), loop, 0.0 if loop is None else loop.time()
    )


def states_of(core: Core) -> JobStates:
    """Return the states of the session's jobs."""
    return core.shared.part(JobStates)


def observed(
    core: Core, operation: str, project_id: str, job_id: str | None, *, active: bool = True
) -> AbstractContextManager[Observation | None]:
    """Report an operation for the length of a block. If the core has an outer operation, report to it.

    Args:
        core: The core of the session.
        operation: The operation's name.
        project_id: The project of the operation.
        job_id: The job of the operation, or None.
        active: Whether the block is one request.
    """
    if core.observation is not None:
        return following(core.observation, active=active, ends=False)
    if core.options.observer is None:
        return nullcontext()
    base_url = core.shared.transport.base_url
    observation = begin_observation(
        core.options.observer, operation, project_id=project_id, conversation_id=job_id, base_url=base_url
    )
    return nullcontext() if observation is None else following(observation, active=active, ends=True)


async def create(core: Core, call: Call, dedupe_key: str | None) -> JobState:
    """Create a job with one POST, or find the job of *dedupe_key*. Return the job's state."""
    until = call.until(asyncio.get_running_loop().time())
    if dedupe_key is None:
        job = await post(core, call, Sending(until))
    else:
        sender = once(core, dedupe_key, call, until)
        with observed(core, call.operation.name, call.project_id or "", None) as observation:
            inner = evolve(core, observation=observation)  # losing to another call is no failed operation
            result = await sender.send(lambda sending: post(inner, call, sending), lambda job: job.id)
            if observation is not None and isinstance(result, str):
                note(observation, conversation_id=result)
        job = Job(id=result, status="") if isinstance(result, str) else result  # a caller's result is an id
    return created(core, call.project_id or "", job)


def created(core: Core, project_id: str, job: Job) -> JobState:
    """Return the state of a new job. An empty status means that only its id is known."""
    now = moment(response_headers(job, None))
    ref = JobRef(project_id, job.id, created=now.stamp)
    state = states_of(core).of(ref, core.options.poll.settle_seconds)
    state.created = now
    if job.raw is not None or job.status:
        state.job, state.raw = job if job.status else None, job.raw
    return state


def once(core: Core, dedupe_key: str, call: Call, until: float) -> OnceSender:
    """Return an object that sends *call* at most once, on the running loop, until the time *until*.

    Raises:
        ConfigurationError: The session has no ledger, or *dedupe_key* cannot be a key.
    """
    ledger = core.options.ledger
    if ledger is None:
        raise ConfigurationError(
            "dedupe_key needs a ledger: give the session ledger=SQLiteStore(path)", field="dedupe_key"
        )
    claim = Claim(
        key=check_dedupe_key(dedupe_key),
        operation=call.operation.name,
        parts=request_parts(core.shared.transport.base_url, call),
        token="",
        lease=0.0,
    )
    resources = core.shared.loops.get()
    watch = resources.part(KeyWatch, KeyWatch)
    return OnceSender(claim, ledger, watch, resources.recordings, resources.transport.unless_closed, until)


async def post(core: Core, call: Call, sending: Sending) -> Job:
    """Send the POST *call* at most once. Return the job in its response, whose status may be empty."""
    try:
        with observed(core, call.operation.name, call.project_id or "", call.job_id) as observation:
            if observation is not None:
                note(observation, input=call.prompt)
            job = await send_job(core, call, sending=sending, observation=observation)
            if observation is not None:
                note(observation, conversation_id=job.id)
                note_job(observation, job)
            return job
    except BaseException as error:  # also a BaseException of an observer, whose Exceptions are only logged
        if sending.job_id is not None:
            log.warning(
                "%s was answered with job %s, but the call ended with %s",
                call.operation,
                printable(sending.job_id),
                type(error).__name__,
                extra=log_fields(call.operation.name, job_id=sending.job_id),
            )
        elif isinstance(error, asyncio.CancelledError) and not sending.had_no_effect:
            key = "" if sending.dedupe_key is None else f" with dedupe_key {sending.dedupe_key!r}"
            sent_at = clock.as_text(sending.sent_at)
            error.add_note(f"{call.operation}{key} was sent at {sent_at}; it may have been accepted")
        raise


async def look_at(core: Core, state: JobState, call: Call, *, retry: bool = False) -> Look:
    """Poll a job, and record a successful poll in *state*.

    Args:
        core: The core of the session.
        state: The job.
        call: The call that polls the job.
        retry: Whether to retry. Without it, there is one attempt.
    """
    loop = asyncio.get_running_loop()
    began, date, order = loop.time(), clock.now(), next_order()
    job: Job | None = None
    error: Exception | None = None
    try:
        job = await send_job(core, call, single=not retry)
        if job.id != call.job_id:
            raise _other_job(call.job_id or "", job)
    except Exception as failure:  # each wait decides whether to tolerate it
        error = failure
    served = http_date(response_headers(job, error).get("date"))
    start = Moment(Stamp(date, served), loop, began, order=order)
    look = Look(start, loop.time(), job if error is None else None, error)
    if look.job is not None:
        state.see(look)
        if state.noted or look.job.done:
            states_of(core).note_look(state)
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
