"""Values that are sent to or received from the service: frozen classes, read and written by cattrs.

The annotation of a field is its schema: a field without a default is required, and its name in JSON
is the field's in camelCase. Nothing is coerced. Fields that a class does not know are kept in ``extra``.
Null in an optional field counts as absent; where null means something, the field is of type ``Any``
and :data:`MISSING` says that it was absent. A class with a field ``nulls`` notes there which fields
were null, and writes them as null again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cache, lru_cache, partial
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
)

import attrs

from ..errors import ConfigurationError
from .json_text import DecodeProblem, drop_keys, json_safe, mask_keys

if TYPE_CHECKING:
    # Imported here, because importing cattrs takes a tenth of the time of importing aiohttp, and a program
    # that only imports this package, or a page that shows its help, needs neither.
    from cattrs import Converter

_T = TypeVar("_T")
_LENIENT: Final = "a value of another type is kept in extra"
_NULL_TOO: Final = "null counts as a value of another type"
_MASKED: Final = "thread keys are masked when read, and dropped when written"

ProviderMetadata: TypeAlias = Mapping[str, Mapping[str, Any]]
"""What a model's provider adds: one object per provider."""

JSONObject: TypeAlias = Mapping[str, Any]
"""A JSON object."""

Objects: TypeAlias = Sequence[Mapping[str, Any]]
"""A JSON array of objects."""

Lenient: TypeAlias = Annotated[_T | None, _LENIENT]
"""An optional field in which a value of another type is no error: it is kept in ``extra``."""

# The AI SDK's schema of the stream does not have this field, so nothing in it may end an answer.
ThreadId: TypeAlias = Annotated[str | None, _LENIENT, _NULL_TOO]
"""A thread's id, or None; anything but a string, null included, is kept in ``extra``."""

LenientText: TypeAlias = Annotated[str, _LENIENT]
"""A text with a default, which stands for null and for a value of another type, too."""

MaskedJSON: TypeAlias = Annotated[Any, _MASKED]
"""Any JSON value; a thread's key in it is masked."""

LOCAL: Final = {"local": True}
"""Metadata of a field that is not a field of the JSON object."""

UNCOMPARED: Final = {"local": True, "uncompared": True}
"""Metadata of a field that also counts neither for equality nor for the repr."""


class Missing(Enum):
    """The type of :data:`MISSING`."""

    MISSING = "missing"

    def __bool__(self) -> Literal[False]:
        """Return False, as for None."""
        return False

    def __repr__(self) -> str:
        """Return ``MISSING``."""
        return "MISSING"


MISSING: Final = Missing.MISSING
"""Says that a field was absent, where ``None`` means that it was ``null``."""

EMPTY: Final[Mapping[str, Any]] = {}
"""The ``extra`` of a value that has none. Shared: never write to it."""


class WireValue:
    """Base of the package's values: equality by fields, a short repr."""

    # Subclasses are attrs classes without attrs' own __eq__ and __repr__: about fifty are made when
    # the package is imported, and each takes 0.15 ms instead of 0.37.

    __slots__ = ("__weakref__",)

    def _fields(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and the content of each field that counts for equality."""
        for name in _compared_names(cast("Any", type(self))):
            yield name, getattr(self, name)

    def __eq__(self, other: object) -> bool:
        """Compare field by field with another value of the same class."""
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(other, name) == content for name, content in self._fields())

    def __hash__(self) -> int:
        """Hash the fields; a value that holds dicts or lists cannot be hashed."""
        return hash(
            (type(self), *(content for name, content in self._fields() if name != "extra" or content))
        )

    def __repr__(self) -> str:
        """Show the fields that are set."""
        shown = (f"{name}={content!r}" for name, content in self._fields() if not _is_unset(name, content))
        return f"{type(self).__name__}({', '.join(shown)})"


ValueT = TypeVar("ValueT", bound=WireValue)


def _is_unset(name: str, content: object) -> bool:
    return content is None or content is MISSING or (name == "extra" and not content)


def _attributes(cls: type[Any]) -> tuple[attrs.Attribute[Any], ...]:
    return cast("tuple[attrs.Attribute[Any], ...]", attrs.fields(cls))


@cache
def _compared_names(cls: type) -> tuple[str, ...]:
    names = [field.name for field in _attributes(cls) if not field.metadata.get("uncompared")]
    return tuple(sorted(names, key="extra".__eq__))  # extra last


def read_value(cls: type[ValueT], content: object, **given: Any) -> ValueT:
    """Return the *cls* that the JSON object *content* describes.

    Args:
        cls: The class.
        content: The object. It is not changed, and may be shared with the value.
        **given: Fields that do not come from the object.

    Raises:
        DecodeProblem: It is not an object, or a field is missing or of another type. The message
            goes on where the caller's name for the object ends: ``.url is missing``.
    """
    kind: Any = cls
    value: ValueT = _reader_of(kind)(content, kind, given)
    return value


@cache
def _reader_of(cls: type[Any]) -> Callable[..., Any]:
    # Called directly: a hook that ``structure`` calls takes no further fields.
    return load_converter().get_structure_hook(cls)


def read_argument(cls: type[ValueT], content: object, where: str, **given: Any) -> ValueT:
    """Return the *cls* in an argument of the caller's, called *where*.

    Raises:
        ConfigurationError: As :func:`read_value`; it names the field.
    """
    try:
        return read_value(cls, content, **given)
    except DecodeProblem as error:
        problem = str(error)
    raise ConfigurationError(where + problem, field=where + problem.partition(" ")[0])


def write_value(value: WireValue) -> dict[str, Any]:
    """Return the JSON object that describes *value*: valid JSON, without thread keys."""
    return cast("dict[str, Any]", load_converter().unstructure(value))


@cache
def load_converter() -> Converter:
    """Return the converter of all values. The first call imports cattrs, which takes about 15 ms."""
    # Imported here, because importing cattrs takes a tenth of the time of importing aiohttp, and a program
    # that only imports this package, or a page that shows its help, needs neither.
    from cattrs import Converter

    converter = Converter()
    for kind, hook in _HOOKS.items():
        if isinstance(kind, type):  # cattrs looks at hooks of classes first, and has its own for these
            converter.register_structure_hook(kind, hook)
        else:
            converter.register_structure_hook_func(_is(kind), hook)
    converter.register_structure_hook_func(
        lambda kind: getattr(kind, "__origin__", None) is Literal, _as_it_is
    )
    converter.register_structure_hook_factory(_is_wire_class, partial(_reader, converter))
    converter.register_unstructure_hook_func(lambda _: True, json_safe)
    converter.register_unstructure_hook_func(_is(MaskedJSON), lambda content: json_safe(drop_keys(content)))
    converter.register_unstructure_hook(datetime, instant_text)
    converter.register_unstructure_hook_factory(_is_wire_class, partial(_writer, converter))
    return converter


_Hook: TypeAlias = Callable[[Any, Any], Any]


def _is(kind: object) -> Callable[[Any], bool]:
    return lambda other: bool(other == kind)


def _is_wire_class(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, WireValue)


def _as_it_is(content: Any, _: object) -> Any:
    return content


_OBJECT: Final = (dict, Mapping)
"""What a JSON object may be. First ``dict``: to ask for the abstract class takes five times as long."""

_TAKEN_AS_IS: Final[Mapping[Any, type]] = {str: str, bool: bool, int: int, float: float, JSONObject: dict}
"""The class of values that the hook of a kind returns as they are."""


def _strict(*classes: type, what: str, inside: Callable[[Any], Iterable[Any]] | None = None) -> _Hook:
    """Return a hook that takes instances of *classes*, in which all values *inside* are objects."""

    def read(content: Any, _: object) -> Any:
        if isinstance(content, classes) and (
            inside is None or all(isinstance(item, _OBJECT) for item in inside(content))
        ):
            return content
        raise DecodeProblem(f" must be {what}")

    return read


def _number(*classes: type, what: str) -> _Hook:
    strict = _strict(*classes, what=what)
    return lambda content, kind: strict(None if isinstance(content, bool) else content, kind)


def read_instant(content: Any, _: object = None) -> datetime:
    """Return the instant in ISO 8601 text; without a zone it is in UTC.

    Raises:
        DecodeProblem: It is not such a text.
    """
    try:
        instant = datetime.fromisoformat(content)
    except (TypeError, ValueError):
        raise DecodeProblem(" must be a date and time") from None
    if instant.tzinfo is not None:
        return instant
    return instant.replace(tzinfo=UTC)  # assumption: a date without a zone is UTC


# cattrs' own hooks coerce: null into a string gives "None", and "false" into a flag gives True.
_HOOKS: Final[Mapping[Any, _Hook]] = {
    str: _strict(str, what="a string"),
    bool: _strict(bool, what="true or false"),
    int: _number(int, what="a whole number"),
    float: _number(int, float, what="a number"),
    JSONObject: _strict(*_OBJECT, what="an object"),
    ProviderMetadata: _strict(*_OBJECT, what="an object of objects", inside=lambda found: found.values()),
    Objects: _strict(list, tuple, what="a list of objects", inside=iter),
    datetime: read_instant,
    MaskedJSON: lambda content, _: mask_keys(content),
    Any: _as_it_is,
    tuple[str, ...]: _as_it_is,  # checked by the class that has it
}


def instant_text(instant: datetime) -> str:
    """Return *instant* as JavaScript writes it, in microseconds where milliseconds are not enough."""
    precise = "milliseconds" if instant.microsecond % 1000 == 0 else "microseconds"
    return instant.isoformat(timespec=precise).replace("+00:00", "Z")


class _Field(NamedTuple):
    """A field of a class that is also a field of its JSON object."""

    name: str
    wire: str
    kind: Any
    required: bool
    nullable: bool
    """Whether null is a value of its own."""
    null_is_absent: bool
    lenient: bool


def _wire_fields(cls: type[Any]) -> Iterator[_Field]:
    # Not attrs' ``field.type``: it is text until some other code calls ``attrs.resolve_types``.
    hints = get_type_hints(cls, include_extras=True)
    for field in _attributes(cls):
        if field.name == "extra" or field.metadata.get("local"):
            continue
        kind, marks = hints[field.name], ()
        if getattr(kind, "__metadata__", (_MASKED,)) != (_MASKED,):
            kind, marks = kind.__origin__, kind.__metadata__
        if NoneType in get_args(kind):
            (kind,) = (option for option in get_args(kind) if option is not NoneType)
        head, *rest = field.name.split("_")
        yield _Field(
            name=field.name,
            wire=head + "".join(word.capitalize() for word in rest),
            kind=kind,
            required=field.default is attrs.NOTHING,
            nullable=kind in (Any, MaskedJSON),
            null_is_absent=kind not in (Any, MaskedJSON) and _NULL_TOO not in marks,
            lenient=_LENIENT in marks,
        )


def _reader(converter: Converter, cls: type[Any]) -> Callable[..., Any]:
    """Return the function that reads the JSON object of a *cls*."""
    hook_of = converter.get_structure_hook
    fields = {f.wire: (f, f.name, _TAKEN_AS_IS.get(f.kind), hook_of(f.kind)) for f in _wire_fields(cls)}
    wire_names = {field.name: field.wire for field, *_ in fields.values() if field.required}
    required = wire_names.keys()
    # The type on the wire has chosen the class; a class without a type keeps a field of that name.
    ignored: Any = "type" if hasattr(cls, "type") else None
    keep_extra = _keep_extra if _has_field(cls, "extra") else _drop
    keep_nulls = _keep_nulls if _has_field(cls, "nulls") else _drop

    def read(content: Any, _: object, given: dict[str, Any] | None = None) -> Any:
        wire = content  # not narrowed to an object of unknown values
        if not isinstance(content, _OBJECT):
            raise DecodeProblem(" must be an object")
        values = given or {}
        extra: dict[str, Any] = {}
        nulls: list[str] = []
        for wire_name, sent in wire.items():
            if sent is None:
                nulls.append(wire_name)
            found = fields.get(wire_name)
            if found is None:
                extra[wire_name] = sent
                continue
            field, name, taken, hook = found
            if sent.__class__ is taken:
                values[name] = sent
            elif sent is not None or not field.null_is_absent:
                _read_with_hook(hook, field, sent, values, extra)
        if not required <= values.keys():
            raise _missing(wire_names, values)
        extra.pop(ignored, None)
        if extra:
            keep_extra(values, extra)
        if nulls:
            keep_nulls(values, nulls)
        return cls(**values)

    return read


def _missing(wire_names: Mapping[str, str], values: Mapping[str, Any]) -> DecodeProblem:
    first = next(wire for name, wire in wire_names.items() if name not in values)
    return DecodeProblem(f".{first} is missing")


# Thousands of jobs that are waited for have the same fields null.
_one_of_equals: Final = lru_cache(maxsize=256)(tuple[str, ...])


def _keep_extra(values: dict[str, Any], extra: dict[str, Any]) -> None:
    values["extra"] = mask_keys(extra)


def _keep_nulls(values: dict[str, Any], nulls: list[str]) -> None:
    values["nulls"] = _one_of_equals(tuple(nulls))


def _drop(values: dict[str, Any], found: object) -> None:
    """Keep nothing: the class has no such field."""


def _has_field(cls: type[Any], name: str) -> bool:
    return any(field.name == name for field in _attributes(cls))


def _read_with_hook(
    hook: Callable[..., Any], field: _Field, sent: Any, values: dict[str, Any], extra: dict[str, Any]
) -> None:
    try:
        values[field.name] = hook(sent, None)
    except DecodeProblem as problem:
        if not field.lenient:
            raise DecodeProblem(f".{field.wire}{problem}") from None
        extra[field.wire] = sent


def _writer(converter: Converter, cls: type[Any]) -> Callable[[Any], dict[str, Any]]:
    """Return the function that writes a *cls* as a JSON object."""
    plan = tuple(
        (f.name, f.wire, converter.get_unstructure_hook(f.kind), f.nullable) for f in _wire_fields(cls)
    )
    has_type = hasattr(cls, "type") and "type" not in (name for name, *_ in plan)
    notes_nulls = _has_field(cls, "nulls")

    def write(value: Any) -> dict[str, Any]:
        wire: dict[str, Any] = {"type": value.type} if has_type else {}
        for name, wire_name, hook, nullable in plan:
            content = getattr(value, name)
            if content is not MISSING and (content is not None or nullable):
                wire[wire_name] = hook(content)
        extra = getattr(value, "extra", None)
        if extra:
            wire.update(json_safe(drop_keys(dict(extra))))
        for wire_name in value.nulls if notes_nulls else ():
            wire.setdefault(wire_name, None)
        return wire

    return write
