"""The agent jobs of the local service. Their status depends on the loop's time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from attrs import define, evolve, field, frozen

from ..runtime.clock import now as date_now
from ..wrong_names import helpful

ENDED = frozenset({"completed", "failed", "archived"})


def _to_lags(stale: float | Iterable[float]) -> tuple[float, ...]:
    return tuple(stale) if isinstance(stale, Iterable) else (stale,)


@helpful
@frozen(kw_only=True)
class JobLife:
    """The course of a job after a prompt. Times are in seconds.

    ::

        LocalService(life=JobLife(seconds=60, outcome="failed"))     # for every job
        service.script.job(seconds=60, outcome="failed")             # for the next job
        service.script.send_message(life=JobLife(stale=20))          # for the next follow-up
        service.script.send_message(life=JobLife(stale=(0, 20)))     # two replicas, one is behind

    Args:
        seconds: The duration of the job.
        outcome: The status at the end.
        files: Whether the job changes files. If not, a completed job has no pull request.
        stale: The time after a follow-up in which a poll still returns the earlier result. Several numbers
            are the delays of read replicas, which answer polls in turn.
        not_found: The time after the job was created in which a poll gets a 404.
        looks: Statuses by poll instead of by time. Each poll returns the next one, and the last is repeated.
    """

    seconds: float = 3.0
    outcome: str = "completed"
    files: bool = True
    stale: tuple[float, ...] = field(default=(0.0,), converter=_to_lags)
    not_found: float = 0.0
    looks: tuple[str, ...] = field(default=(), converter=tuple[str, ...])


@define(kw_only=True)
class _Turn:
    """The first prompt, or a follow-up."""

    prompt: str
    at: float
    life: JobLife
    looks_left: list[str]
    polls: int = 0

    @property
    def takes_effect_at(self) -> float:
        """The time from which the replica that answers the next poll shows this prompt."""
        return self.at + self.life.stale[self.polls % len(self.life.stale)]


@helpful
@define(kw_only=True, eq=False)
class LocalJob:
    """One job of the service, such as ``service.jobs["job_1"]``.

    ::

        assert service.jobs["job_1"].prompts == ["Fix the typos", "Mention the CLI, too"]

    Attributes:
        id: The id of the job.
        project_id: The id of the job's project.
        number: The number of the job, which is also the number of its pull request.
        created_at: When the job was created, in seconds since 1970.
    """

    id: str
    project_id: str
    number: int
    created_at: float
    _now: Callable[[], float] = field(repr=False, alias="now")
    _turns: list[_Turn] = field(factory=list[_Turn], init=False)

    @property
    def prompts(self) -> list[str]:
        """The first prompt, and the follow-ups up to now."""
        return [turn.prompt for turn in self._turns]

    @property
    def status(self) -> str:
        """The status that a poll would return now. Reading it does not count as a poll."""
        return self._status_of(self._turn_in_effect())

    @property
    def visible(self) -> bool:
        """Whether a poll can find the job now."""
        return self._now() >= self._turns[0].at + self._turns[0].life.not_found

    def add(self, prompt: str, life: JobLife) -> None:
        """Add the first prompt or a follow-up."""
        self._turns.append(_Turn(prompt=prompt, at=self._now(), life=life, looks_left=list(life.looks)))

    def record(self, *, polled: bool = False) -> dict[str, Any]:
        """Return the job as the API shows it. *polled* moves a job with ``looks`` to the next status."""
        if polled:
            self._turns[-1].polls += 1
        turn = self._turn_in_effect()
        status = self._status_of(turn)
        has_files = turn.life.files and status == turn.life.outcome == "completed"
        if polled and len(turn.looks_left) > 1:
            turn.looks_left.pop(0)
        return {
            "id": self.id,
            "status": status,
            "source": {"repository": f"{self.project_id}/docs", "ref": f"agent/{self.id}"},
            "model": "local-stand-in",
            "prLink": f"https://github.com/{self.project_id}/docs/pull/{self.number}" if has_files else None,
            "createdAt": _date_time(self.created_at),
            "archivedAt": _date_time(date_now()) if status == "archived" else None,
        }

    def _turn_in_effect(self) -> _Turn:
        now = self._now()
        return next((turn for turn in reversed(self._turns) if turn.takes_effect_at <= now), self._turns[0])

    def _status_of(self, turn: _Turn) -> str:
        if turn.looks_left:
            return turn.looks_left[0]
        runs = self._now() - turn.takes_effect_at < turn.life.seconds
        return "active" if runs else turn.life.outcome


class LocalJobs(dict[str, LocalJob]):
    """``service.jobs`` contains the jobs of a service, by id. *now* returns the time."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now

    def create(self, project_id: str, prompt: str, life: JobLife) -> LocalJob:
        """Create a job."""
        number = len(self) + 1
        job = LocalJob(
            id=f"job_{number}",
            project_id=project_id,
            number=number,
            created_at=date_now(),
            now=self._now,
        )
        job.add(prompt, life)
        self[job.id] = job
        return job

    def follow_up(self, job: LocalJob, prompt: str, life: JobLife) -> None:
        """Add a follow-up to *job*. Until ``stale`` has passed, polls return the earlier result."""
        if job.status not in ENDED:  # an active job has no earlier result
            life = evolve(life, stale=0.0)
        job.add(prompt, life)

    def find(self, project_id: str, job_id: str) -> LocalJob | None:
        """Return the job if it belongs to this project and is visible now."""
        job = self.get(job_id)
        return job if job is not None and job.project_id == project_id and job.visible else None


def _date_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
