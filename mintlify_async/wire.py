"""What the values of the wire have in common: JSON in, checked fields; fields in, valid JSON out.

The annotation of a field is its schema. A field without a default is required; the wire's name
is the field's in camelCase; what a class does not know is kept in ``extra``. Null in an optional
field counts as absent; where null means something, :data:`MISSING` stands for absence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from math import isfinite
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, cast

import attrs

from .errors import ConfigurationError

__all__ = [
    "MASK",
    "MAX_DEPTH",
    "MISSING",
    "NO_EXTRA",
    "SHALLOW",
    "Field",
    "JSONObject",
    "Missing",
    "NotReadable",
    "Objects",
    "ProviderMetadata",
    "ThreadId",
    "Value",
    "as_object",
    "blank",
    "decode_json",
    "drop_keys",
    "json_safe",
    "mask_keys",
    "mask_text",
    "open_twin",
    "require_json",
    "require_text",
    "scan_json",
    "scan_text",
    "schema",
    "structure",
    "too_deep",
    "unstructure",
]

ProviderMetadata: TypeAlias = Mapping[str, Mapping[str, Any]]
"""What a model's provider adds: one object a provider."""

JSONObject: TypeAlias = Mapping[str, Any]
"""A JSON object."""

Objects: TypeAlias = Sequence[Mapping[str, Any]]
"""A JSON array of objects."""

ThreadId: TypeAlias = str
"""A thread's id. The stream's own schema does not know it, so another type is kept, not refused."""

MASK: Final = "***"
"""Stands where a thread's key stood."""

THREAD_KEY: Final = "threadKey"
"""The wire's name of the thread's secret."""

MAX_DEPTH: Final = 200
"""Deepest nesting of JSON that is accepted. Real answers stay under 20; what is deeper than the
interpreter's stack allows could be parsed but not printed, copied or sent again."""

SHALLOW: Final = 2 * MAX_DEPTH
"""A JSON text of so many characters cannot be nested deeper than that: each level has a begin and an end."""


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


class Value:
    """What the package's values share: equality by fields, a short repr.

    They are frozen attrs classes without attrs' own ``__eq__`` and ``__repr__``: some fifty are
    made when the package is imported, each in 0.15 ms in place of 0.37.
    """

    __slots__ = ("__weakref__",)  # here, so that no class adds it: see open_twin

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
        return hash(
            (type(self), *(content for name, content in self._fields() if name != "extra" or content))
        )

    def __repr__(self) -> str:
        """Show the fields that differ from nothing."""
        shown = (f"{name}={content!r}" for name, content in self._fields() if not _is_nothing(name, content))
        return f"{type(self).__name__}({', '.join(shown)})"


_new: Final = cast("Callable[[type], Any]", object.__new__)


def open_twin(cls: type) -> Callable[[], Any]:
    """Return a function that makes an empty twin of the frozen *cls*, whose slots can be set.

    Set each field of a twin, then its ``__class__`` to *cls*, which the interpreter allows where the
    slots are the same and ``__weakref__`` is a base's. Plain stores cost a thirtieth of the calls
    by which a frozen class's ``__init__`` sets its fields; so it is done where there is one an event or
    one a request.
    """
    inside = {"__slots__": cls.__dict__["__slots__"], "__setattr__": object.__setattr__}
    return partial(_new, type(f"_Open{cls.__name__}", cls.__bases__, inside))


def _is_nothing(name: str, content: object) -> bool:
    return content is None or content is MISSING or (name == "extra" and not content)


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
    if type(content) is dict or isinstance(content, Mapping):  # the first is asked without a call
        return {**cast("Mapping[str, Any]", content)}
    return None


def json_safe(content: Any) -> Any:
    """Return a copy of *content* that is valid JSON: infinity and NaN become None.

    >>> json_safe({"a": [1, float("inf")]})
    {'a': [1, None]}
    """
    if isinstance(content, str):
        return content
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


_KEY_IN_TEXT: Final = r"""(threadKey(?:\\*["'])?\s*[:=]\s*(?:\\*["'])?)[^"'\\\s,}&]+"""


def mask_text(text: str, key: str | None = None) -> str:
    """Return *text*, JSON or not and perhaps cut, with thread keys masked; *key* is one that is known.

    >>> mask_text('{"threadKey":"secr')
    '{"threadKey":"***'
    """
    if key:
        text = text.replace(key, MASK)
    return re.sub(_KEY_IN_TEXT, rf"\g<1>{MASK}", text)


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


class Field(NamedTuple):
    """One field of a class: its names, and what it accepts."""

    name: str
    wire: str
    exact: type | None
    """What nearly always comes, and needs no further check."""
    check: Callable[[Any], bool]
    what: str
    required: bool
    nullable: bool
    """Whether null means something, so that it is kept apart from absence."""
    lenient: bool
    """Whether another type is kept in ``extra`` in place of being refused."""


def _is_text(content: Any) -> bool:
    return isinstance(content, str)


def _is_flag(content: Any) -> bool:
    return isinstance(content, bool)


def _is_object(content: Any) -> bool:
    return isinstance(content, Mapping)


def _is_object_of_objects(content: Any) -> bool:
    return isinstance(content, Mapping) and all(map(_is_object, cast("JSONObject", content).values()))


def _is_list_of_objects(content: Any) -> bool:
    return isinstance(content, list | tuple) and all(map(_is_object, cast("Sequence[Any]", content)))


def _is_anything(content: Any) -> bool:
    return True


_CHECKS: Final[dict[str, tuple[type | None, Callable[[Any], bool], str]]] = {
    "str": (str, _is_text, "a string"),
    "ThreadId": (str, _is_text, "a string"),
    "bool": (bool, _is_flag, "true or false"),
    "JSONObject": (dict, _is_object, "an object"),
    "ProviderMetadata": (None, _is_object_of_objects, "an object of objects"),
    "ToolApproval": (None, _is_anything, "a ToolApproval"),  # read apart
    "Objects": (None, _is_list_of_objects, "a list of objects"),
    "Any": (None, _is_anything, "anything"),
}
"""What each annotation accepts."""

_NOT_SENT: Final = frozenset({"extra", "type", "name", "raw"})
"""Fields that are none of the wire's."""


_SCHEMAS: Final[dict[type, tuple[Field, ...]]] = {}


def schema(cls: type[Value]) -> tuple[Field, ...]:
    """Read the schema of *cls* off its annotations, when it is first needed."""
    known = _SCHEMAS.get(cls)
    if known is None:
        fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(cast("Any", cls))
        known = _SCHEMAS[cls] = tuple(_field(field) for field in fields if field.name not in _NOT_SENT)
    return known


def _field(field: attrs.Attribute[Any]) -> Field:
    annotation = str(field.type).removesuffix(" | None")
    exact, check, what = _CHECKS[annotation]
    head, *rest = field.name.split("_")
    return Field(
        name=field.name,
        wire=head + "".join(word.capitalize() for word in rest),
        exact=exact,
        check=check,
        what=what,
        required=field.default is attrs.NOTHING,
        nullable=annotation == "Any",
        lenient=annotation == "ThreadId",
    )


class NotReadable(ValueError):  # noqa: N818 - never leaves the package: each caller makes its own error of it
    """Says what is wrong with a piece of JSON, without repeating it."""


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant)
scan_json: Final[Callable[[str, int], tuple[Any, int]]] = cast("Any", _DECODER).scan_once
"""The standard decoder's own scanner: ``(text, start)`` to ``(value, end)``. It is what
``raw_decode`` calls, without the layers that cost more than the scan of a short event."""

scan_text: Final[Callable[[str, int], tuple[str, int]]] = cast("Any", json.decoder).scanstring
"""The standard decoder's own reader of a string's inside: ``(text, start)`` to ``(string, end)``."""


def decode_json(data: str) -> Any:
    """Return the JSON in *data*, as strictly as JavaScript reads it.

    Raises:
        NotReadable: It is no JSON (NaN and Infinity are not), or nested deeper than 200.
    """
    problem = f"is nested deeper than {MAX_DEPTH}"
    try:
        content = _DECODER.decode(data)
        if not too_deep(data, content):
            return content
    except RecursionError:
        pass
    except ValueError as error:
        problem = f"is not JSON ({error})"
    raise NotReadable(
        problem
    )  # raised here, so that the decoder's error, which holds the text, is not its context


def too_deep(text: str, content: Any) -> bool:
    """Return whether *content*, read from *text*, is nested deeper than what can be handled later."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return False
    level: list[Any] = [content]
    for _ in range(MAX_DEPTH + 1):
        level = [inside for item in level for inside in _inside(item) if isinstance(inside, dict | list)]
        if not level:
            return False
    return True


def _inside(content: Any) -> Sequence[Any]:
    if isinstance(content, dict):
        return list(cast("dict[str, Any]", content).values())
    return cast("Sequence[Any]", content) if isinstance(content, list) else ()


_ValueT = TypeVar("_ValueT", bound=Value)


def structure(
    cls: type[_ValueT],
    content: Mapping[str, Any],
    fields: tuple[Field, ...] | None = None,
    given: Mapping[str, Any] | None = None,
) -> _ValueT:
    """Make a *cls* of a JSON object: check its fields, keep the others in ``extra``.

    Args:
        cls: One of the values' classes.
        content: The object.
        fields: What is read off it; the class's whole schema by default. Always the same for a class.
        given: Fields that are not read off the object.

    Raises:
        NotReadable: A required field is missing, or one has another type.
    """
    plan = _PLANS.get((cls, *content))
    value = _by_plan(plan, content) if plan is not None else None
    if value is None:
        value = _field_by_field(cls, fields or schema(cls), content)
    if given is not None:
        for name, content_given in given.items():
            setattr(value, name, content_given)
    value.__class__ = cls
    return value  # type: ignore[no-any-return]  # its class was set the line before


class _Plan(NamedTuple):
    """What is known of all objects with the same keys as one that was read without an ``extra``."""

    new: Callable[[], Any]
    sent: tuple[tuple[str, str, type | None, Callable[[Any], bool], object], ...]
    """The fields that are there: name, wire's name, type and check, and what stands for a null."""
    rest: tuple[tuple[str, Any], ...]
    """The defaults of the others."""


_PLANS: Final[dict[tuple[object, ...], _Plan]] = {}
_MOST_PLANS: Final = 256
"""A service sends a few dozen sets of keys; one that sends others each time must not fill the memory."""
_NO_NULL: Final = object()
"""Stands for a null where it must be looked at field by field."""


def _by_plan(plan: _Plan, content: Mapping[str, Any]) -> Any:
    """Return an open twin filled from *content*; None where it must be looked at field by field."""
    new, fields, rest = plan
    value = new()
    for name, wire, exact, check, null in fields:
        sent = content[wire]
        if sent is None:
            sent = null
            if sent is _NO_NULL:
                return None
        elif sent.__class__ is not exact and not check(sent):
            return None
        setattr(value, name, sent)
    for name, default in rest:
        setattr(value, name, default)
    return value


def _learn_plan(cls: type[Value], fields: tuple[Field, ...], content: Mapping[str, Any]) -> None:
    key = (cls, *content)
    if key in _PLANS or len(_PLANS) >= _MOST_PLANS or "messageMetadata" in content:  # it is masked each time
        return
    new, defaults = _twin_of(cls)
    there = [field for field in fields if field.wire in content]
    sent = tuple((f.name, f.wire, f.exact, f.check, _null_of(f, defaults)) for f in there)
    names = {field.name for field in there}
    rest = tuple((name, default) for name, default in defaults.items() if name not in names)
    _PLANS[key] = _Plan(new, sent, rest)


def _null_of(field: Field, defaults: Mapping[str, Any]) -> object:
    """Return what a null in *field* stands for."""
    if field.nullable:
        return None
    return _NO_NULL if field.required or field.lenient else defaults[field.name]


def _field_by_field(cls: type[Value], fields: tuple[Field, ...], content: Mapping[str, Any]) -> Any:
    """Return an open twin of *cls* filled from *content*; learn its plan where all fields are known."""
    extra = {**content}
    extra.pop("type", None)
    value = blank(cls)
    for field in fields:
        name, wire, _, check, what, required, nullable, lenient = field
        sent = extra.get(wire, MISSING)
        if sent is MISSING or (sent is None and not nullable):
            if required:
                raise NotReadable(f".{wire} is missing")
            if sent is None and not lenient:
                del extra[wire]
        elif check(sent):
            setattr(value, name, mask_keys(sent) if wire == "messageMetadata" else sent)
            del extra[wire]
        elif not lenient:
            raise NotReadable(f".{wire} must be {what}")
    if extra:
        value.extra = mask_keys(extra)
    else:
        _learn_plan(cls, fields, content)
    return value


_TWINS: Final[dict[type, tuple[Callable[[], Any], dict[str, Any]]]] = {}


def blank(cls: type[Value]) -> Any:
    """Return an open twin of *cls* with its defaults set."""
    new, defaults = _twin_of(cls)
    value = new()
    for name, default in defaults.items():
        setattr(value, name, default)
    return value


def _twin_of(cls: type[Value]) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Return what makes an open twin of *cls*, and its defaults."""
    known = _TWINS.get(cls)
    if known is None:
        fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(cast("Any", cls))
        defaults = {field.name: field.default for field in fields if field.default is not attrs.NOTHING}
        known = _TWINS[cls] = (open_twin(cls), defaults)
    return known


def unstructure(content: Value, fields: tuple[Field, ...], wire: dict[str, Any]) -> dict[str, Any]:
    """Add the *fields* and the ``extra`` of *content* to *wire*: valid JSON, without thread keys."""
    for field in fields:
        sent = getattr(content, field.name)
        if sent is not MISSING and (sent is not None or field.nullable):
            wire[field.wire] = json_safe(drop_keys(sent) if field.wire == "messageMetadata" else sent)
    extra: Mapping[str, Any] = cast("Any", content).extra
    if extra:
        wire.update(json_safe(drop_keys(dict(extra))))
    return wire


def require_json(content: object, field: str) -> None:
    """Check that *content* can be sent as JSON.

    Raises:
        ConfigurationError: Something in it is no JSON, or it is nested deeper than 200.
    """
    level: list[object] = [content]
    for _ in range(MAX_DEPTH + 1):
        for item in level:
            if not (item is None or isinstance(item, str | int | float | list | dict)):
                kind = type(item).__name__
                raise ConfigurationError(f"{field} holds a {kind}, which is no JSON", field=field)
            if isinstance(item, dict) and not all(
                isinstance(name, str) for name in cast("Mapping[object, Any]", item)
            ):
                raise ConfigurationError(f"{field} holds an object with a key that is no string", field=field)
        level = [inside for item in level for inside in _inside(item)]
        if not level:
            return
    raise ConfigurationError(f"{field} is nested deeper than {MAX_DEPTH}", field=field)
