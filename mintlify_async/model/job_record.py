"""Agent jobs as the service describes them, with one immutable record per response.

Words that the service owns (a status, a model) stay open strings. An optional field of an unforeseen
type is kept in ``extra``, so that it never makes a job unreadable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import attrs
from attrs import frozen

from ..errors import UnexpectedResponseError, printable
from .json_text import DecodeProblem, json_safe, mask_keys
from .response_info import ResponseInfo
from .wire_value import (
    EMPTY,
    UNCOMPARED,
    Lenient,
    WireValue,
    read_instant,
    read_value,
    write_value,
)


class JobStatus(StrEnum):
    """The statuses that the service documents. A job may have another one."""

    ACTIVE = "active"
    COMPLETED = "completed"
    ARCHIVED = "archived"
    FAILED = "failed"


HANDLE_VERBS: Final = frozenset({"send", "wait", "refresh", "watch"})
"""What a job's handle does, and its record does not."""

TERMINAL_STATES: Final = frozenset({"completed", "archived", "failed"})


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class Source(WireValue):
    """Where a job reads and writes.

    Args:
        repository: The repository's identifier, or None.
        ref: The reference within it, or None.
        extra: Everything else that was sent.
        nulls: The names of the fields that were sent as null; not compared, not shown.
    """

    repository: Lenient[str] = None
    ref: Lenient[str] = None
    extra: Mapping[str, Any] = EMPTY
    nulls: tuple[str, ...] = attrs.field(default=(), metadata=UNCOMPARED)

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object as it was sent. Null stays null, and a missing field stays missing."""
        return write_value(self)

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Source:
        """Read the JSON object; a field of another type is kept in ``extra``."""
        return read_value(cls, wire)


class _HasStatus(Protocol):
    @property
    def status(self) -> str | None: ...

    @property
    def done(self) -> bool: ...


class JobFlags:
    """The listed statuses as booleans. All are false for another status, and before a handle's first poll."""

    __slots__ = ()

    @property
    def active(self: _HasStatus) -> bool:
        """Whether the agent is working on the job."""
        return self.status == JobStatus.ACTIVE

    @property
    def completed(self: _HasStatus) -> bool:
        """Whether the job ended as ``completed``. It may have no pull request."""
        return self.done and self.status == JobStatus.COMPLETED

    @property
    def archived(self: _HasStatus) -> bool:
        """Whether the job ended as ``archived``."""
        return self.done and self.status == JobStatus.ARCHIVED

    @property
    def failed(self: _HasStatus) -> bool:
        """Whether the job ended as ``failed``."""
        return self.done and self.status == JobStatus.FAILED


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class Job(WireValue, JobFlags):
    """A snapshot of an agent job.

    Args:
        id: The job's identifier.
        status: One of :class:`JobStatus`, or a word that this version does not list.
        source: The repository that it works on, or None.
        model: The model used, or None.
        pr_link: The pull request's URL. None while the job is active, and if no file changed.
        created_at: When it was created, or None.
        archived_at: When it was archived, or None.
        extra: Everything else that the service sent.
        raw: Status, headers, request id and JSON of the response; not compared, not shown.
        nulls: The names of the fields that were sent as null; likewise.
    """

    id: str
    status: str
    source: Lenient[Source] = None
    model: Lenient[str] = None
    pr_link: Lenient[str] = None
    created_at: Lenient[datetime] = None
    archived_at: Lenient[datetime] = None
    extra: Mapping[str, Any] = EMPTY
    raw: ResponseInfo | None = attrs.field(default=None, metadata=UNCOMPARED)
    nulls: tuple[str, ...] = attrs.field(default=(), metadata=UNCOMPARED)
    # The service's words for instants that would be written in other ones, by their field.
    _instants: Mapping[str, str] = attrs.field(default=EMPTY, alias="instants", metadata=UNCOMPARED)

    if not TYPE_CHECKING:  # a type checker finds the mistake

        def __getattr__(self, name: str) -> NoReturn:
            hint = f": session.job(job).{name}() does it" if name in HANDLE_VERBS else ""
            raise AttributeError(f"a Job is a record and has no {name!r}{hint}", name=name, obj=self)

    @property
    def done(self) -> bool:
        """Whether a job ends with this status. An unknown status does not end it."""
        return self.status in TERMINAL_STATES

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object as it was sent. Null stays null, and a missing field stays missing."""
        wire = write_value(self)
        wire["status"] = str(self.status)
        for name, instant in (("createdAt", self.created_at), ("archivedAt", self.archived_at)):
            sent = self._instants.get(name)
            if sent is not None and instant is not None and read_instant(sent) == instant:
                wire[name] = sent
        return wire

    @classmethod
    def from_wire(cls, wire: object, raw: ResponseInfo | None = None) -> Job:
        """Read the JSON object.

        Raises:
            UnexpectedResponseError: It is not an object, or ``id`` or ``status`` is not a string.
        """
        try:
            job = read_value(cls, wire, raw=raw)
        except DecodeProblem as error:
            problem = str(error)
        else:
            if job.id and job.status:
                job._keep_instants(wire)
                return job
            problem = ".status is empty" if job.id else ".id is empty"
        raise _not_a_job(problem, wire, raw)

    def _keep_instants(self, wire: Any) -> None:
        """Keep the words of *wire* for instants that would be written in other ones."""
        odd: dict[str, str] = {}
        if self.created_at is not None and not _is_usual(wire["createdAt"]):
            odd["createdAt"] = wire["createdAt"]
        if self.archived_at is not None and not _is_usual(wire["archivedAt"]):
            odd["archivedAt"] = wire["archivedAt"]
        if odd:
            object.__setattr__(self, "_instants", odd)  # a copy is half the cost of reading a job


_is_usual: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{3}Z").fullmatch
"""Whether an instant is written as ``instant_text`` writes it."""


def _not_a_job(problem: str, wire: object, raw: ResponseInfo | None) -> UnexpectedResponseError:
    excerpt = json.dumps(json_safe(mask_keys(wire)), default=str)[:2000]
    return UnexpectedResponseError(
        f"the service's answer is not a job: job{problem}: {printable(excerpt)}",
        excerpt=excerpt,
        status=None if raw is None else raw.status,
        headers=None if raw is None else raw.headers,
        request_id=None if raw is None else raw.request_id,
    )
