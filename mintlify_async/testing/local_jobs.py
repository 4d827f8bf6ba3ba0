"""Prompts in; jobs that live by a clock and propose an edit of the documentation folder out."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from attrs import define, evolve, field, frozen

from ..clock import Clock
from ..errors import ConfigurationError
from .docs_search import DocsIndex, Page

__all__ = ["ENDED", "JobBoard", "JobLife", "LocalJob", "ProposedEdit"]

ENDED = frozenset({"completed", "failed", "archived"})
"""The statuses after which a job does not go on by itself."""


@frozen(kw_only=True)
class JobLife:
    """How a job lives after a prompt. Every quantity is in seconds of the service's clock.

    Args:
        seconds: From the prompt to the end.
        outcome: The status at the end.
        files: Whether files change; without, ``completed`` has no pull request.
        pr_delay: How long after the end the pull request appears.
        stale: How long after a follow-up the record of before is still read back.
        not_found: How long after its creation the job is still answered with 404.
        archive_after: How long after the end the job is archived; None: never.
        states: Statuses on the way, each with the moment from which it shows, such as ``{2: "queued"}``.
        looks: Statuses by look instead of by time: each GET gives the next one, the last one stays.

    Raises:
        ConfigurationError: A quantity is negative.
    """

    seconds: float = 3.0
    outcome: str = "completed"
    files: bool = True
    pr_delay: float = 0.0
    stale: float = 0.0
    not_found: float = 0.0
    archive_after: float | None = None
    states: Mapping[float, str] = field(factory=dict[float, str])
    looks: tuple[str, ...] = field(default=(), converter=tuple[str, ...])

    def __attrs_post_init__(self) -> None:
        """Refuse times before the prompt."""
        for name in ("seconds", "pr_delay", "stale", "not_found"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} is in seconds and cannot be negative", field=name)

    def status_after(self, elapsed: float) -> str:
        """Return the status *elapsed* seconds after the prompt took effect."""
        if elapsed < self.seconds:
            passed = [moment for moment in self.states if moment <= elapsed]
            return self.states[max(passed)] if passed else "active"
        if self.archive_after is not None and elapsed >= self.seconds + self.archive_after:
            return "archived"
        return self.outcome


@frozen(kw_only=True)
class ProposedEdit:
    """What a job would change in one page; nothing is written to the folder.

    Attributes:
        file: The file, inside the folder.
        before: Its text before.
        after: Its text after.
    """

    file: str
    before: str
    after: str

    @property
    def diff(self) -> str:
        """The change as a unified diff."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True),
            self.after.splitlines(keepends=True),
            f"a/{self.file}",
            f"b/{self.file}",
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


@define(kw_only=True)
class _Turn:
    """One prompt and the life that it began."""

    prompt: str
    at: float
    life: JobLife
    edit: ProposedEdit | None
    looks_left: list[str]

    @property
    def begins(self) -> float:
        return self.at + self.life.stale


@define(kw_only=True, eq=False)
class LocalJob:
    """One job as the service keeps it.

    Attributes:
        id: Its id.
        project_id: Its project.
        number: Its number, which is that of its pull request, too.
        created_at: When it was created, in seconds since 1970.
    """

    id: str
    project_id: str
    number: int
    created_at: float
    _turns: list[_Turn] = field(alias="turns")
    _clock: Clock = field(repr=False, alias="clock")

    @property
    def prompts(self) -> list[str]:
        """The prompts so far: the first one and the follow-ups."""
        return [turn.prompt for turn in self._turns]

    @property
    def edits(self) -> list[ProposedEdit]:
        """What the job proposes to change, one edit a prompt."""
        return [turn.edit for turn in self._turns if turn.edit is not None]

    @property
    def diff(self) -> str:
        """All edits as one unified diff."""
        return "".join(edit.diff for edit in self.edits)

    @property
    def status(self) -> str:
        """The status now, as a GET would show it; looking does not count as a look."""
        return self._status_of(self._shown())

    @property
    def visible(self) -> bool:
        """Whether a GET finds the job already."""
        first = self._turns[0]
        return self._clock.now() >= first.at + first.life.not_found

    def add(self, turn: _Turn) -> None:
        """Begin a follow-up: the old record is still shown while the follow-up's ``stale`` lasts."""
        if self.status not in ENDED:  # an active job simply goes on: there is no old end to read back
            turn.life = evolve(turn.life, stale=0.0)
        self._turns.append(turn)

    def record(self, *, look: bool = False) -> dict[str, Any]:
        """Return the job as the interface shows it; a *look* moves a life that goes by looks on."""
        turn = self._shown()
        status = self._status_of(turn)
        if look and len(turn.looks_left) > 1:
            turn.looks_left.pop(0)
        return {
            "id": self.id,
            "status": status,
            "source": {"repository": f"{self.project_id}/docs", "ref": f"agent/{self.id}"},
            "model": "local-stand-in",
            "prLink": self._pr_link(turn, status),
            "createdAt": _date_time(self.created_at),
            "archivedAt": _date_time(self._clock.wall()) if status == "archived" else None,
        }

    def _shown(self) -> _Turn:
        """Return the newest turn that has taken effect."""
        now = self._clock.now()
        return next((turn for turn in reversed(self._turns) if turn.begins <= now), self._turns[0])

    def _status_of(self, turn: _Turn) -> str:
        if turn.looks_left:
            return turn.looks_left[0]
        return turn.life.status_after(self._clock.now() - turn.begins)

    def _pr_link(self, turn: _Turn, status: str) -> str | None:
        ended_with_files = status in ("completed", "archived") and turn.life.outcome == "completed"
        if not (ended_with_files and turn.edit):
            return None
        since_end = self._clock.now() - turn.begins - turn.life.seconds
        if not turn.life.looks and since_end < turn.life.pr_delay:
            return None
        return f"https://github.com/{self.project_id}/docs/pull/{self.number}"


class JobBoard(Mapping[str, LocalJob]):
    """Every job of a service, by id."""

    def __init__(self, docs: DocsIndex, clock: Clock) -> None:
        """Start empty; *docs* is what jobs propose to edit."""
        self._docs, self._clock = docs, clock
        self._jobs: dict[str, LocalJob] = {}

    def __getitem__(self, job_id: str) -> LocalJob:
        """Return one job."""
        return self._jobs[job_id]

    def __iter__(self) -> Iterator[str]:
        """Go through the ids, oldest first."""
        return iter(self._jobs)

    def __len__(self) -> int:
        """Return how many jobs there are."""
        return len(self._jobs)

    def create(self, project_id: str, prompt: str, life: JobLife) -> LocalJob:
        """Begin a job."""
        number = len(self._jobs) + 1
        job = LocalJob(
            id=f"job_{number}",
            project_id=project_id,
            number=number,
            created_at=self._clock.wall(),
            turns=[self._turn(prompt, life, [])],
            clock=self._clock,
        )
        self._jobs[job.id] = job
        return job

    def follow_up(self, job: LocalJob, prompt: str, life: JobLife) -> None:
        """Give *job* a further prompt."""
        job.add(self._turn(prompt, life, job.edits))

    def find(self, project_id: str, job_id: str) -> LocalJob | None:
        """Return the job, when it is of this project and can be seen already."""
        job = self._jobs.get(job_id)
        return job if job is not None and job.project_id == project_id and job.visible else None

    def _turn(self, prompt: str, life: JobLife, earlier: Sequence[ProposedEdit]) -> _Turn:
        edit = propose_edit(self._docs, prompt, earlier) if life.files else None
        return _Turn(prompt=prompt, at=self._clock.now(), life=life, edit=edit, looks_left=list(life.looks))


def propose_edit(docs: DocsIndex, prompt: str, earlier: Sequence[ProposedEdit] = ()) -> ProposedEdit:
    """Return a small, checkable edit for *prompt*, on top of the *earlier* ones.

    ``replace "a" with "b"`` is done literally, in the page that fits best or
    the first that has it. Everything else becomes a note under the page.
    """
    found = docs.search(prompt, 1)
    page = found[0].page if found else next(iter(docs.pages.values()))
    swap = re.search(r"""replace\s+["'“](.+?)["'”]\s+(?:with|by)\s+["'“](.*?)["'”]""", prompt, re.IGNORECASE)
    if swap is not None:
        page = _page_with(docs, swap[1], page)
    before = next((edit.after for edit in reversed(earlier) if edit.file == page.file), page.text)
    if swap is not None and swap[1] in before:
        return ProposedEdit(file=page.file, before=before, after=before.replace(swap[1], swap[2]))
    note = " ".join(prompt.split())
    return ProposedEdit(file=page.file, before=before, after=f"{before.rstrip()}\n\n> Note: {note}\n")


def _page_with(docs: DocsIndex, text: str, first: Page) -> Page:
    return next((page for page in (first, *docs.pages.values()) if text in page.text), first)


def _date_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
