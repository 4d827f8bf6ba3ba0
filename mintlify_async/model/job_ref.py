"""A job reference: one line of text with the data that another process needs to continue a job."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeGuard
from urllib.parse import quote, unquote

from attrs import field, frozen

from ..argument_checks import check_field, check_segment, check_text
from ..errors import ConfigurationError, printable
from ..wrong_names import helpful
from .pydantic_fields import InModels, object_schema
from .strict_json import as_object

__all__ = ["is_reference"]

SCHEME: Final = "mintlify-job"
"""The start of a reference's text."""

VERSION: Final = "3"
"""The version that is written. Version 2, from version 0.3 of the package, can also be read."""

Detail = tuple[str, str, str]
"""Three texts: a time by the machine's clock, the same time by the service's clock, and a status.

A missing value is an empty text.
"""


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise ConfigurationError(f"a time must be in seconds since 1970, not {printable(repr(text), 40)}")
    return seconds


class Stamp(NamedTuple):
    """The time of an event, by two clocks, in seconds since 1970.

    Args:
        at: The time by the clock of the machine that recorded it.
        date: The time by the service's clock, from the ``Date`` header of the response. None without one.
    """

    at: float
    date: float | None = None


@frozen
class End:
    """A final status that all polls since some moment have shown.

    Args:
        status: The status. Empty if the newest follow-up was sent before the result of an earlier follow-up
            was certain.
        since: When a poll first showed the status. If the status is empty, when the follow-up was sent.
    """

    status: str = field(converter=str)
    since: Stamp


@helpful
@frozen
class JobRef(InModels):
    """The name of a job, to continue it elsewhere with ``session.job(ref)``. It contains no secret.

    A reference that was made after a follow-up also contains the time of the follow-up, so that a wait
    elsewhere does not return an earlier result.

    A reference can be a field of a pydantic model and the result of a FastAPI handler.

    :meth:`parse` reads ``str(ref)``. The JSON object of :meth:`to_dict` and a pickle contain this text. The
    text has a version. Two references are equal if they name the same job and the same follow-up.

    Args:
        project_id: The job's project.
        id: The job's id. It can be any text, because the service does not document its format.
        created: When the job was created, or None if this is unknown. For 30 s after this time, a 404 is
            tolerated.
        sent: When the newest follow-up was sent. None without one, or if its result was read.
        was_final: True if a poll returned a final status before the follow-up was sent, or, without a
            follow-up, before this reference was made.
        end: The final status of all polls since the follow-up, or None.
        failing: The time since which all polls of waits failed, or None.

    Raises:
        ConfigurationError: *project_id* is not an identifier, or no path can contain *id*.
    """

    project_id: str = field(validator=check_field(check_segment))
    id: str = field(validator=check_field(check_text))
    created: Stamp | None = field(default=None, kw_only=True, eq=False)
    sent: Stamp | None = field(default=None, kw_only=True)
    was_final: bool = field(default=False, kw_only=True, eq=False)
    end: End | None = field(default=None, kw_only=True, eq=False)
    failing: Stamp | None = field(default=None, kw_only=True, eq=False)

    @property
    def awaiting_turn(self) -> bool:
        """Whether a follow-up was sent whose result was not read yet."""
        return self.sent is not None

    def __str__(self) -> str:
        """Return the text in one word, such as ``mintlify-job:3:docs:job_1:final:8f3a09bc``.

        It contains only letters, digits, ``.``, ``_``, ``-`` and ``:``. So a shell, a URL path, a cookie, a
        file name and a cell of a table do not change it.
        """
        details = ["final"] if self.was_final else []
        for name, stamp in (("created", self.created), ("sent", self.sent), ("failing", self.failing)):
            if stamp is not None:
                details.append(f"{name}_{_times_text(stamp)}".removesuffix("_"))
        if self.end is not None:
            details.append(f"end_{_times_text(self.end.since)}_{_escaped(self.end.status)}")
        text = ":".join([SCHEME, VERSION, _escaped(self.project_id), _escaped(self.id), *details])
        return f"{text}:{_checksum(text)}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).parse, (str(self),)

    @classmethod
    def parse(cls, text: str) -> JobRef:
        """Return the reference with the text *text*.

        Raises:
            ConfigurationError: *text* is not a reference, was cut or changed, or has another version.
        """
        if not is_reference(text):
            raise _broken(text, f"it does not begin with {SCHEME!r}")
        body, _, checksum = text.strip().rpartition(":")
        version, *parts = body.split(":")[1:] or [""]
        if version not in ("", *_READERS):
            raise _other_version(text, version, parts)
        if len(parts) < 2 or checksum != _checksum(body):
            raise _broken(text, "it was cut or changed on the way")
        try:
            project_id, job_id, details = _READERS[version](*parts)
        except (TypeError, ValueError):
            raise _broken(text, "it has another form") from None
        if not details.keys() <= {"final", "created", "sent", "failing", "end"}:
            raise _broken(text, f"its state {printable(':'.join(parts[2:]))!r} is not known to this version")
        times = {
            name: Stamp(_seconds(at), _seconds(date) if date else None)
            for name, (at, date, _) in details.items()
            if name != "final"
        }
        return cls(
            project_id,
            job_id,
            created=times.get("created"),
            sent=times.get("sent"),
            was_final="final" in details,
            end=End(details["end"][2], times["end"]) if "end" in details else None,
            failing=times.get("failing"),
        )

    def to_dict(self) -> dict[str, str]:
        """Return a JSON object with the project, the job's id, and the reference's text as ``ref``."""
        return {"project_id": self.project_id, "id": self.id, "ref": str(self)}

    @classmethod
    def from_dict(cls, stored: object) -> JobRef:
        """Return the reference from the result of :meth:`to_dict`.

        Raises:
            ConfigurationError: *stored* is not a result of ``to_dict``, or the reference in it is invalid.
        """
        fields = as_object(stored) or {}
        if "ref" not in fields and isinstance(fields.get("project_id"), str):
            raise _other_version(stored, "1", [fields["project_id"], fields.get("id")])
        return cls.parse(fields.get("ref", ""))

    @classmethod
    def _from_model(cls, content: object) -> JobRef:
        return cls.parse(content) if isinstance(content, str) else cls.from_dict(content)

    _to_model = to_dict

    @classmethod
    def _model_schema(cls) -> dict[str, Any]:
        text = {"type": "string"}
        schema = object_schema({"project_id": text, "id": text, "ref": text}, ["project_id", "id", "ref"])
        return {**schema, "description": "Names a job. The text in `ref` alone is read, too."}

    @classmethod
    def of(cls, target: object, project_id: str | None) -> JobRef:
        """Return *target* as a reference. It may be a reference, its text, or a job id in *project_id*.

        Raises:
            ConfigurationError: *target* is invalid, or is a job id without a project.
        """
        if isinstance(target, JobRef):
            return target
        if is_reference(target):
            return cls.parse(target)
        if not isinstance(target, str):
            kind = type(target).__name__
            hint = ": read a stored reference with JobRef.from_dict(…)" if kind == "dict" else ""
            words = f"ref must be a JobRef, its text, a JobHandle, a Job or a job's id; got {kind}{hint}"
            raise ConfigurationError(words, field="ref")
        job_id_in(target, "ref")
        if project_id is None:
            raise ConfigurationError(
                "this is only a job id; set project_id= on the session, or pass the full reference",
                field="project_id",
            )
        return cls(project_id, target)


def job_id_in(text: object, name: str) -> str:
    """Return the job's id in *text*, which is a reference's text or an id.

    Raises:
        ConfigurationError: *text* is neither, or is a reference of another version. The error has *name*.
    """
    if is_reference(text):
        return JobRef.parse(text).id
    job_id = check_segment(text, name, source="the job's id, or the text of job.ref")
    if job_id != job_id.strip():
        raise ConfigurationError(f"{name} begins or ends with white space; remove it", field=name)
    if job_id.startswith("{") and _has_a_name(job_id):
        words = f"pass the id in it, or JobRef.from_dict(json.loads({name}))"
        raise ConfigurationError(f"{name} is a JSON object, not a job's id; {words}", field=name)
    return job_id


def _has_a_name(text: str) -> bool:
    try:
        fields = as_object(json.loads(text)) or {}
    except (ValueError, RecursionError):
        return False  # the service does not document the format of an id
    return bool(fields.keys() & {"id", "ref"})


def _escaped(text: str) -> str:
    """Return *text* in letters, digits, ``_``, ``-`` and ``.``. A dot and two hex digits stand for a byte."""
    quoted = quote(text, safe="", errors="surrogatepass")
    return quoted.replace(".", "%2E").replace("~", "%7E").replace("%", ".")


def _unescaped(text: str) -> str:
    return _unquoted(text.replace(".", "%"))


def _unquoted(text: str) -> str:
    return unquote(text, errors="surrogatepass")


def _times_text(stamp: Stamp) -> str:
    times = (repr(stamp.at), "" if stamp.date is None else repr(stamp.date))
    return "_".join(times).replace("+", "")  # writes 1e+16 as 1e16


def _read_3(project_id: str, job_id: str, *details: str) -> tuple[str, str, dict[str, Detail]]:
    parts = [[*detail.split("_", 3), "", "", ""] for detail in details]
    read = {name: (at, date, _unescaped(status)) for name, at, date, status, *_ in parts}
    return _unescaped(project_id), _unescaped(job_id), read


def _read_2(project_id: str, job_id: str, state: str) -> tuple[str, str, dict[str, Detail]]:
    read: dict[str, Detail] = {}
    for detail in state.split(";") if state else ():
        name, _, value = detail.partition("=")
        times, _, status = value.partition("=")
        at, _, date = times.partition("/")
        read[name] = at, date, _unquoted(status)
    return _unquoted(project_id), _unquoted(job_id), read


_READERS: Final[Mapping[str, Callable[..., tuple[str, str, dict[str, Detail]]]]] = {
    "2": _read_2,
    VERSION: _read_3,
}


def is_reference(text: object) -> TypeGuard[str]:
    """Return whether *text* starts like the text of a reference."""
    return isinstance(text, str) and text.strip().startswith(f"{SCHEME}:")


def _checksum(text: str) -> str:
    # Detects a text that was cut. Without this check, it could lose the time of a follow-up.
    return f"{zlib.crc32(text.encode('ascii', 'replace')):08x}"


def _broken(reference: Any, problem: str) -> ConfigurationError:
    excerpt = printable(repr(reference), 80)
    return ConfigurationError(
        f"this is not a job reference: {problem}: {excerpt}. Take it from handle.ref", field="ref"
    )


def _other_version(reference: object, version: str, names: Sequence[object]) -> ConfigurationError:
    """Return the error for a reference of another version. *names* starts with the project and the job."""
    problem = f"it has version {printable(version)!r}; this package reads {' and '.join(_READERS)}"
    if version == "1" and len(names) > 1:
        job = ", ".join(printable(repr(_unquoted(str(name))), 80) for name in names[:2])
        problem = (
            "it has version '1', of package version 0.2. When no follow-up of the job is open, "
            f"use JobRef({job})"
        )
    return _broken(reference, problem)
