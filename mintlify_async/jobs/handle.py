"""Job handles: waiting for a job, watching it, and sending follow-ups.

A handle starts no task and does no I/O by itself. All waits of a session on one
event loop share one :class:`~mintlify_async.jobs.poll_scheduler.PollScheduler`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Generator, Mapping
from typing import Any, Literal, Self

from attrs import evolve

from ..errors import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    ConfigurationError,
    NotFoundError,
    StateError,
    UnexpectedResponseError,
    printable,
)
from ..http.observer import Observation, following, note_job
from ..model.job import Job, JobFlags
from ..model.job_ref import JobRef
from ..model.response_info import ResponseInfo
from ..protocol.argument_checks import check_seconds
from ..protocol.assumptions import Assumptions
from ..protocol.requests import send_message_request
from .agent_api import AgentAPI
from .create_once import had_no_effect
from .poll_scheduler import PollScheduler
from .polling import PollResult
from .stale_guard import JobState, SettledBy
from .wait import (
    DEFAULT_PR_GRACE,
    DEFAULT_TIMEOUT,
    JobWait,
    OnChange,
    WaitRules,
)

OnActive = Literal["send", "wait", "raise"]


class JobHandle(JobFlags):
    """One agent job. Awaiting a handle is :meth:`wait` with its defaults.

    The properties show what was last seen and never do I/O; ``completed``, ``archived`` and
    ``failed`` are false until :attr:`done`. A handle belongs to its session and cannot be
    pickled: pass on :attr:`ref` instead.
    """

    __slots__ = ("__weakref__", "_calls", "_state")

    def __init__(self, calls: AgentAPI, state: JobState) -> None:
        """Make a handle of the job that *state* describes; *calls* is the agent API."""
        self._calls = calls
        self._state = state

    @property
    def ref(self) -> JobRef:
        """Names the job, for another process; ``awaiting_turn`` while a follow-up's result was not seen."""
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
        """The last record; None before the first poll. After a follow-up it may be the turn before's."""
        return self._state.job

    @property
    def raw(self) -> ResponseInfo | None:
        """Status, headers and request id of the last answer, or None."""
        return None if self._state.job is None else self._state.job.raw

    @property
    def status(self) -> str | None:
        """The last status, as it was received; None before the first poll."""
        return None if self._state.job is None else self._state.job.status

    @property
    def pr_link(self) -> str | None:
        """The pull request's address, as last seen."""
        return None if self._state.job is None else self._state.job.pr_link

    @property
    def done(self) -> bool:
        """Whether the job had ended when last seen, and this is not the end of the turn before."""
        return self._state.done

    @property
    def settled_by(self) -> SettledBy | None:
        """How the guard against the result of the turn before ended.

        ``"evidence"``: the newest turn was seen active, or with another result.
        ``"grace"``: it was not, and the result lasted through the settle window.
        None: the guard has not ended, or no follow-up was sent.
        """
        return self._state.settled_by

    def __repr__(self) -> str:
        """Show the id and the last status."""
        return f"<{type(self).__name__} {printable(self.id)} {printable(self.status or 'not seen yet')}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Raise ``TypeError``: a session's connections cannot be pickled."""
        raise TypeError(
            f"{type(self).__name__} cannot be pickled or copied; use its .ref and session.job(ref)"
        )

    def __await__(self) -> Generator[Any, Any, Job]:
        """Wait until the job has ended."""
        return self.wait().__await__()

    async def wait(
        self,
        timeout: float | None = DEFAULT_TIMEOUT,
        *,
        check: bool = True,
        until: Literal["terminal", "pr"] = "terminal",
        pr_grace: float = DEFAULT_PR_GRACE,
        on_change: OnChange | None = None,
    ) -> Job:
        """Wait until the job has ended, and return its record. Polls at least once.

        Args:
            timeout: Limits the whole wait, in seconds; None waits without end. One last
                poll begins at the deadline, and may take a second.
            check: Raise when the job has failed.
            until: ``"pr"`` also waits for the pull request of a completed job.
            pr_grace: For how long, in seconds; then the job is returned without one.
            on_change: A plain function, called with the first record and with each one that
                differs from the one before. An exception from it ends the wait.

        Raises:
            JobFailedError: The job has failed, and *check* is true.
            JobTimeoutError: The timeout has passed; the job goes on at the service.
            AuthenticationError: 401. Other refusals, such as 403, also end the wait at once.
            NotFoundError: The job does not exist. Tolerated for 30 s after its creation, and
                of a job that was seen before like an outage.
            APIConnectionError: The service could not be reached for five minutes. Likewise
                ``RateLimitError``, ``ServerError`` and ``UnexpectedResponseError``.
            StateError: The session is closed, or was closed meanwhile.
            ConfigurationError: An argument is invalid.
        """
        rules = WaitRules.checked(check=check, until=until, pr_grace=pr_grace, on_change=on_change)
        check_seconds(timeout, "timeout", zero=True, none="waits without end")
        observation = self._calls.observe("wait", *self._state.key)
        if observation is None:
            return await _result_of(begin_wait(self, rules, timeout), scheduler_of(self))
        with following(observation):
            rules = evolve(rules, on_poll=_note_polls(observation))
            job = await _result_of(begin_wait(self, rules, timeout), scheduler_of(self))
            note_job(observation, job)
            return job

    async def refresh(self) -> Job:
        """Poll once, and return the record as it was received.

        For a queue's task that reschedules itself: check :attr:`done`, which takes
        follow-ups into account, rather than the record, which may be the turn before's.

        Raises:
            APIStatusError: The service refuses. A ``NotFoundError`` says how long ago the job was
                created, if that is known: a new job may not be visible yet.
            APIConnectionError: It cannot be reached.
            UnexpectedResponseError: Its answer is not a job.
        """
        observation = self._calls.observe("refresh", *self._state.key)
        if observation is None:
            return await self._poll(retry=True)
        with following(observation), observation.active():
            job = await self._poll(retry=True)
            note_job(observation, job)
            return job

    def watch(self, timeout: float | None = DEFAULT_TIMEOUT) -> JobWatch:
        """Return an async iterator over the job's records: the first, then each that differs.

        It ends after a terminal record; a failed job does not raise. No poll is made
        between two steps.

        Args:
            timeout: Limits the whole watch from its first step, in seconds; None sets no limit.

        Raises:
            ConfigurationError: *timeout* is not a number of seconds.
        """
        check_seconds(timeout, "timeout", zero=True, none="waits without end")
        return JobWatch(self, timeout)

    async def send(
        self,
        prompt: str,
        *,
        on_active: OnActive = "send",
        timeout: float | None = None,
        dedupe_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Send a follow-up, at most once, and return its turn.

        The job is polled once before, so that the turn can distinguish its own result from
        the one before; when that poll fails, the result must last through the settle window.
        When a job has several turns, every handle waits for the newest.

        Args:
            prompt: The instruction, at least 1 character.
            on_active: What to do while the job is active: ``"send"`` anyway; ``"wait"``
                until it has ended, at most 30 minutes; or ``"raise"``.
            timeout: Limits the whole call, in seconds; by default the poll has 10 s and the
                follow-up ``timeouts.request`` (60).
            dedupe_key: A name for this follow-up in the session's ledger: the same key never sends
                a second one, in this process or in any other that shares the ledger, and always
                returns the same turn.
            headers: Further headers.
            extra_body: Further fields of the body.

        Raises:
            ConfigurationError: An argument is invalid; nothing was sent.
            AuthenticationError: 401; nothing was sent.
            StateError: The job is active, and *on_active* is ``"raise"``; nothing was sent.
            JobTimeoutError: It was still active after the 30 minutes of ``"wait"``; nothing was sent.
            OutcomeUnknownError: The follow-up was sent, and its outcome is not known. This
                handle then waits as if it had been accepted.
            APIStatusError: The service refuses it.
        """
        state, calls = self._state, self._calls
        send_message_request(  # checks the arguments before anything is sent
            Assumptions(), self.project_id, self.id, prompt, headers=headers, extra_body=extra_body
        )
        if on_active not in ("send", "wait", "raise"):
            raise ConfigurationError("on_active must be 'send', 'wait' or 'raise'", field="on_active")
        check_seconds(timeout, "timeout", none="means no limit of its own")
        deadline = math.inf if timeout is None else calls.clock.now() + timeout

        if dedupe_key is not None and await calls.is_claimed(dedupe_key):
            before = None  # most likely nothing is sent
        else:
            before = await self._baseline(on_active, deadline)

        async def send() -> str:
            await self._post(prompt, before, deadline, headers=headers, extra_body=extra_body)
            return str(self.ref)

        if dedupe_key is None:
            await send()
            return Turn(calls, state)
        recorded = await calls.send_once(
            self.id,
            prompt,
            dedupe_key,
            send,
            project_id=self.project_id,
            timeout=timeout,
            extra_body=extra_body,
        )
        ref = JobRef.of(recorded, self.project_id)
        if not ref.awaiting_turn:  # a person has resolved the claim with the job's id
            ref = evolve(ref, awaiting_turn=True, sent_at=calls.clock.wall())
        return Turn(calls, calls.states.of(ref, calls.clock.now(), calls.clock.wall()))

    async def _post(self, prompt: str, before: Job | None, deadline: float, **further: Any) -> None:
        """Send the follow-up, and guard its result against *before*."""
        state, clock = self._state, self._calls.clock
        left = deadline - clock.now()
        if left <= 0:
            raise APITimeoutError(
                "send_message: no time was left to send the follow-up; give it a longer timeout",
                phase="request",
                seconds=0.0,
                sent="no",
                operation="send_message",
            )
        change = state.before_send(before, clock.now())
        try:
            job = await self._calls.send_message(
                self.id,
                prompt,
                project_id=self.project_id,
                timeout=None if left == math.inf else left,
                **further,
            )
        except BaseException as error:
            if had_no_effect(error):
                state.not_sent(change)
            else:
                state.sent(change, clock.now())  # it may have been accepted: keep the guard
            raise
        state.sent(change, clock.now(), job)

    async def _baseline(self, on_active: OnActive, deadline: float) -> Job | None:
        """Return the record before a follow-up, or None when it is not known."""
        if on_active == "wait":
            left = max(0.0, deadline - self._calls.clock.now())
            return await self.wait(min(DEFAULT_TIMEOUT, left), check=False)
        turn_number = self._state.turn_number
        try:
            job = await self._poll_until_visible(deadline)
        except (APIConnectionError, APIStatusError, UnexpectedResponseError) as error:
            # Only the follow-up itself is sure to be allowed: the path of this poll is assumed.
            if on_active == "raise" or isinstance(error, AuthenticationError):
                raise
            return None
        if on_active == "raise" and not self.done:
            raise StateError(
                f"job {printable(self.id)} is {printable(job.status)} and its newest turn has not ended; "
                'wait for it, or pass on_active="wait" or "send"'
            )
        return job if turn_number == self._state.turn_number else None  # another follow-up was sent

    async def _poll_until_visible(self, deadline: float) -> Job:
        """Poll once, or again while a new job is not visible yet."""
        clock, poll = self._calls.clock, self._calls.poll
        while True:
            try:
                return await self._poll(retry=False, limit=deadline - clock.now())
            except NotFoundError:
                again = clock.now() + poll.initial
                if not self._state.may_be_new(again, poll) or again >= deadline:
                    raise
            await clock.sleep(poll.initial)

    async def _poll(self, *, retry: bool, limit: float = math.inf) -> Job:
        state, calls = self._state, self._calls
        turn_number = state.turn_number
        project_id, job_id = state.key
        try:
            job = await calls.get_job(job_id, project_id=project_id, retry=retry, limit=limit)
        except NotFoundError as error:
            if retry and state.created_at is not None:
                age = calls.clock.now() - state.created_at
                error.args = (f"{error}; the job was created {age:.0f} s ago",)
            raise
        if turn_number == state.turn_number:  # else a follow-up was sent meanwhile
            state.see(job, calls.clock.now(), calls.poll)
        return job


def _note_polls(observation: Observation) -> Callable[[PollResult], None]:
    def note(result: PollResult) -> None:
        if result.job is not None:
            observation.event("poll", {"status": result.job.status})
        else:
            observation.event("poll", {"error": type(result.error).__name__})

    return note


class Turn(JobHandle):
    """A follow-up: a handle whose waits end with this turn's own result, or a newer one's.

    Until that result can be distinguished from the one before, its
    :attr:`~JobHandle.ref` has ``awaiting_turn``, so that another process waits for it
    as well; :attr:`~JobHandle.settled_by` says how it was distinguished.
    """

    __slots__ = ()


def handle_for(calls: AgentAPI, named: object, *, project_id: str | None = None) -> JobHandle:
    """Return a handle of the job that *named* identifies; a turn for a reference that awaits one.

    Args:
        calls: The agent API.
        named: A reference, its text, another handle, a job, or a job's id.
        project_id: The project of a job or an id; the session's project by default.

    Raises:
        ConfigurationError: *named* is invalid.
    """
    if isinstance(named, JobHandle):
        named = named.ref
    elif isinstance(named, Job):
        named = named.id
    ref = JobRef.of(named, project_id if project_id is not None else calls.project_id)
    state = calls.states.of(ref, calls.clock.now(), calls.clock.wall())
    return Turn(calls, state) if ref.awaiting_turn else JobHandle(calls, state)


def created_handle(calls: AgentAPI, project_id: str, created: Job | str) -> JobHandle:
    """Return a handle of a job that was created just now; of its id alone when it was not seen yet."""
    id = created if isinstance(created, str) else created.id
    now, wall = calls.clock.now(), calls.clock.wall()
    state = calls.states.of(JobRef(project_id, id, created_at=wall), now, wall)
    if isinstance(created, Job):
        state.job = created
    return JobHandle(calls, state)


def handle_over(handle: JobHandle, calls: AgentAPI) -> JobHandle:
    """Return another handle of the same job that shares what *handle* knows, and uses *calls*."""
    return JobHandle(calls, _parts(handle)[1])


def begin_wait(handle: JobHandle, rules: WaitRules, timeout: float | None) -> JobWait:
    """Return a wait for the job of *handle*, which the caller enters in a scheduler."""
    calls, state = _parts(handle)
    return JobWait(state, rules, calls, timeout)


def scheduler_of(handle: JobHandle) -> PollScheduler:
    """Return the scheduler of the session of *handle* on the running loop."""
    return _parts(handle)[0].scheduler()


def _parts(handle: JobHandle) -> tuple[AgentAPI, JobState]:
    return handle._calls, handle._state  # pyright: ignore[reportPrivateUsage] - for this module, not for users


class JobWatch:
    """An async iterator over the records of one job; see :meth:`JobHandle.watch`."""

    def __init__(self, handle: JobHandle, timeout: float | None) -> None:
        """Watch *handle*; no poll is made before the first step."""
        self._handle = handle
        self._timeout = timeout
        self._wait: JobWait | None = None
        self._stepping = False
        self._ended = False

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Job:
        """Return the next record that differs.

        Raises:
            JobTimeoutError: The timeout has passed; the job goes on at the service.
            StateError: Another task is in a step, or the session is closed.
        """
        if self._ended:
            raise StopAsyncIteration
        if self._stepping:
            raise StateError("another task is already in a step of this watch; make one watch per consumer")
        self._stepping = True
        try:
            job = await self._step()
        except Exception:
            self._ended = True
            raise
        finally:
            self._stepping = False
        self._ended = job.done
        return job

    async def aclose(self) -> None:
        """End; there is nothing to release between steps."""
        self._ended = True

    async def _step(self) -> Job:
        if self._wait is None:
            self._wait = begin_wait(self._handle, WaitRules(check=False, until="change"), self._timeout)
        if not self._wait.over:  # else the step before was cancelled after its record had arrived
            await _result_of(self._wait, scheduler_of(self._handle))
        return self._wait.take()


async def _result_of(wait: JobWait, scheduler: PollScheduler) -> Job:
    """Keep *wait* in the scheduler until it is over; return its record, or raise its error."""
    wait.woken = woken = asyncio.get_running_loop().create_future()
    try:
        scheduler.enter(wait)
        await woken
    finally:
        scheduler.leave(wait)
        await scheduler.drained()
    return wait.result()
