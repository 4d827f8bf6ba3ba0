"""Job references: what another process needs to go on with a job, as text, JSON or a pickle."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from attrs import asdict, field, frozen

from ..errors import ConfigurationError, printable
from ..protocol.argument_checks import path_segment

__all__ = ["JobRef"]

SCHEME: Final = "mintlify-job"
"""The beginning of a reference's text."""

VERSION: Final = 1
"""The version of the text and of the JSON object. Other versions are refused."""

_PLAIN, _TURN = "plain", "turn"


def _is_segment(instance: object, attribute: Any, value: Any) -> None:
    path_segment(value, attribute.name)


@frozen
class JobRef:
    """Names a job, so that it can be continued elsewhere: ``session.job(ref)``. Contains no secret.

    A reference taken from a turn says that this turn's result is awaited: waiting with
    it does not return the result of the turn before.

    :meth:`parse` reads ``str(ref)``, and :meth:`from_json` reads :meth:`to_json`; a
    reference can also be pickled. All three forms have a version.

    Args:
        project_id: The job's project.
        id: The job's identifier.
        awaiting_turn: Whether a follow-up was sent whose own result was not seen yet.
        baseline: The job's status before that follow-up; None when it was not seen.

    Raises:
        ConfigurationError: A field is empty, not a string, or not an identifier.
    """

    project_id: str = field(validator=_is_segment)
    id: str = field(validator=_is_segment)
    awaiting_turn: bool = field(default=False, kw_only=True)
    baseline: str | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Check the guard's fields."""
        if not isinstance(self.awaiting_turn, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - it may come from JSON
            raise ConfigurationError("awaiting_turn must be true or false", field="awaiting_turn")
        if self.baseline is not None:
            if not self.awaiting_turn:
                raise ConfigurationError("baseline needs awaiting_turn=True", field="baseline")
            path_segment(self.baseline, "baseline")

    def __str__(self) -> str:
        """Return one word of printable ASCII, such as ``mintlify-job:1:docs:job_1:plain:8f3a09bc``."""
        state = _PLAIN if not self.awaiting_turn else _TURN
        if self.baseline is not None:
            state = f"{_TURN}={quote(self.baseline, safe='')}"
        text = f"{SCHEME}:{VERSION}:{quote(self.project_id, safe='')}:{quote(self.id, safe='')}:{state}"
        return f"{text}:{_checksum(text)}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text, which has a version and a checksum."""
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
        fields = body.split(":")
        if len(fields) > 1 and fields[1] != str(VERSION):
            raise _other_version(text, fields[1])
        if len(fields) != 5 or checksum != _checksum(body):
            raise _broken(text, "it was cut or changed on the way")
        state, _, baseline = fields[4].partition("=")
        project_id, job_id = unquote(fields[2]), unquote(fields[3])
        return cls(project_id, job_id, awaiting_turn=state == _TURN, baseline=unquote(baseline) or None)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, stored: object) -> JobRef:
        """Return the reference that :meth:`to_dict` has written.

        Raises:
            ConfigurationError: *stored* is not a reference's object, or has another version.
        """
        if not isinstance(stored, Mapping):
            raise _broken(stored, "it is not a JSON object")
        found = cast("Mapping[str, Any]", stored)
        if found.get("version") != VERSION:
            raise _other_version(found, found.get("version"))
        return cls(
            found.get("project_id", ""),
            found.get("id", ""),
            awaiting_turn=found.get("awaiting_turn", False),
            baseline=found.get("baseline"),
        )

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, stored: str) -> JobRef:
        """Return the reference that :meth:`to_json` has written.

        Raises:
            ConfigurationError: *stored* is not such a text.
        """
        try:
            found: object = json.loads(stored)
        except (TypeError, ValueError, RecursionError):
            found = None
        return cls.from_dict(found)

    @classmethod
    def of(cls, named: object, project_id: str | None) -> JobRef:
        """Return *named* as a reference: itself, its text, or a bare job id in *project_id*.

        Raises:
            ConfigurationError: *named* is invalid, or a bare id without a project.
        """
        if isinstance(named, JobRef):
            return named
        if isinstance(named, str) and is_reference(named):
            return cls.parse(named)
        id = _check_bare_id(named)
        if project_id is None:
            raise ConfigurationError(
                "a bare job id needs a project: give the session project_id=, or pass a JobRef",
                field="project_id",
            )
        return cls(project_id, id)


def is_reference(text: object) -> bool:
    """Return whether *text* begins like the text of a reference."""
    return isinstance(text, str) and text.strip().startswith(f"{SCHEME}:")


def _check_bare_id(text: object) -> str:
    """Return *text* unless it cannot be a job's id; the service would answer 404."""
    path_segment(text, "job")
    assert isinstance(text, str)
    if "://" in text or text.lstrip()[:1] in "{[" or any(character.isspace() for character in text):
        raise _broken(text, "it is neither a reference nor a job id")
    return text


def _checksum(text: str) -> str:
    # Detects a text that was cut: it could lose the part that says that a turn is awaited.
    return f"{zlib.crc32(text.encode('ascii', 'replace')):08x}"


def _other_version(given: Any, version: object) -> ConfigurationError:
    return _broken(given, f"it has version {version!r}; this package reads version {VERSION}")


def _broken(given: Any, why: str) -> ConfigurationError:
    shown = printable(repr(given), 80)
    return ConfigurationError(
        f"this is not a job reference: {why}: {shown}. Take it from handle.ref", field="ref"
    )
