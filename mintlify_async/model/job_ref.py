"""A job reference has the data that another process needs to continue a job, as one line of text."""

from __future__ import annotations

import math
import zlib
from typing import Any, Final
from urllib.parse import quote, unquote

from attrs import field, frozen
from attrs.converters import optional

from ..checks import check_field, check_segment, check_text
from ..errors import ConfigurationError, printable
from .json_text import as_object

SCHEME: Final = "mintlify-job"
"""The beginning of a reference's text."""

VERSION: Final = 2
"""The version of the text that is written and read."""


def _seconds(value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise ConfigurationError(f"a time must be in seconds since 1970, not {printable(repr(value), 40)}")
    return seconds


@frozen
class Stamp:
    """When something happened, by two clocks, in seconds since 1970.

    Args:
        at: By the clock of the machine that noted it.
        date: By the service's clock, from the ``Date`` header of its response. None if there was no such
            header.
    """

    at: float = field(converter=_seconds)
    date: float | None = field(default=None, converter=optional(_seconds))


@frozen
class End:
    """A final status that polls have shown since some moment, without another status between.

    Args:
        status: The status. Empty if the follow-up was sent before the result of an earlier one was certain.
        since: When a poll first showed it. With an empty status: when the follow-up was sent.
    """

    status: str = field(converter=str)
    since: Stamp


@frozen
class JobRef:
    """Names a job, so that it can be continued elsewhere: ``session.job(ref)``. Contains no secret.

    A reference taken after a follow-up also says when that was sent, so that a wait elsewhere does not
    return the result of the turn before.

    :meth:`parse` reads ``str(ref)``. The JSON object of :meth:`to_dict` and a pickle contain that text. The
    text has a version. Two references are equal when they name the same job and the same follow-up.

    Args:
        project_id: The job's project.
        id: The job's id. It can be any text, because the service does not document its format.
        created: When the job was created, if it was created by the process that made this reference, or
            None. A 404 is tolerated for 30 s after it.
        sent: When the newest follow-up was sent, if its result was not seen yet; else None.
        was_final: Whether the job was seen with a final status: before that follow-up was sent, or, without
            one, when this reference was made.
        end: The final status that polls have shown since the follow-up, or None.

    Raises:
        ConfigurationError: *project_id* is not an identifier, or *id* is not a text that a path can name.
    """

    project_id: str = field(validator=check_field(check_segment))
    id: str = field(validator=check_field(check_text))
    created: Stamp | None = field(default=None, kw_only=True, eq=False)
    sent: Stamp | None = field(default=None, kw_only=True)
    was_final: bool = field(default=False, kw_only=True, eq=False)
    end: End | None = field(default=None, kw_only=True, eq=False)

    @property
    def awaiting_turn(self) -> bool:
        """Whether a follow-up was sent whose result was not seen yet."""
        return self.sent is not None

    def __str__(self) -> str:
        """Return one word of printable ASCII, such as ``mintlify-job:2:docs:job_1:final:8f3a09bc``."""
        details = ["final"] if self.was_final else []
        if self.created is not None:
            details.append(f"created={_times_text(self.created)}")
        if self.sent is not None:
            details.append(f"sent={_times_text(self.sent)}")
        if self.end is not None:
            details.append(f"end={_times_text(self.end.since)}={_quoted(self.end.status)}")
        text = ":".join([SCHEME, str(VERSION), _quoted(self.project_id), _quoted(self.id), ";".join(details)])
        return f"{text}:{_checksum(text)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).parse, (str(self),)

    @classmethod
    def parse(cls, text: str) -> JobRef:
        """Return the reference whose text is *text*.

        Raises:
            ConfigurationError: *text* is not a reference, was cut or changed, or has another version.
        """
        if not is_reference(text):
            raise _broken(text, f"it does not begin with {SCHEME!r}")
        body, _, checksum = text.strip().rpartition(":")
        parts = body.split(":")
        if len(parts) > 1 and parts[1] != str(VERSION):
            problem = f"it has version {printable(parts[1])!r}; this package reads version {VERSION}"
            raise _broken(text, problem)
        if len(parts) != 5 or checksum != _checksum(body):
            raise _broken(text, "it was cut or changed on the way")
        details: dict[str, str] = {}
        for detail in parts[4].split(";"):
            name, _, details[name] = detail.partition("=")
        if not details.keys() <= {"", "final", "created", "sent", "end"}:
            raise _broken(text, f"its state {printable(parts[4])!r} is not known to this version")
        created, sent, end = (details.get(name) for name in ("created", "sent", "end"))
        times, _, status = (end or "").partition("=")
        return cls(
            _unquoted(parts[2]),
            _unquoted(parts[3]),
            created=_stamp(created) if created else None,
            sent=_stamp(sent) if sent else None,
            was_final="final" in details,
            end=End(_unquoted(status), _stamp(times)) if end else None,
        )

    def to_dict(self) -> dict[str, str]:
        """Return a JSON object with the project, the job's id, and the reference's text as ``ref``."""
        return {"project_id": self.project_id, "id": self.id, "ref": str(self)}

    @classmethod
    def from_dict(cls, stored: object) -> JobRef:
        """Return the reference that :meth:`to_dict` has written.

        Raises:
            ConfigurationError: *stored* is not such an object. As :meth:`parse`.
        """
        return cls.parse((as_object(stored) or {}).get("ref", ""))

    @classmethod
    def of(cls, target: object, project_id: str | None) -> JobRef:
        """Return *target* as a reference: itself, its text, or a bare job id in *project_id*.

        Raises:
            ConfigurationError: *target* is invalid, or a bare id without a project.
        """
        if isinstance(target, JobRef):
            return target
        if isinstance(target, str) and is_reference(target):
            return cls.parse(target)
        if not isinstance(target, str):
            kind = type(target).__name__
            hint = ": read a stored reference with JobRef.from_dict(…)" if kind == "dict" else ""
            words = f"ref must be a JobRef, its text, a JobHandle, a Job or a job's id; got {kind}{hint}"
            raise ConfigurationError(words, field="ref")
        check_segment(target, "ref")
        if target != target.strip():
            raise ConfigurationError("ref begins or ends with white space; remove it", field="ref")
        if project_id is None:
            raise ConfigurationError(
                "this is only a job id; set project_id= on the session, or pass the full reference",
                field="project_id",
            )
        return cls(project_id, target)


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def _unquoted(text: str) -> str:
    return unquote(text, errors="surrogatepass")


def _times_text(stamp: Stamp) -> str:
    return f"{stamp.at!r}" if stamp.date is None else f"{stamp.at!r}/{stamp.date!r}"


def _stamp(text: str) -> Stamp:
    at, _, date = text.partition("/")
    return Stamp(at, date or None)


def is_reference(text: object) -> bool:
    """Return whether *text* begins like the text of a reference."""
    return isinstance(text, str) and text.strip().startswith(f"{SCHEME}:")


def _checksum(text: str) -> str:
    # Detects a text that was cut: it could lose the part that says when a follow-up was sent.
    return f"{zlib.crc32(text.encode('ascii', 'replace')):08x}"


def _broken(reference: Any, problem: str) -> ConfigurationError:
    excerpt = printable(repr(reference), 80)
    return ConfigurationError(
        f"this is not a job reference: {problem}: {excerpt}. Take it from handle.ref", field="ref"
    )
