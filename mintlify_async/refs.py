"""What names a job comes in; a text, a JSON object or a pickle for another process goes out, and back."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from attrs import field, frozen

from .argument_checks import path_segment
from .errors import ConfigurationError, printable

__all__ = ["JobRef"]

SCHEME: Final = "mintlify-job"
"""How the text of a reference begins."""

VERSION: Final = 1
"""The version of the text and of the object. A reader refuses what it does not know."""

_UNARMED, _ARMED = "plain", "turn"


def _is_segment(instance: object, attribute: Any, value: Any) -> None:
    path_segment(value, attribute.name)


@frozen
class JobRef:
    """Names a job, to go on with elsewhere: ``session.job(ref)``. Holds no secret.

    A reference that was taken from a turn is *armed*: whoever waits with it
    guards against the answer of the turn before, too.

    ``str(ref)`` and :meth:`parse` are each other's inverse; so are :meth:`to_json`
    and :meth:`from_json`, and pickling works. All of them carry a version.

    Args:
        project_id: The job's project.
        id: The job's identifier.
        armed: Whether a follow-up was sent whose own result has not been seen yet.
        baseline: The job's status before that follow-up; None when it was not seen.

    Raises:
        ConfigurationError: A field is empty, no string, or no identifier.
    """

    project_id: str = field(validator=_is_segment)
    id: str = field(validator=_is_segment)
    armed: bool = field(default=False, kw_only=True)
    baseline: str | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Check what is left to check."""
        if not isinstance(self.armed, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - it may come from JSON
            raise ConfigurationError("armed must be true or false", field="armed")
        if self.baseline is not None:
            if not self.armed:
                raise ConfigurationError("a reference that is not armed has no baseline", field="baseline")
            path_segment(self.baseline, "baseline")

    def __str__(self) -> str:
        """Return one word of printable ASCII, such as ``mintlify-job:1:docs:job_1:plain:8f3a09bc``."""
        state = _UNARMED if not self.armed else _ARMED
        if self.baseline is not None:
            state = f"{_ARMED}={quote(self.baseline, safe='')}"
        text = f"{SCHEME}:{VERSION}:{quote(self.project_id, safe='')}:{quote(self.id, safe='')}:{state}"
        return f"{text}:{_checksum(text)}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text, which has a version and is checked when it is read."""
        return type(self).parse, (str(self),)

    @classmethod
    def parse(cls, text: str) -> JobRef:
        """Read what ``str(ref)`` gave.

        Raises:
            ConfigurationError: It is another text, was cut or changed, or comes from a newer version.
        """
        if not is_reference(text):
            raise _broken(text, f"it does not begin with {SCHEME!r}")
        body, _, checksum = text.strip().rpartition(":")
        fields = body.split(":")
        if len(fields) > 1 and fields[1] != str(VERSION):
            raise _broken(text, f"it has version {fields[1]!r}; this package reads version {VERSION}")
        if len(fields) != 5 or checksum != _checksum(body):
            raise _broken(text, "it was cut or changed on the way")
        state, _, baseline = fields[4].partition("=")
        return cls(
            unquote(fields[2]),
            unquote(fields[3]),
            armed=state == _ARMED,
            baseline=unquote(baseline) or None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "version": VERSION,
            "project_id": self.project_id,
            "id": self.id,
            "armed": self.armed,
            "baseline": self.baseline,
        }

    @classmethod
    def from_dict(cls, stored: object) -> JobRef:
        """Read what :meth:`to_dict` gave.

        Raises:
            ConfigurationError: It is another object, or comes from a newer version.
        """
        if not isinstance(stored, Mapping):
            raise _broken(stored, "it is no object")
        found = cast("Mapping[str, Any]", stored)
        if found.get("version") != VERSION:
            raise _broken(
                found, f"it has version {found.get('version')!r}; this package reads version {VERSION}"
            )
        return cls(
            found.get("project_id", ""),
            found.get("id", ""),
            armed=found.get("armed", False),
            baseline=found.get("baseline"),
        )

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, stored: str) -> JobRef:
        """Read what :meth:`to_json` gave.

        Raises:
            ConfigurationError: It is other text.
        """
        try:
            found: object = json.loads(stored)
        except (TypeError, ValueError, RecursionError):
            found = None
        return cls.from_dict(found)

    @classmethod
    def of(cls, named: JobRef | str, project_id: str | None) -> JobRef:
        """Return the reference that *named* is, spells, or means as a bare id in *project_id*.

        Raises:
            ConfigurationError: It is neither, or a bare id without a project.
        """
        if isinstance(named, JobRef):
            return named
        if is_reference(named):
            return cls.parse(named)
        _check_bare_id(named)
        if project_id is None:
            raise ConfigurationError(
                "a bare job id needs a project: give the session project_id=, or pass a JobRef",
                field="project_id",
            )
        return cls(project_id, named)


def is_reference(text: object) -> bool:
    """Return whether *text* means to be the text of a reference."""
    return isinstance(text, str) and text.strip().startswith(f"{SCHEME}:")


def _check_bare_id(text: object) -> None:
    """Refuse what is plainly no job's id, before it becomes a 404."""
    path_segment(text, "job")
    assert isinstance(text, str)
    if "://" in text or text.lstrip()[:1] in "{[" or any(character.isspace() for character in text):
        raise _broken(text, "it is neither a reference nor a job's id")


def _checksum(text: str) -> str:
    """Return eight digits that tell a cut reference from a whole one; a cut one could lose its guard."""
    return f"{zlib.crc32(text.encode('ascii', 'replace')):08x}"


def _broken(given: Any, why: str) -> ConfigurationError:
    shown = printable(repr(given), 80)
    return ConfigurationError(
        f"this is not a job's reference: {why}: {shown}. Take it from handle.ref", field="ref"
    )
