"""Job references: what another process needs to go on with a job, as text, JSON or a pickle."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from attrs import asdict, field, fields, frozen

from ..errors import ConfigurationError, printable
from .json_text import require_text

SCHEME: Final = "mintlify-job"
"""The beginning of a reference's text."""

VERSION: Final = 1
"""The version of the text and of the JSON object. Other versions are refused."""

_PLAIN, _TURN = "plain", "turn"


PLAIN_SEGMENT = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*")  # nothing to encode, and no "." or ".."


def path_segment(value: object, name: str) -> str:
    """Return *value*, which a person has copied, percent-encoded as one segment of a path.

    Raises:
        ConfigurationError: As :func:`job_segment`; or it is blank, or has a control character.
    """
    if isinstance(value, str) and not PLAIN_SEGMENT.fullmatch(value):
        if not value.strip():
            raise ConfigurationError(f"{name} is empty; give the identifier from the dashboard", field=name)
        if any(ord(character) < 32 or ord(character) == 127 for character in value):
            raise ConfigurationError(f"{name} has a control character; remove it", field=name)
    return job_segment(value, name)


def job_segment(value: object, name: str = "job_id") -> str:
    """Return *value* percent-encoded as one segment of a path; the interface does not limit a job's id.

    Raises:
        ConfigurationError: It is not a string, or no path can name it: it is empty, ``.`` or ``..``.
    """
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be a string; got {type(value).__name__}", field=name)
    if PLAIN_SEGMENT.fullmatch(value):
        return value
    if value in ("", ".", ".."):
        raise ConfigurationError(f"{name} must not be {value!r}: it would name another path", field=name)
    try:
        return quote(value, safe="")
    except UnicodeEncodeError:
        raise ConfigurationError(f"{name} has half of a surrogate pair; remove it", field=name) from None


def _is_segment(instance: object, attribute: Any, value: Any) -> None:
    path_segment(value, attribute.name)


def _is_text(instance: object, attribute: Any, value: Any) -> None:
    require_text(value, attribute.name)


def _is_time(instance: object, attribute: Any, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if value is not None and not number:
        raise ConfigurationError(
            f"{attribute.name} must be in seconds since the epoch, or None", field=attribute.name
        )


def _is_bool(instance: object, attribute: Any, value: Any) -> None:
    if not isinstance(value, bool):  # it may come from JSON
        raise ConfigurationError(f"{attribute.name} must be true or false", field=attribute.name)


def _none_if_empty(text: str | None) -> str | None:
    return None if text == "" else text


@frozen
class JobRef:
    """Names a job, so that it can be continued elsewhere: ``session.job(ref)``. Contains no secret.

    A reference taken from a turn says that this turn's result is awaited: waiting with
    it does not return the result of the turn before.

    :meth:`parse` reads ``str(ref)``, and :meth:`from_json` reads :meth:`to_json`; a
    reference can also be pickled. All three forms have a version. Two references are
    equal when they name the same job and await the same turn; the times are not compared.

    Args:
        project_id: The job's project.
        id: The job's identifier, any text: the interface does not show its format.
        awaiting_turn: Whether a follow-up was sent whose own result was not seen yet.
        baseline: The job's status before that follow-up; None when it was not seen.
        baseline_pr_link: The pull request's address before that follow-up, or None.
        turn_seen: Whether evidence of the follow-up's turn was seen, such as ``active``.
        sent_at: When the follow-up was sent, in seconds since the epoch, or None.
        created_at: When the job was created, if it was created by the process that made this
            reference, likewise. A 404 is tolerated for a while after it.

    Raises:
        ConfigurationError: A field is empty or of another type, or *project_id* is not an identifier.
    """

    project_id: str = field(validator=_is_segment)
    id: str = field(validator=_is_text)
    awaiting_turn: bool = field(default=False, kw_only=True, validator=_is_bool)
    baseline: str | None = field(default=None, kw_only=True, converter=_none_if_empty)
    baseline_pr_link: str | None = field(default=None, kw_only=True, converter=_none_if_empty)
    turn_seen: bool = field(default=False, kw_only=True, eq=False, validator=_is_bool)
    sent_at: float | None = field(default=None, kw_only=True, eq=False, validator=_is_time)
    created_at: float | None = field(default=None, kw_only=True, eq=False, validator=_is_time)

    def __attrs_post_init__(self) -> None:
        for name in ("baseline", "baseline_pr_link"):
            value = getattr(self, name)
            if value is not None:
                if not self.awaiting_turn:
                    raise ConfigurationError(f"{name} needs awaiting_turn=True", field=name)
                require_text(value, name)

    def __str__(self) -> str:
        """Return one word of printable ASCII, such as ``mintlify-job:1:docs:job_1:plain:8f3a09bc``."""
        state = [_PLAIN]
        if self.awaiting_turn:
            state = [_TURN if self.baseline is None else f"{_TURN}={_quoted(self.baseline)}"]
        if self.baseline_pr_link is not None:
            state.append(f"link={_quoted(self.baseline_pr_link)}")
        if self.turn_seen:
            state.append("seen=1")
        if self.sent_at is not None:
            state.append(f"sent={self.sent_at!r}")
        if self.created_at is not None:
            state.append(f"created={self.created_at!r}")
        if len(state) > 1 and state[0] == _TURN:
            state[0] = f"{_TURN}="  # version 0.1 then reads a turn whose baseline it does not know
        names = f"{_quoted(self.project_id)}:{_quoted(self.id)}"
        text = f"{SCHEME}:{VERSION}:{names}:{';'.join(state)}"
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
            raise _other_version(text, parts[1])
        if len(parts) != 5 or checksum != _checksum(body):
            raise _broken(text, "it was cut or changed on the way")
        try:
            state = _read_state(parts[4])
        except ValueError:
            raise _broken(text, "a time in it is not a number") from None
        if state is None:
            raise _broken(text, f"its state {printable(parts[4])!r} is not known to this version")
        return cls(_unquoted(parts[2]), _unquoted(parts[3]), **state)

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
        given = {name: found[name] for name in _OPTIONAL if name in found}
        return cls(found.get("project_id", ""), found.get("id", ""), **given)

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


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def _unquoted(text: str) -> str:
    return unquote(text, errors="surrogatepass")


def _read_state(text: str) -> dict[str, Any] | None:
    """Return the fields of a reference that *text*, its state, gives; None if it is not known."""
    word, *details = text.split(";")
    state, _, baseline = word.partition("=")
    known: dict[str, str] = {}
    for detail in details:
        name, _, known[name] = detail.partition("=")
    if state not in (_PLAIN, _TURN) or not known.keys() <= {"link", "seen", "sent", "created"}:
        return None
    return {
        "awaiting_turn": state == _TURN,
        "baseline": _unquoted(baseline),
        "baseline_pr_link": _unquoted(known.get("link", "")),
        "turn_seen": "seen" in known,
        "sent_at": float(known["sent"]) if "sent" in known else None,
        "created_at": float(known["created"]) if "created" in known else None,
    }


_OPTIONAL = [attribute.name for attribute in fields(JobRef) if attribute.kw_only]


def is_reference(text: object) -> bool:
    """Return whether *text* begins like the text of a reference."""
    return isinstance(text, str) and text.strip().startswith(f"{SCHEME}:")


def _check_bare_id(text: object) -> str:
    """Return *text* unless it cannot be a job's id; the service would answer 404."""
    if not isinstance(text, str):
        kind = type(text).__name__
        hint = ": read a stored reference with JobRef.from_dict(…)" if kind == "dict" else ""
        raise ConfigurationError(
            f"ref must be a JobRef, its text, a JobHandle, a Job or a job's id; got {kind}{hint}", field="ref"
        )
    path_segment(text, "ref")
    if text.startswith("{"):
        raise _broken(text, "it may be one as JSON, which JobRef.from_json(…) reads")
    if "://" in text or text[0] in "[\"'" or any(character.isspace() for character in text):
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
