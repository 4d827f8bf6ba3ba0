"""Job handles wait for a job, watch it, and send follow-ups.

A handle starts no task, and does no I/O before a method is called.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Mapping
from typing import Any, Final, Literal, Self, TypeVar

from attrs import evolve

from ..argument_checks import check_seconds, check_wait, check_word
from ..errors import APITimeoutError, JobFailedError, NotFoundError, StateError, printable
from ..http.observer import note_job
from ..http.send_progress import Sending
from ..http.session_core import Core
from ..model.job_record import Job
from ..model.job_ref import JobRef, Stamp
from ..model.pydantic_fields import InModels, or_null, schema_of
from ..model.response_info import ResponseInfo
from ..protocol.requests import Call, get_job_call, send_message_call
from ..runtime import clock
from ..runtime.logs import log_fields
from ..settings.poll_policy import DEFAULT_TIMEOUT
from ..wrong_names import helpful
from .job_calls import look_at, moment, observed, once, post, states_of
from .stale_guard import JobState, Look, UnderWay, response_headers
from .wait import JobWait
from .watch import JobWatch

log = logging.getLogger("mintlify_async")

T = TypeVar("T")

OnActive = Literal["send", "wait", "raise"]

_NOT_READ: Final = (
    "belongs to its session and is not read from JSON: use JobRef as the type, and session.job(ref)"
)


@helpful
class JobHandle(InModels):
    """One agent job. Awaiting a handle is :meth:`wait` with its defaults.

    The properties show the last poll and never do I/O. A handle belongs to its session and cannot be pickled.
    Send :attr:`ref` to another process instead.

    A FastAPI handler can return a handle, and a pydantic model can have it as a field. The JSON of a
    handle is the last record, with the text of :attr:`ref` as ``ref``. A handle cannot be read from JSON.
    """

    __slots__ = ("__weakref__", "_call", "_core", "_state")  # a misspelt attribute is an error

    def __init__(self, core: Core, state: JobState) -> None:
        """Make a handle of the job of *state*. It keeps the connections of *core* open."""
        self._core = core
        self._state = state
        self._call: Call | None = None  # the request of `refresh`

    @property
    def ref(self) -> JobRef:
        """The job's reference for another process, with the time of a follow-up whose result was not read."""
        return self._state.ref

    @property
    def id(self) -> str:
        """The job's identifier."""
        return self._state.key[1]

    @property
    def project_id(self) -> str:
        """The job's project."""
        return self._state.key[0]

    @property
    def job(self) -> Job | None:
        """The last record, or None before the first poll. Soon after a follow-up it may be the old result."""
        return self._state.job

    @property
    def raw(self) -> ResponseInfo | None:
        """Status, headers and request id of the last response, or None."""
        return self._state.raw

    @property
    def status(self) -> str | None:
        """The last status, as the service sent it, or None before the first poll."""
        return None if self._state.job is None else self._state.job.status

    @property
    def pr_link(self) -> str | None:
        """The pull request's URL in the last record, or None."""
        return None if self._state.job is None else self._state.job.pr_link

    @property
    def done(self) -> bool:
        """Whether the last poll showed the end of the job. A result before a follow-up does not count."""
        return self._state.done

    def __repr__(self) -> str:
        """Show the id and the last status."""
        return f"<{type(self).__name__} {printable(self.id)} {printable(self.status or 'not seen yet')}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Raise ``TypeError``, because a session's connections cannot be pickled."""
        raise TypeError(
            f"{type(self).__name__} cannot be pickled or copied; use its .ref and session.job(ref)"
        )

    @classmethod
    def _from_model(cls, content: object) -> Self:
        raise ValueError(f"a {cls.__name__} {_NOT_READ}")

    def _to_model(self) -> dict[str, Any]:
        record = {"id": self.id, "status": None} if self.job is None else self.job.to_wire()
        return {**record, "ref": str(self.ref)}

    @classmethod
    def _model_schema(cls) -> dict[str, Any]:
        schema = schema_of(Job)
        schema["properties"] |= {"status": or_null({"type": "string"}), "ref": {"type": "string"}}
        description = f"An agent job. A {cls.__name__} {_NOT_READ}."
        return {**schema, "required": [*schema["required"], "ref"], "description": description}

    def __await__(self) -> Generator[Any, Any, Job]:
        """Wait until the job has ended."""
        return self.wait().__await__()

    async def wait(self, timeout: float | None = DEFAULT_TIMEOUT, *, check: bool = True) -> Job:
        """Wait until the job has ended, and return its record. The job is polled at least once.

        After a follow-up, a final status must belong to that follow-up. A final status is accepted if its
        poll started at least ``PollPolicy.settle_seconds`` (60) after the response to the follow-up.

        Args:
            timeout: Limits the complete wait, in seconds. None sets no limit. One last poll starts at the
                deadline and may take a second.
            check: Raise JobFailedError if the job has failed.

        Raises:
            JobFailedError: The job has failed, and *check* is true.
            JobTimeoutError: The timeout has passed. If a final status was read that is not certain yet,
                ``certain_in`` is the number of seconds after which a poll makes it certain. If polls failed,
                ``error`` is the error of the last poll.
            AuthenticationError: 401. Other refusals, such as 403, also end the wait immediately.
            NotFoundError: The job does not exist. For 30 s after the job was created, a 404 does not end the
                wait. Later, a 404 of a job that was found before counts as an outage.
            APIConnectionError: The service could not be reached for five minutes, in this wait or over
                several short waits. The same limit applies to ``RateLimitError``, ``ServerError`` and
                ``UnexpectedResponseError``.
            StateError: The session is closed, or was closed during the wait.
            ConfigurationError: An argument is invalid.
        """
        check_wait(timeout)
        core, state = self._core, self._state
        with observed(core, "wait", *state.key, active=False) as observation:
            wait = JobWait(core, state, timeout, observation)
            while not (job := await wait.change()).done:
                pass
            if observation is not None:
                note_job(observation, job)
            if job.status == "failed" and check:
                raise JobFailedError(job)
            return job

    async def refresh(self, timeout: float | None = None) -> Job:
        """Poll once, and return the record as the service sent it.

        Use this method in a queue's task that schedules itself again. Check :attr:`done` instead of the
        record, which may be a result before the last follow-up.

        Args:
            timeout: Limits the complete call with its retries, in seconds; ``PollPolicy.timeout`` (10) by
                default.

        Raises:
            APIStatusError: The service refused. If the time is known, a ``NotFoundError`` says how long ago
                the job was created, because a new job may not be visible yet.
            APIConnectionError: The service could not be reached.
            UnexpectedResponseError: The response is not a job.
            ConfigurationError: *timeout* is not a number of seconds above 0.
        """
        check_seconds(timeout, "timeout", none="means PollPolicy.timeout")
        core, state = self._core, self._state
        with observed(core, "refresh", *state.key) as observation:
            self._call = self._call or get_job_call(
                core.options, *state.key, timeout=core.options.poll.timeout
            )
            call = self._call if timeout is None else self._call.within(timeout)
            look = await look_at(core, state, call, retry=True)
            if isinstance(look.error, NotFoundError) and (age := state.age(look)) is not None:
                look.error.args = (f"{look.error}; the job was created {age:.0f} s ago",)
            job = _record_of(look)
            if observation is not None:
                note_job(observation, job)
            return job

    def watch(self, timeout: float | None = DEFAULT_TIMEOUT) -> JobWatch:
        """Return an async iterator over the job's records: the first record, then each record that differs.

        The iterator ends after a final record. A failed job is no error here. There is no poll between two
        steps.

        Args:
            timeout: Limits the complete watch from its first step, in seconds. None sets no limit.

        Raises:
            ConfigurationError: *timeout* is not a number of seconds.
        """
        check_wait(timeout)
        return JobWatch(lambda: JobWait(self._core, self._state, timeout))

    async def send(
        self,
        prompt: str,
        *,
        on_active: OnActive = "send",
        timeout: float | None = None,
        dedupe_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> FollowUp:
        """Send a follow-up, at most once, and return its handle.

        If a job has several follow-ups, every handle of the session waits for the newest. Another process
        needs the newest :attr:`ref`.

        Args:
            prompt: The instruction, at least 1 character.
            on_active: What happens if the job is active. ``"send"`` sends immediately, without a poll.
                ``"wait"`` waits until the job has ended, at most 30 minutes. ``"raise"`` polls once, and
                raises StateError.
            timeout: Limits the complete call, in seconds. By default, ``timeouts.request`` (60) limits only
                the request. With ``on_active="raise"``, the poll gets at most half of the time.
            dedupe_key: A name for this follow-up in the session's ledger. The same key never sends a second
                follow-up, in this process or in another one that shares the ledger. Every call with the
                key returns a ``FollowUp`` for the same follow-up.
            headers: Additional headers.
            extra_body: Additional fields of the body.

        Raises:
            ConfigurationError: An argument is invalid. Nothing was sent.
            StateError: The job is active, and *on_active* is ``"raise"``. Nothing was sent.
            JobTimeoutError: The job was still active after 30 minutes of ``"wait"``. Nothing was sent.
            OutcomeUnknownError: The follow-up was sent, and its outcome is unknown. This handle then waits as
                if the service had accepted the follow-up.
            APIStatusError: The service refused the follow-up.
        """
        core = self._core
        call = send_message_call(
            core.options,
            self.project_id,
            self.id,
            prompt,
            timeout=timeout,
            headers=headers,
            extra_body=extra_body,
        )
        check_word(on_active, "on_active", ("send", "wait", "raise"))
        until = call.until(asyncio.get_running_loop().time())
        if dedupe_key is None:
            await self._before_send(on_active, until)
            await self._post(core, call, Sending(until))
            return FollowUp(core, self._state)

        sender = once(core, dedupe_key, call, until)
        if on_active != "send" and not await sender.is_known():
            await self._before_send(on_active, until)
        with observed(core, call.operation.name, *self._state.key) as observation:
            # If another call with the same key sends first, this operation has not failed.
            inner = evolve(core, observation=observation)
            result = await sender.send(lambda sending: self._post(inner, call, sending), str)
        ref = JobRef.of(result, self.project_id)
        if ref.sent is None:  # a person has resolved the claim with the id of a job
            ref = evolve(ref, sent=Stamp(clock.now()))
        return FollowUp(core, states_of(core).of(ref, core.options.poll.settle_seconds))

    async def _before_send(self, on_active: OnActive, until: float) -> None:
        """If the job is active, wait for its end or raise an error, as *on_active* says."""
        seconds_left = until - asyncio.get_running_loop().time()
        if on_active == "wait":
            await self.wait(min(DEFAULT_TIMEOUT, max(0.0, seconds_left)), check=False)
        elif on_active == "raise":
            core, state = self._core, self._state
            seconds = min(core.options.poll.timeout, seconds_left / 2)
            call = get_job_call(core.options, *state.key, timeout=seconds)
            job = _record_of(await look_at(core, state, call))
            if not self.done:
                raise StateError(
                    f"job {printable(self.id)} is {printable(job.status)}: its newest run has not ended; "
                    'wait for it, or pass on_active="wait" or "send"'
                )

    async def _post(self, core: Core, call: Call, sending: Sending) -> JobRef:
        """Send the follow-up, record its time in the job's state, and return its reference."""
        if sending.until <= asyncio.get_running_loop().time():
            raise APITimeoutError(
                "send_message: no time was left to send the follow-up; give it a longer timeout",
                phase="request",
                seconds=0.0,
                sent="no",
                operation="send_message",
            )
        state, window = self._state, core.options.poll.settle_seconds
        under_way = UnderWay(state, window)
        sending.on_first_byte, sending.on_no_effect = under_way.begin, under_way.end
        states_of(core).remember(state)
        try:
            job = await post(core, call, sending)
        except BaseException as error:
            under_way.end(None if sending.had_no_effect else moment(response_headers(None, error)))
            raise
        under_way.begin()  # a substitute for aiohttp's session wrote no byte
        record = job if job.status and job.id == self.id else None
        under_way.end(moment(response_headers(job, None)), record)
        state.raw = job.raw
        return self.ref


def _record_of(look: Look) -> Job:
    if look.error is not None:
        raise look.error
    assert look.job is not None  # a poll without an error has a record
    return look.job


class FollowUp(JobHandle):
    """The handle of a follow-up. ``wait()`` returns the result of this follow-up, or of a later one.

    The handle's :attr:`~JobHandle.ref` contains the time of the follow-up until a poll has returned that
    result. So another process also waits for that result.
    """

    __slots__ = ()


def handle_for(core: Core, target: object, *, project_id: str | None = None) -> JobHandle:
    """Return a handle of the job *target*.

    If *target* is a reference with a follow-up whose result was not read, return a FollowUp.

    Args:
        core: The core of the session.
        target: A reference, its text, another handle, a job, or a job's id.
        project_id: The project of a job or an id; the session's project by default.

    Raises:
        ConfigurationError: *target* is invalid.
    """
    if isinstance(target, JobHandle):
        target = target.ref
    elif isinstance(target, Job):
        target = target.id
    project = core.options.project_id if project_id is None else core.options.project(project_id)
    ref = JobRef.of(target, project)
    state = states_of(core).of(ref, core.options.poll.settle_seconds)
    return FollowUp(core, state) if ref.awaiting_turn else JobHandle(core, state)


async def wait_for_own(handle: JobHandle, timeout: float | None, *, check: bool) -> Job:
    """Wait for a job that the same call created. If the call is cancelled, log the reference."""
    try:
        return await handle.wait(timeout, check=check)
    except asyncio.CancelledError:
        log.warning(
            "run_job was cancelled while it waited; the job keeps running: session.job(%r)",
            str(handle.ref),
            extra=log_fields("run_job", job_id=handle.id),
        )
        raise
