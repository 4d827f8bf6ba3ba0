"""A session's agent calls come in; handles that wait, follow, and can be carried elsewhere go out.

A handle makes no task and no I/O by itself. Everything that waits stands in the
session's one :class:`~mintlify_async.polling.PollScheduler`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any, Literal, Protocol, Self

from attrs import evolve

from .assumptions import Assumptions
from .clock import Clock
from .errors import (
    APIConnectionError,
    APIStatusError,
    AuthenticationError,
    ConfigurationError,
    NotFoundError,
    PermissionDeniedError,
    StateError,
    UnexpectedResponseError,
    printable,
)
from .hooks import Observation, following, note_job
from .models import Job, ResponseInfo
from .polling import Look, PollScheduler
from .refs import JobRef
from .requests import send_message_request
from .retry import PollPolicy
from .turns import JobTrack, SettledBy
from .waiting import (
    DEFAULT_PR_GRACE,
    DEFAULT_TIMEOUT,
    JobWait,
    OnChange,
    WaitRules,
    check_timeout,
)

__all__ = [
    "AgentCalls",
    "JobHandle",
    "JobRef",
    "JobWatch",
    "Turn",
    "handle_for",
]

OnActive = Literal["send", "wait", "raise"]


class AgentCalls(Protocol):
    """What a handle needs of its session."""

    @property
    def clock(self) -> Clock:
        """The session's clock."""
        ...

    @property
    def poll(self) -> PollPolicy:
        """When to look at jobs."""
        ...

    @property
    def project_id(self) -> str | None:
        """The session's project, which a bare job id means."""
        ...

    def random(self) -> float:
        """Return a number from 0 up to 1."""
        ...

    def get_job(self, job_id: str, *, project_id: str, retry: bool) -> Coroutine[Any, Any, Job]:
        """Look at a job; once, when *retry* is false."""
        ...

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
        ...

    def observe(self, operation: str, project_id: str, job_id: str | None) -> Observation | None:
        """Begin to follow an operation, when the session has an observer."""
        ...

    def scheduler(self) -> PollScheduler:
        """Return the scheduler of the running loop, the same one each time.

        Raises:
            StateError: The session is closed.
        """
        ...


class JobHandle:
    """One agent job. Awaiting it waits until the job has ended, as :meth:`wait` with its defaults does.

    The properties show what was last seen and never do I/O. A handle belongs to
    its session and cannot be pickled: carry :attr:`ref`.
    """

    __slots__ = ("__weakref__", "_calls", "_track")

    def __init__(
        self, calls: AgentCalls, ref: JobRef, *, job: Job | None = None, created: bool = False
    ) -> None:
        """Handle the job that *ref* names.

        Args:
            calls: The session.
            ref: Names the job.
            job: Its record, when there is one already.
            created: Whether it was created just now, so that 404 means "not there yet" for a while.
        """
        self._calls = calls
        self._track = JobTrack(ref, job, calls.clock.now() if created else None)

    @property
    def ref(self) -> JobRef:
        """Names the job, for another process; armed while a follow-up's own result has not been seen."""
        return self._track.ref

    @property
    def id(self) -> str:
        """The job's identifier."""
        return self._track.id

    @property
    def project_id(self) -> str:
        """The job's project."""
        return self._track.project_id

    @property
    def job(self) -> Job | None:
        """The last record; None before the first look. After a follow-up it may be the turn before's."""
        return self._track.job

    @property
    def raw(self) -> ResponseInfo | None:
        """Status, headers and request id of the last answer, or None."""
        return None if self._track.job is None else self._track.job.raw

    @property
    def status(self) -> str | None:
        """The last status, as it came; None before the first look."""
        return None if self._track.job is None else self._track.job.status

    @property
    def pr_link(self) -> str | None:
        """The pull request's address, as last seen."""
        return None if self._track.job is None else self._track.job.pr_link

    @property
    def done(self) -> bool:
        """Whether the job was last seen ended, and that is not the end of the turn before."""
        return self._track.done

    @property
    def settled_by(self) -> SettledBy | None:
        """How the guard against the turn before's answer ended.

        ``"evidence"``: the newest turn was seen at work, or with another end.
        ``"grace"``: nothing of it was seen, and the end lasted through the settle
        window. None: the guard still stands, or no follow-up was sent.
        """
        return self._track.settled_by

    def __repr__(self) -> str:
        """Show the id and the last status."""
        return f"<{type(self).__name__} {printable(self.id)} {printable(self.status or 'not seen yet')}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Refuse: a session's connections do not travel."""
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
        """Wait until the job has ended, and return its record; looks afresh at least once.

        Args:
            timeout: Bounds the whole wait, in seconds; None waits without end. One last
                look begins at the deadline, and has a second.
            check: Raise when the job has failed.
            until: ``"pr"`` also waits for the pull request of a completed job.
            pr_grace: How long, in seconds; then the job is returned without one.
            on_change: A plain function, called with the first record and with each that differs
                from the one before. What it raises ends the wait.

        Raises:
            JobFailedError: The job has failed, and *check* is true.
            JobTimeoutError: The time is up; the job goes on at the service.
            AuthenticationError: 401; so do 403 and other refusals, at once.
            NotFoundError: There is no such job; for 30 s after its creation that is borne.
            APIConnectionError: The service could not be reached for five minutes; likewise
                ``RateLimitError``, ``ServerError`` and ``UnexpectedResponseError``.
            StateError: The session is closed, or was closed meanwhile.
            ConfigurationError: An argument is none of what it can be.
        """
        rules = WaitRules.checked(check=check, until=until, pr_grace=pr_grace, on_change=on_change)
        check_timeout(timeout)
        observation = self._calls.observe("wait", self.project_id, self.id)
        if observation is not None:
            rules = evolve(rules, on_look=_note_polls(observation))
        wait = self.begin(rules, timeout)
        if observation is None:
            await _until_over(self.scheduler(), wait)
            return wait.result()
        with following(observation):
            await _until_over(self.scheduler(), wait)
            note_job(observation, wait.result())
            return wait.result()

    def through(self, calls: AgentCalls) -> JobHandle:
        """Return another handle of the same job, which knows what this one knows, over other *calls*."""
        handle = JobHandle.__new__(JobHandle)
        handle._calls, handle._track = calls, self._track
        return handle

    async def refresh(self) -> Job:
        """Look once, and return the record as it came.

        For a queue's task that reschedules itself: ask :attr:`done`, which knows of
        follow-ups, rather than the record, which may be the turn before's.

        Raises:
            APIStatusError: The service refuses.
            APIConnectionError: It cannot be reached.
            UnexpectedResponseError: Its answer is no job.
        """
        return await self._look(retry=True)

    def watch(self, timeout: float | None = DEFAULT_TIMEOUT) -> JobWatch:
        """Return an async iterator over the job's records: the first, then each that differs.

        It ends after a terminal record, a failed one, too, without raising. Nothing is
        asked between two steps.

        Args:
            timeout: Bounds the whole watch from its first step, in seconds; None has no end.

        Raises:
            ConfigurationError: *timeout* is no number of seconds.
        """
        check_timeout(timeout)
        return JobWatch(self, timeout)

    async def send(
        self,
        prompt: str,
        *,
        on_active: OnActive = "send",
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Send a follow-up, at most once, and return its turn.

        One look goes before it, so that the turn can tell its own result from the one
        that is there already. Of a job with several turns, every handle waits for the newest.

        Args:
            prompt: The instruction, at least 1 character.
            on_active: What to do while the job is active: ``"send"`` all the same; ``"wait"``
                until it has ended, at most 30 minutes; ``"raise"``.
            headers: Further headers.
            extra_body: Further fields of the body.

        Raises:
            ConfigurationError: An argument is none of what it can be; nothing was sent.
            AuthenticationError: 401; likewise 403 and 404; nothing was sent.
            StateError: The job is active, and *on_active* is ``"raise"``; nothing was sent.
            JobTimeoutError: It was still active after the 30 minutes of ``"wait"``; nothing was sent.
            OutcomeUnknownError: The follow-up went out, and what became of it is not known. This
                handle then waits as if it had been taken: it guards against the turn before's end.
            APIStatusError: The service refuses it.
        """
        send_message_request(  # built once before the look, so that what cannot be sent is told first
            Assumptions(), self.project_id, self.id, prompt, headers=headers, extra_body=extra_body
        )
        if on_active not in ("send", "wait", "raise"):
            raise ConfigurationError("on_active must be 'send', 'wait' or 'raise'", field="on_active")
        change = self._track.arm(await self._baseline(on_active))
        try:
            job = await self._calls.send_message(
                self.id, prompt, project_id=self.project_id, headers=headers, extra_body=extra_body
            )
        except BaseException as error:
            from .ledger import had_no_effect  # loaded when it is used: it brings SQLite and anyio

            if had_no_effect(error):
                self._track.unsent(change)
            else:
                self._track.sent(change)  # it may be at work: the guard stands
            raise
        self._track.sent(change, job)
        return Turn.of(self)

    async def _baseline(self, on_active: OnActive) -> str | None:
        """Return the status before a follow-up, or None when it cannot be seen."""
        if on_active == "wait":
            return (await self.wait(check=False)).status
        era = self._track.era
        try:
            job = await self._look(retry=False)
        except (AuthenticationError, PermissionDeniedError, NotFoundError):
            raise
        except (APIConnectionError, APIStatusError, UnexpectedResponseError):
            if on_active == "raise":
                raise
            return None
        if on_active == "raise" and not self.done:
            raise StateError(
                f"job {printable(self.id)} is {printable(job.status)} and its newest turn has not ended; "
                'wait for it, or pass on_active="wait" or "send"'
            )
        return job.status if era == self._track.era else None  # else another follow-up went out meanwhile

    async def _look(self, *, retry: bool) -> Job:
        track, calls = self._track, self._calls
        era = track.era
        job = await calls.get_job(track.id, project_id=track.project_id, retry=retry)
        if era == track.era:  # else a follow-up went out meanwhile
            track.see(job, calls.clock.now(), calls.poll)
        return job

    def begin(self, rules: WaitRules, timeout: float | None) -> JobWait:
        """Return a wait for this job that has not entered the scheduler; for this package's own use."""
        return JobWait(self._track, rules, self._calls, timeout)

    def scheduler(self) -> PollScheduler:
        """Return the session's scheduler on this loop; for this package's own use."""
        return self._calls.scheduler()


def _note_polls(observation: Observation) -> Callable[[Look], None]:
    def note(look: Look) -> None:
        if look.job is not None:
            observation.event("poll", {"status": look.job.status})
        else:
            observation.event("poll", {"error": type(look.error).__name__})

    return note


class Turn(JobHandle):
    """A follow-up: a handle whose waits end with this turn's own result, or a newer one's.

    Its :attr:`~JobHandle.ref` is armed until that result can be told from the one
    before, and guards in another process, too; :attr:`~JobHandle.settled_by` says how it was told.
    """

    __slots__ = ()

    @classmethod
    def of(cls, handle: JobHandle) -> Turn:
        """Return the newest turn of the job of *handle*, which it shares what it knows with."""
        turn = cls.__new__(cls)
        turn._calls, turn._track = handle._calls, handle._track
        return turn


def handle_for(calls: AgentCalls, named: JobRef | str, *, project_id: str | None = None) -> JobHandle:
    """Return the handle of the job that a reference, its text, or a bare id names; a turn when it is armed.

    Args:
        calls: The session.
        named: Names the job.
        project_id: What a bare id is taken to be in; the session's project by default.

    Raises:
        ConfigurationError: It names none.
    """
    ref = JobRef.of(named, project_id if project_id is not None else calls.project_id)
    return Turn(calls, ref) if ref.armed else JobHandle(calls, ref)


class JobWatch:
    """An async iterator over the records of one job; see :meth:`JobHandle.watch`."""

    def __init__(self, handle: JobHandle, timeout: float | None) -> None:
        """Watch *handle*; nothing is asked before the first step."""
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
            JobTimeoutError: The time is up; the job goes on at the service.
            StateError: Another task is in a step, or the session is closed.
        """
        if self._ended:
            raise StopAsyncIteration
        if self._stepping:
            raise StateError("this watch is already being stepped; make one watch for each consumer")
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
            self._wait = self._handle.begin(WaitRules(check=False, until="change"), self._timeout)
        if not self._wait.over:  # else the step before was cancelled with a record in hand
            await _until_over(self._handle.scheduler(), self._wait)
        return self._wait.take()


async def _until_over(scheduler: PollScheduler, wait: JobWait) -> None:
    """Stand in the scheduler until *wait* is over."""
    wait.woken = woken = asyncio.get_running_loop().create_future()
    try:
        scheduler.enter(wait)
        await woken
    finally:
        scheduler.leave(wait)
        await scheduler.drained()
