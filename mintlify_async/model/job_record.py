"""Agent jobs as the service describes them. Each response becomes one immutable record.

Words of the service (a status, a model) are plain strings, because new words may come. An optional field of
an unexpected type is kept in ``extra``, so it never makes a job unreadable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, Final, cast

import attrs
from attrs import frozen

from ..errors import UnexpectedResponseError, printable
from ..wrong_names import helpful
from .pydantic_fields import InModels
from .response_info import ResponseInfo
from .secret import drop_keys, mask_keys
from .strict_json import EXCERPT_CHARACTERS, json_safe
from .wire_value import EMPTY, UNCOMPARED, Lenient, WireValue, read_value


class JobStatus(StrEnum):
    """The statuses that the service documents. A job may have another status."""

    ACTIVE = "active"
    COMPLETED = "completed"
    ARCHIVED = "archived"
    FAILED = "failed"


TERMINAL_STATES: Final = frozenset({"completed", "archived", "failed"})


@helpful
@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class Source(WireValue):
    """The repository that a job reads and changes.

    Args:
        repository: The repository's identifier, or None.
        ref: The reference in the repository, or None.
        extra: All additional fields that were sent.
    """

    repository: Lenient[str] = None
    ref: Lenient[str] = None
    extra: Mapping[str, Any] = EMPTY

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Source:
        """Read the JSON object. A field of another type is kept in ``extra``."""
        return read_value(cls, wire)


@helpful
@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class Job(WireValue, InModels):
    """A snapshot of an agent job. It can be a field of a pydantic model and the result of a FastAPI handler.

    Args:
        id: The job's identifier.
        status: One of :class:`JobStatus`, or a word of a later version.
        source: The repository of the job, or None.
        model: The model used, or None.
        pr_link: The pull request's URL. None while the job is active, and if no file changed.
        created_at: When the job was created, or None.
        archived_at: When the job was archived, or None.
        extra: All additional fields that the service sent.
        raw: Status, headers, request id and JSON of the response. Equality and the repr ignore it.
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
    # The JSON object that was read. It distinguishes null from absent, and keeps the service's dates.
    _wire: Mapping[str, Any] = attrs.field(default=EMPTY, alias="wire", metadata=UNCOMPARED)

    @property
    def done(self) -> bool:
        """Whether a job ends with this status. An unknown status is not final."""
        return self.status in TERMINAL_STATES

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object as the service sent it. If a field was changed, make a new object."""
        if self._wire and read_value(Job, self._wire) == self:
            return cast("dict[str, Any]", json_safe(drop_keys(self._wire)))
        return {**super().to_wire(), "status": str(self.status)}

    @classmethod
    def from_wire(cls, wire: object, raw: ResponseInfo | None = None) -> Job:
        """Read the JSON object.

        Raises:
            UnexpectedResponseError: *wire* is not an object, or ``id`` or ``status`` is not a string.
        """
        return job_without_keys(mask_keys(wire), raw)

    @classmethod
    def _from_model(cls, content: object) -> Job:
        return job_without_keys(mask_keys(content), None, lambda problem: ValueError(f"job{problem}"))

    _to_model = to_wire


def job_without_keys(
    wire: object, raw: ResponseInfo | None, error: Callable[[str], Exception] | None = None
) -> Job:
    """Read the JSON object of a job, from which thread keys were removed.

    Args:
        wire: The JSON object.
        raw: The response.
        error: Takes the problem, and returns the exception to raise; by default as :meth:`Job.from_wire`.
    """
    error = error or partial(_not_a_job, wire=wire, raw=raw)
    job = read_value(Job, wire, error, raw=raw, wire=wire)
    if job.id and job.status:
        return job
    raise error(".status is empty" if job.id else ".id is empty")


def _not_a_job(problem: str, wire: object, raw: ResponseInfo | None) -> UnexpectedResponseError:
    excerpt = json.dumps(json_safe(mask_keys(wire)), default=str)[:EXCERPT_CHARACTERS]
    return UnexpectedResponseError(
        f"the service's response is not a job: job{problem}: {printable(excerpt)}",
        excerpt=excerpt,
        status=None if raw is None else raw.status,
        headers=None if raw is None else raw.headers,
        request_id=None if raw is None else raw.request_id,
    )
