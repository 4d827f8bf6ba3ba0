"""JSON objects of the interface come in; frozen values with the wire's words go out, and back.

Here are the values that are not the stream's: jobs, threads, context, filters,
and what is known of an answer besides its body. Words that the service owns
(a status, a model) stay open strings. What the service adds later is kept in
``extra``; a field that is optional and has an unforeseen type lands there, too,
so that it never makes a job unreadable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum, StrEnum
from math import isfinite
from typing import Any, Final, Literal, TypeVar, cast, dataclass_transform

import attrs

from .errors import ConfigurationError, UnexpectedResponseError, printable

__all__ = [
    "MASK",
    "MISSING",
    "NO_EXTRA",
    "ContextItem",
    "Headers",
    "Job",
    "JobStatus",
    "Missing",
    "ResponseInfo",
    "SearchFilter",
    "Source",
    "Thread",
    "Value",
    "as_object",
    "drop_keys",
    "json_safe",
    "mask_keys",
    "mask_text",
    "require_text",
    "value",
]

MASK: Final = "***"
"""Stands where a thread's key stood."""

THREAD_KEY: Final = "threadKey"
"""The wire's name of the thread's secret."""

MAX_DEPTH: Final = 200
"""Deepest nesting of JSON that is accepted. Real answers stay under 20; what is deeper than the
interpreter's stack allows could be parsed but not printed, copied or sent again."""


class Missing(Enum):
    """The type of :data:`MISSING`."""

    MISSING = "missing"

    def __bool__(self) -> Literal[False]:
        """Be false, as None is."""
        return False

    def __repr__(self) -> str:
        """Show as ``MISSING``."""
        return "MISSING"


MISSING: Final = Missing.MISSING
"""Stands for a field that was not sent, where ``None`` means that ``null`` was."""

NO_EXTRA: Final[Mapping[str, Any]] = {}
"""The ``extra`` of a value that has none. Shared: never write to it."""

_C = TypeVar("_C", bound=type)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(attrs.field,))
def value(cls: _C) -> _C:
    """Make *cls* a frozen attrs class with slots and keyword arguments.

    Comparison and repr come from :class:`Value` in place of generated ones: some fifty
    classes are made when the package is imported, each 0.15 ms in place of 0.37.
    """
    return attrs.frozen(kw_only=True, eq=False, repr=False, match_args=False)(cls)


class Value:
    """What the package's values share: equality by fields, a repr without secrets."""

    __slots__ = ()

    def _fields(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and the content of each field that counts for equality."""
        for name in _names(type(self)):
            yield name, getattr(self, name)

    def __eq__(self, other: object) -> bool:
        """Compare field by field with another value of the same class."""
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(other, name) == content for name, content in self._fields())

    def __hash__(self) -> int:
        """Hash what can be hashed; values with dicts or lists in them cannot."""
        return hash((type(self), *(content for _, content in self._fields())))

    def __repr__(self) -> str:
        """Show the fields that differ from nothing."""
        shown = (f"{name}={content!r}" for name, content in self._fields() if not _is_nothing(content))
        return f"{type(self).__name__}({', '.join(shown)})"


def _is_nothing(content: object) -> bool:
    return content is None or content is MISSING or content is NO_EXTRA


_NAMES: dict[type, tuple[str, ...]] = {}


def _names(cls: type) -> tuple[str, ...]:
    """Return the names of the fields of *cls* that count, looked up once a class."""
    known = _NAMES.get(cls)
    if known is None:
        fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(cls)
        known = _NAMES[cls] = tuple(field.name for field in fields if not field.metadata.get("aside"))
    return known


def as_object(content: object) -> dict[str, Any] | None:
    """Return a copy of *content* when it is a JSON object, else None."""
    return dict(cast("Mapping[str, Any]", content)) if isinstance(content, Mapping) else None


def json_safe(content: Any) -> Any:
    """Return a copy of *content* that is valid JSON: infinity and NaN become None.

    >>> json_safe({"a": [1, float("inf")]})
    {'a': [1, None]}
    """
    if isinstance(content, float):
        return content if isfinite(content) else None
    if isinstance(content, Mapping):
        return {str(k): json_safe(v) for k, v in cast("Mapping[object, Any]", content).items()}
    if isinstance(content, list | tuple):
        return [json_safe(item) for item in cast("list[Any]", content)]
    return content


def mask_keys(content: Any) -> Any:
    """Return *content* with every thread key in it masked; the same object when there is none.

    >>> mask_keys({"threadKey": "secret", "n": 1})
    {'threadKey': '***', 'n': 1}
    """
    return _without_keys(content, lambda kept: {**kept, THREAD_KEY: MASK})


def drop_keys(content: Any) -> Any:
    """Return *content* without the thread keys in it; the same object when there is none."""
    return _without_keys(content, lambda kept: {k: v for k, v in kept.items() if k != THREAD_KEY})


def _without_keys(content: Any, treat: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if isinstance(content, dict):
        inside = cast("dict[str, Any]", content)
        new = {k: _without_keys(v, treat) for k, v in inside.items()}
        if THREAD_KEY in new and new[THREAD_KEY] is not None:
            return treat(new)
        return new if any(new[k] is not v for k, v in inside.items()) else inside
    if isinstance(content, list):
        items = cast("Sequence[Any]", content)
        treated = [_without_keys(item, treat) for item in items]
        return treated if any(a is not b for a, b in zip(treated, items, strict=True)) else items
    return content


_KEY_IN_TEXT: Final = re.compile(r"""(threadKey(?:\\*["'])?\s*[:=]\s*(?:\\*["'])?)[^"'\\\s,}&]+""")


def mask_text(text: str, key: str | None = None) -> str:
    """Return *text*, JSON or not and perhaps cut, with thread keys masked; *key* is one that is known.

    >>> mask_text('{"threadKey":"secr')
    '{"threadKey":"***'
    """
    if key:
        text = text.replace(key, MASK)
    return _KEY_IN_TEXT.sub(rf"\g<1>{MASK}", text)


_HIDDEN_HEADERS: Final = frozenset({"x-thread-key", "set-cookie", "authorization", "proxy-authorization"})


class Headers(Mapping[str, str]):
    """An answer's headers: read-only, asked in any case, secrets masked."""

    __slots__ = ("_values",)

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        """Keep a copy with names in lower case; ``X-Thread-Key`` and cookies are masked."""
        self._values = {
            name.lower(): MASK if name.lower() in _HIDDEN_HEADERS else content
            for name, content in (headers or {}).items()
        }

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


@value
class ResponseInfo(Value):
    """What is known of an answer besides its body.

    Args:
        status: The HTTP status.
        headers: The headers, names in lower case; read-only.
        request_id: The service's name for the request, or None.
        attempts: How often the request was sent until this answer.
    """

    status: int
    headers: Headers = attrs.field(factory=Headers, converter=Headers)
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


class JobStatus(StrEnum):
    """The statuses that the interface lists. A job may show others: the list is open."""

    ACTIVE = "active"
    COMPLETED = "completed"
    ARCHIVED = "archived"
    FAILED = "failed"


_DONE: Final = frozenset({"completed", "archived", "failed"})


@value
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
        extra = dict(wire)
        return cls(
            repository=_take_text(extra, "repository"), ref=_take_text(extra, "ref"), extra=extra or NO_EXTRA
        )


@value
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
        return self.status in _DONE

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
        for name in ("id", "status"):
            if not isinstance(extra.get(name), str) or not extra[name]:
                raise _not_a_job(name, wire, raw)
        source = extra.get("source")
        sent = {name: extra[name] for name in ("createdAt", "archivedAt") if isinstance(extra.get(name), str)}
        return cls(
            id=extra.pop("id"),
            status=extra.pop("status"),
            source=Source.from_wire(extra.pop("source")) if isinstance(source, Mapping) else None,
            model=_take_text(extra, "model"),
            pr_link=_take_text(extra, "prLink"),
            created_at=_take_instant(extra, "createdAt"),
            archived_at=_take_instant(extra, "archivedAt"),
            extra={k: v for k, v in extra.items() if v is not None or k != "source"} or NO_EXTRA,
            raw=raw,
            instants=sent or NO_EXTRA,
        )


def _not_a_job(name: str, wire: object, raw: ResponseInfo | None) -> UnexpectedResponseError:
    excerpt = json.dumps(json_safe(mask_keys(wire)), default=str)[:2000]
    return UnexpectedResponseError(
        f"the service's answer is no job: {name!r} is missing or no text: {printable(excerpt)}",
        excerpt=excerpt,
        status=None if raw is None else raw.status,
        headers=None if raw is None else raw.headers,
        request_id=None if raw is None else raw.request_id,
    )


def _take_text(wire: dict[str, Any], name: str) -> str | None:
    """Take the text *name* out of *wire*; null goes too; another type stays there."""
    content = wire.get(name)
    if content is None or isinstance(content, str):
        wire.pop(name, None)
        return content
    return None


def _take_instant(wire: dict[str, Any], name: str) -> datetime | None:
    """Take the instant *name* out of *wire*; what cannot be read stays there."""
    instant = _instant(wire.get(name))
    if instant is not None or wire.get(name) is None:
        wire.pop(name, None)
    return instant


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


def require_text(content: object, field: str, *, empty: bool = False) -> str:
    """Return *content* when it is text.

    Raises:
        ConfigurationError: It is not, or it is empty and may not be.
    """
    if not isinstance(content, str):
        raise ConfigurationError(f"{field} must be a string, not {type(content).__name__}", field=field)
    if not content and not empty:
        raise ConfigurationError(f"{field} must not be empty", field=field)
    return content


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
        return {"threadId": self._id} if self._key is None else {"threadId": self._id, THREAD_KEY: self._key}

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
        return cls(found.get("threadId", ""), found.get(THREAD_KEY))

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


@value
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
    groups: tuple[str, ...] = attrs.field(default=(), converter=lambda given: _groups(given))

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


def _groups(given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise ConfigurationError("filter.groups must be a list of strings", field="filter.groups")
    groups = tuple(given)
    for i, group in enumerate(groups):
        require_text(group, f"filter.groups[{i}]")
    return groups
