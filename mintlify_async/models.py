"""JSON objects of the interface come in; frozen values with the wire's words go out, and back.

Here are the values that are not the stream's: jobs, threads, context, filters,
and what is known of an answer besides its body. Words that the service owns
(a status, a model) stay open strings. What the service adds later is kept in
``extra``; a field that is optional and has an unforeseen type lands there, too,
so that it never makes a job unreadable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from sys import intern
from typing import Any, Final, Literal, TypeVar, cast

import attrs
from attrs import frozen

from .errors import ConfigurationError, UnexpectedResponseError, printable
from .wire import MASK, NO_EXTRA, Value, as_object, json_safe, mask_keys, open_twin, require_text

__all__ = [
    "TERMINAL_STATES",
    "ContextItem",
    "Headers",
    "Job",
    "JobStatus",
    "ResponseInfo",
    "SearchFilter",
    "Source",
    "Thread",
]

_HIDDEN_HEADERS: Final = frozenset({"x-thread-key", "set-cookie", "authorization", "proxy-authorization"})


SHARED: Final = 64
"""Texts up to this length are one object where they are equal: thousands of jobs have the same headers."""


def _shared(text: str) -> str:
    """Return one object for equal short texts."""
    return intern(text) if text.__class__ is str and len(text) <= SHARED else text


class Headers(Mapping[str, str]):
    """An answer's headers: read-only, asked in any case, secrets masked."""

    __slots__ = ("_values",)

    def __init__(self, headers: Mapping[str, str] | None = None, *, hidden: str = "") -> None:
        """Keep a copy with names in lower case; of a repeated one, the first.

        ``X-Thread-Key``, the header *hidden* and cookies are masked.
        """
        values: dict[str, str] = {}
        for name, content in headers.items() if headers is not None else ():
            name = intern(name.lower())
            if name in values:
                continue
            if name in _HIDDEN_HEADERS or name == hidden:
                values[name] = MASK
            else:
                values[name] = _shared(content)
        self._values = values

    def __getitem__(self, name: str) -> str:
        """Return the header *name*, in whatever case."""
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        """Yield the names, in lower case."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return how many headers there are."""
        return len(self._values)

    def __repr__(self) -> str:
        """Show them as a dict."""
        return f"Headers({self._values!r})"


def _as_headers(given: Mapping[str, str]) -> Headers:
    return given if isinstance(given, Headers) else Headers(given)


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ResponseInfo(Value):
    """What is known of an answer besides its body.

    Args:
        status: The HTTP status.
        headers: The headers, names in lower case; read-only.
        request_id: The service's name for the request, or None.
        attempts: How often the request was sent until this answer.
    """

    status: int
    headers: Headers = attrs.field(factory=Headers, converter=_as_headers)
    request_id: str | None = None
    attempts: int = 1

    def to_wire(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "status": self.status,
            "headers": dict(self.headers),
            "requestId": self.request_id,
            "attempts": self.attempts,
        }


_open_info: Final = open_twin(ResponseInfo)


def make_response_info(status: int, headers: Headers, request_id: str | None, attempts: int) -> ResponseInfo:
    """Make a :class:`ResponseInfo`: there is one a request."""
    info = _open_info()
    info.status = status
    info.headers = headers
    info.request_id = request_id
    info.attempts = attempts
    info.__class__ = ResponseInfo
    return info  # type: ignore[no-any-return]  # its class was set the line before


class JobStatus(StrEnum):
    """The statuses that the interface lists. A job may show others: the list is open."""

    ACTIVE = "active"
    COMPLETED = "completed"
    ARCHIVED = "archived"
    FAILED = "failed"


TERMINAL_STATES: Final = frozenset({"completed", "archived", "failed"})
"""The statuses that a job ends with."""


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class Source(Value):
    """Where a job reads and writes.

    Args:
        repository: The repository's identifier.
        ref: The reference within it, or None.
    """

    repository: str | None = None
    ref: str | None = None
    extra: Mapping[str, Any] = NO_EXTRA

    def to_wire(self) -> dict[str, Any]:
        """Return the wire's object."""
        return {"repository": self.repository, "ref": self.ref, **json_safe(self.extra)}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Source:
        """Read the wire's object; what does not fit lands in ``extra``."""
        source = _make_source({**wire})
        return source if cls is Source else _as_a(cls, source)


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class Job(Value):
    """One look at an agent job.

    Args:
        id: The job's identifier.
        status: One of :class:`JobStatus`, or a word that this version does not know.
        source: The repository it works on, or None.
        model: The model used, or None.
        pr_link: The pull request's address; None while active, and when no file changed.
        created_at: When it was created, or None.
        archived_at: When it was archived, or None.
        extra: Whatever else the service sent.
        raw: Status, headers and request id of the answer; not compared, not shown.
    """

    id: str
    status: str
    source: Source | None = None
    model: str | None = None
    pr_link: str | None = None
    created_at: datetime | None = None
    archived_at: datetime | None = None
    extra: Mapping[str, Any] = NO_EXTRA
    raw: ResponseInfo | None = attrs.field(default=None, metadata={"aside": True})
    _instants: Mapping[str, str] = attrs.field(default=NO_EXTRA, alias="instants", metadata={"aside": True})

    @property
    def done(self) -> bool:
        """Whether the status is one that a job ends with; an unknown one is not."""
        return self.status in TERMINAL_STATES

    def to_wire(self) -> dict[str, Any]:
        """Return the wire's object; instants in ISO 8601."""
        return {
            "id": self.id,
            "status": str(self.status),
            **({} if self.source is None else {"source": self.source.to_wire()}),
            **({} if self.model is None else {"model": self.model}),
            "prLink": self.pr_link,
            **({} if self.created_at is None else {"createdAt": self._instant("createdAt", self.created_at)}),
            "archivedAt": None if self.archived_at is None else self._instant("archivedAt", self.archived_at),
            **json_safe(self.extra),
        }

    def _instant(self, name: str, instant: datetime) -> str:
        """Return the text that the service sent for *instant*, or one that means the same."""
        sent = self._instants.get(name)
        return sent if sent is not None and _instant(sent) == instant else _instant_text(instant)

    @classmethod
    def from_wire(cls, wire: object, raw: ResponseInfo | None = None) -> Job:
        """Read the wire's object.

        Raises:
            UnexpectedResponseError: It is no object, or ``id`` or ``status`` is no text.
        """
        extra = as_object(wire) or {}
        id, status = extra.pop("id", None), extra.pop("status", None)
        if not id or not isinstance(id, str):
            raise _not_a_job("id", wire, raw)
        if not status or not isinstance(status, str):
            raise _not_a_job("status", wire, raw)
        sent: dict[str, str] = {}
        job = _open_job()
        job.id = id
        job.status = _shared(status)
        job.source = _take_source(extra)
        job.model = _take_text(extra, "model")
        job.pr_link = _take_text(extra, "prLink")
        job.created_at = _take_instant(extra, "createdAt", sent)
        job.archived_at = _take_instant(extra, "archivedAt", sent)
        job.extra = extra or NO_EXTRA
        job.raw = raw
        job._instants = sent or NO_EXTRA
        job.__class__ = Job
        return job if cls is Job else _as_a(cls, job)


ValueT = TypeVar("ValueT", bound=Value)


def _as_a(cls: type[ValueT], value: Value) -> ValueT:
    """Return a *cls*, somebody's subclass, with the fields of *value*."""
    fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(cast("Any", type(value)))
    return cls(**{str(field.alias): getattr(value, field.name) for field in fields})


_open_job: Final = open_twin(Job)
_open_source: Final = open_twin(Source)


def _make_source(wire: dict[str, Any]) -> Source:
    """Return the source in *wire*, which it may keep; what does not fit lands in ``extra``."""
    source = _open_source()
    source.repository = _take_text(wire, "repository")
    source.ref = _take_text(wire, "ref")
    source.extra = wire or NO_EXTRA
    source.__class__ = Source
    return source  # type: ignore[no-any-return]  # its class was set the line before


def _not_a_job(name: str, wire: object, raw: ResponseInfo | None) -> UnexpectedResponseError:
    excerpt = json.dumps(json_safe(mask_keys(wire)), default=str)[:2000]
    return UnexpectedResponseError(
        f"the service's answer is no job: {name!r} is missing or no text: {printable(excerpt)}",
        excerpt=excerpt,
        status=None if raw is None else raw.status,
        headers=None if raw is None else raw.headers,
        request_id=None if raw is None else raw.request_id,
    )


def _take_source(wire: dict[str, Any]) -> Source | None:
    """Take the source out of *wire*; null goes too; another type stays there."""
    content = wire.get("source")
    source = None if content is None else as_object(content)
    if content is None or source is not None:
        wire.pop("source", None)
    return None if source is None else _make_source(source)


def _take_text(wire: dict[str, Any], name: str) -> str | None:
    """Take the text *name* out of *wire*; null goes too; another type stays there."""
    content = wire.get(name)
    if content is None:
        wire.pop(name, None)
        return None
    if not isinstance(content, str):
        return None
    del wire[name]
    return _shared(content)


def _take_instant(wire: dict[str, Any], name: str, odd: dict[str, str]) -> datetime | None:
    """Take the instant *name* out of *wire*; what cannot be read stays there.

    A text that would not be written again as it came is put into *odd*, too.
    """
    content = wire.get(name)
    instant = None if content is None else _instant(content)
    if isinstance(content, str) and (instant is None or _is_odd(content, instant)):
        odd[name] = content
    if content is None or instant is not None:
        wire.pop(name, None)
    return instant


def _is_odd(content: str, instant: datetime) -> bool:
    """Return whether *content*, read as *instant*, would be written otherwise."""
    if len(content) == 24 and content[4:20:3] == "--T::." and content[23] == "Z":
        return False  # "2026-01-02T03:04:05.678Z", as JavaScript writes it
    return _instant_text(instant) != content


def _instant(content: object) -> datetime | None:
    """Read ISO 8601; without a zone it is UTC."""
    try:
        instant = datetime.fromisoformat(cast("str", content))
    except (TypeError, ValueError):
        return None
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)


def _instant_text(instant: datetime) -> str:
    """Write an instant as JavaScript does, as far as that loses nothing."""
    precise = "milliseconds" if instant.microsecond % 1000 == 0 else "microseconds"
    return instant.isoformat(timespec=precise).replace("+00:00", "Z")


def _optional_text(content: object, field: str) -> str | None:
    return None if content is None else require_text(content, field, empty=True)


class Thread:
    """Names a conversation at the service: its id, and the key that opens it.

    The key is a secret that the service tells once, with the first answer; a later
    message that names the thread without it is refused with 404. Keep both: a thread
    turns into plain JSON with :meth:`to_json` and back. The key does not show in the
    repr, and **pickling drops it on purpose**, since pickles end in logs and queues;
    copying keeps it.

    Args:
        id: The thread's id.
        key: The thread's key, or None.

    Raises:
        ConfigurationError: The id is empty, or one of them is no text.
    """

    __slots__ = ("_id", "_key")

    def __init__(self, id: str, key: str | None = None) -> None:
        """Keep both; see the class."""
        self._id = require_text(id, "thread.id")
        self._key = _optional_text(key, "thread.key") or None

    @property
    def id(self) -> str:
        """The thread's id."""
        return self._id

    @property
    def key(self) -> str | None:
        """The thread's key, a secret, or None."""
        return self._key

    def __eq__(self, other: object) -> bool:
        """Compare ids and keys."""
        if not isinstance(other, Thread):
            return NotImplemented
        return (self._id, self._key) == (other._id, other._key)

    def __hash__(self) -> int:
        """Hash the id; the key goes nowhere."""
        return hash((Thread, self._id))

    def __repr__(self) -> str:
        """Show the id, and whether there is a key."""
        return f"Thread(id={self._id!r}, key={MASK!r})" if self._key else f"Thread(id={self._id!r})"

    def __reduce__(self) -> tuple[type[Thread], tuple[str]]:
        """Pickle without the key."""
        return Thread, (self._id,)

    def __copy__(self) -> Thread:
        """Return itself: it never changes."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Thread:
        """Return itself: it never changes."""
        return self

    def to_dict(self) -> dict[str, str]:
        """Return ``threadId`` and, where there is one, ``threadKey``: the secret in clear, to be stored."""
        return {"threadId": self._id} if self._key is None else {"threadId": self._id, "threadKey": self._key}

    to_wire = to_dict

    @classmethod
    def from_dict(cls, stored: object) -> Thread:
        """Read what :meth:`to_dict` gave.

        Raises:
            ConfigurationError: It is no object with a ``threadId``.
        """
        found = as_object(stored)
        if found is None:
            raise ConfigurationError("a stored thread must be an object with threadId", field="thread")
        return cls(found.get("threadId", ""), found.get("threadKey"))

    from_wire = from_dict

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON text: the secret in clear, to be stored."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, stored: str) -> Thread:
        """Read what :meth:`to_json` gave.

        Raises:
            ConfigurationError: It is no JSON object with a ``threadId``.
        """
        try:
            found: object = json.loads(stored)
        except (TypeError, ValueError, RecursionError):
            found = None
        return cls.from_dict(found)


_CONTEXT_TYPES: Final = ("code", "textSelection")


@attrs.frozen(eq=False, repr=False)
class ContextItem(Value):
    """Something the user looks at, for the assistant to consider.

    Args:
        type: ``"code"`` or ``"textSelection"``.
        value: The snippet, or the selected text.
        path: The source file or the page, or None.
        element_id: The element of the user interface that holds it, or None.

    Raises:
        ConfigurationError: Another type, or a field that is no text.
    """

    type: Literal["code", "textSelection"]
    value: str
    path: str | None = attrs.field(default=None, kw_only=True)
    element_id: str | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Check the fields."""
        if self.type not in _CONTEXT_TYPES:
            raise ConfigurationError(
                f"context.type must be 'code' or 'textSelection', not {self.type!r}", field="context.type"
            )
        require_text(self.value, "context.value")
        _optional_text(self.path, "context.path")
        _optional_text(self.element_id, "context.elementId")

    def to_wire(self) -> dict[str, Any]:
        """Return the wire's object, without what is None."""
        wire = {"type": self.type, "value": self.value, "path": self.path, "elementId": self.element_id}
        return {name: content for name, content in wire.items() if content is not None}

    @classmethod
    def from_wire(cls, wire: object) -> ContextItem:
        """Read the wire's object.

        Raises:
            ConfigurationError: It is no such object.
        """
        found = as_object(wire)
        if found is None:
            raise ConfigurationError("a context item must be an object with type and value", field="context")
        return cls(
            found.get("type", ""),
            found.get("value", ""),
            path=found.get("path"),
            element_id=found.get("elementId"),
        )


def _groups(given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise ConfigurationError("filter.groups must be a list of strings", field="filter.groups")
    groups = tuple(given)
    for i, group in enumerate(groups):
        require_text(group, f"filter.groups[{i}]")
    return groups


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class SearchFilter(Value):
    """Narrows the search behind an answer.

    Args:
        version: The documentation's version, or None.
        language: The language, or None.
        groups: User groups whose pages may be used; empty means no such bound.

    Raises:
        ConfigurationError: A field has another type.
    """

    version: str | None = None
    language: str | None = None
    groups: tuple[str, ...] = attrs.field(default=(), converter=_groups)

    def __attrs_post_init__(self) -> None:
        """Check the texts."""
        _optional_text(self.version, "filter.version")
        _optional_text(self.language, "filter.language")

    def to_wire(self) -> dict[str, Any]:
        """Return the wire's object, without what is not set."""
        wire: dict[str, Any] = {
            "version": self.version,
            "language": self.language,
            "groups": list(self.groups),
        }
        return {name: content for name, content in wire.items() if content}

    @classmethod
    def from_wire(cls, wire: object) -> SearchFilter:
        """Read the wire's object.

        Raises:
            ConfigurationError: It is no such object, or has a field of another name.
        """
        found = as_object(wire)
        if found is None:
            raise ConfigurationError(
                "filter must be an object with version, language or groups", field="filter"
            )
        unknown = sorted(set(found) - {"version", "language", "groups"})
        if unknown:
            raise ConfigurationError(f"filter has no field {unknown[0]!r}", field=f"filter.{unknown[0]}")
        return cls(
            version=found.get("version"), language=found.get("language"), groups=found.get("groups") or ()
        )
