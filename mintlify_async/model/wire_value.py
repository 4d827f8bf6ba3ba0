"""Values that are sent to or received from the service: frozen classes, which cattrs' hooks read and write.

The annotation of a field is its schema. A field without a default is required. The name in JSON is the
field's name in camelCase. Nothing is coerced. Unknown fields are kept in ``extra``. Null in an optional field
counts as absent. If null has a meaning, the field has the type ``Any``, and :data:`MISSING` means that the
field was absent.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cache, partial
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_type_hints,
)

import attrs

from ..errors import ConfigurationError
from .secret import drop_keys, mask_keys
from .strict_json import DecodeProblem, json_safe, whole_characters

if TYPE_CHECKING:
    # Imported only for types, because importing cattrs takes a tenth of the time of importing aiohttp. A
    # program that only imports this package, or prints its help, needs neither.
    from cattrs import Converter

_T = TypeVar("_T")
_LENIENT: Final = "a value of another type is kept in extra"
_NULL_TOO: Final = "null counts as a value of another type"
_MASKED: Final = "thread keys are masked when read, and dropped when written"

ProviderMetadata: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Additional data of a model's provider: one object for each provider."""

JSONObject: TypeAlias = Mapping[str, Any]
"""A JSON object."""

Objects: TypeAlias = Sequence[Mapping[str, Any]]
"""A JSON array of objects."""

Lenient: TypeAlias = Annotated[_T | None, _LENIENT]
"""An optional field. A value of another type is no error, and is kept in ``extra``."""

# The AI SDK's schema of the stream does not have this field, so a wrong value must not end an answer.
ThreadId: TypeAlias = Annotated[str | None, _LENIENT, _NULL_TOO]
"""A thread's id, or None. Any value that is not a string, including null, is kept in ``extra``."""

LenientText: TypeAlias = Annotated[str, _LENIENT]
"""A string field with a default. Null or a value of another type gives the default."""

MaskedJSON: TypeAlias = Annotated[Any, _MASKED]
"""Any JSON value. A thread's key in it is masked."""

LOCAL: Final = {"local": True}
"""Metadata of a field that is not a field of the JSON object."""

UNCOMPARED: Final = {"local": True, "uncompared": True}
"""Metadata of a field that equality and the repr ignore. It is not in the JSON object."""


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
"""The value of a field that was absent. ``None`` means that the field was ``null``."""

EMPTY: Final[Mapping[str, Any]] = {}
"""The ``extra`` of a value without additional fields. It is shared, so never change it."""


class WireValue:
    """Base of the package's values. Equality compares the fields, and the repr is short."""

    # Subclasses are attrs classes without attrs' own __eq__ and __repr__. About fifty are made when the
    # package is imported, and each takes 0.15 ms instead of 0.37. They have no slots, because attrs makes a
    # frozen object with a dictionary faster, and each event and each poll makes values.

    __slots__ = ("__weakref__",)

    def _fields(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and the value of each field that equality compares."""
        for name in _compared_names(cast("Any", type(self))):
            yield name, getattr(self, name, MISSING)  # a traceback shows values that were not completely made

    def __eq__(self, other: object) -> bool:
        """Compare all fields with another value of the same class."""
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(other, name) == content for name, content in self._fields())

    def __hash__(self) -> int:
        """Hash the fields. A value that contains dicts or lists cannot be hashed."""
        return hash(
            (type(self), *(content for name, content in self._fields() if name != "extra" or content))
        )

    def __repr__(self) -> str:
        """Show the fields that are set."""
        shown = (f"{name}={content!r}" for name, content in self._fields() if not _is_unset(name, content))
        return f"{type(self).__name__}({', '.join(shown)})"

    def to_wire(self) -> dict[str, Any]:
        """Return the object as valid JSON, without thread keys. Infinity and NaN become None."""
        kind: Any = type(self)
        return _writer_of(kind)(self)


ValueT = TypeVar("ValueT", bound=WireValue)


def _is_unset(name: str, content: object) -> bool:
    return content is None or content is MISSING or (name == "extra" and not content)


def _attributes(cls: type[Any]) -> tuple[attrs.Attribute[Any], ...]:
    return cast("tuple[attrs.Attribute[Any], ...]", attrs.fields(cls))


@cache
def _compared_names(cls: type) -> tuple[str, ...]:
    names = [field.name for field in _attributes(cls) if not field.metadata.get("uncompared")]
    return tuple(sorted(names, key="extra".__eq__))  # extra comes last


def without_halves(content: _T) -> _T:
    """Return *content* with each lone surrogate replaced by U+FFFD, also in names.

    Args:
        content: A JSON value, or a value of this package, whose fields may be such values.

    Returns:
        The same object, if it contains no lone surrogate.
    """
    value: Any = content
    cleaned: Any = value
    if isinstance(value, str):
        cleaned = whole_characters(value)
    elif isinstance(value, WireValue):
        fields = {field.name: getattr(value, field.name) for field in _attributes(type(value))}
        changes = _changes(fields, without_halves(fields))
        cleaned = attrs.evolve(cast("Any", value), **changes) if changes else value
    elif isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        whole = {whole_characters(name): without_halves(item) for name, item in fields.items()}
        cleaned = whole if whole.keys() != fields.keys() or _changes(fields, whole) else fields
    elif isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        parts = [without_halves(item) for item in items]
        if any(map(operator.is_not, parts, items)):
            cleaned = tuple(parts) if isinstance(items, tuple) else parts
    return cast("_T", cleaned)


def _changes(fields: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in whole.items() if item is not fields[name]}


def read_value(
    cls: type[ValueT],
    content: object,
    error: Callable[[str], Exception] = DecodeProblem,
    **local_arguments: Any,
) -> ValueT:
    """Return the value of class *cls* from the JSON object *content*.

    Args:
        cls: The class.
        content: The JSON object. It is not changed, and the value may refer to it.
        error: Takes the message of a DecodeProblem, and returns the exception to raise instead.
        **local_arguments: Arguments of the class for fields that are not in the JSON object.

    Raises:
        DecodeProblem: *content* is not an object, or a field is missing or has another type. The caller puts
            its name of the object before the message, such as ``.url is missing``.
    """
    kind: Any = cls
    try:
        value: ValueT = _reader_of(kind)(content, kind, local_arguments)
        return value
    except DecodeProblem as fault:
        problem = str(fault)
    # Raised outside the block, because a context would keep frames with data that is not masked.
    raise error(problem)


@cache
def _reader_of(cls: type[Any]) -> Callable[..., Any]:
    # Called directly, because a hook that ``structure`` calls takes no additional arguments.
    return load_converter().get_structure_hook(cls)


@cache
def _writer_of(cls: type[Any]) -> Callable[[Any], dict[str, Any]]:
    return load_converter().get_unstructure_hook(cls)


def read_argument(cls: type[ValueT], content: object, where: str, **local_arguments: Any) -> ValueT:
    """Return the value of class *cls* from a caller's argument with the name *where*.

    Raises:
        ConfigurationError: As for :func:`read_value`. The error names the field.
    """

    def error(problem: str) -> ConfigurationError:
        return ConfigurationError(where + problem, field=where + problem.partition(" ")[0])

    return read_value(cls, content, error, **local_arguments)


@cache
def load_converter() -> Converter:
    """Return the converter of all values. The first call imports cattrs, which takes about 15 ms."""
    # Imported here, because importing cattrs takes a tenth of the time of importing aiohttp. A program that
    # only imports this package, or prints its help, needs neither.
    from cattrs import Converter

    converter = Converter()
    for kind, hook in _HOOKS.items():
        if isinstance(kind, type):  # for classes, cattrs has its own hooks, which come first
            converter.register_structure_hook(kind, hook)
        else:
            converter.register_structure_hook_func(_is(kind), hook)
    converter.register_structure_hook_func(
        lambda kind: getattr(kind, "__origin__", None) is Literal, _as_it_is
    )
    converter.register_structure_hook_factory(_is_wire_class, partial(_reader, converter))
    converter.register_unstructure_hook_func(lambda _: True, _as_json)
    for kind in (MaskedJSON, ProviderMetadata):
        converter.register_unstructure_hook_func(_is(kind), lambda content: json_safe(drop_keys(content)))
    converter.register_unstructure_hook(datetime, instant_text)
    converter.register_unstructure_hook_factory(_is_wire_class, partial(_writer, converter))
    return converter


def _as_json(content: Any) -> Any:
    if isinstance(content, tuple):
        return [_as_json(item) for item in cast("Sequence[Any]", content)]
    return content.to_wire() if isinstance(content, WireValue) else json_safe(content)


_Hook: TypeAlias = Callable[[Any, Any], Any]


def _is(kind: object) -> Callable[[Any], bool]:
    return lambda other: bool(other == kind)


def _is_wire_class(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, WireValue)


def _as_it_is(content: Any, _: object) -> Any:
    return content


_OBJECT: Final = (dict, Mapping)
"""The types of a JSON object. ``dict`` first, because a check of the abstract class is five times as slow."""


def _strict(*classes: type, what: str, inside: Callable[[Any], Iterable[Any]] | None = None) -> _Hook:
    """Return a hook that accepts instances of *classes*. The values that *inside* returns must be objects."""

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
    """Return the time of an ISO 8601 text. A time without a zone is in UTC.

    Raises:
        DecodeProblem: *content* is not such a text.
    """
    try:
        instant = datetime.fromisoformat(content)
    except (TypeError, ValueError):
        raise DecodeProblem(" must be a date and time") from None
    if instant.tzinfo is not None:
        return instant
    return instant.replace(tzinfo=UTC)  # assumption: a date without a zone is UTC


_objects: Final = _strict(*_OBJECT, what="an object of objects", inside=lambda content: content.values())

# cattrs' own hooks coerce values. For example, null becomes the string "None", and "false" becomes True.
_HOOKS: Final[Mapping[Any, _Hook]] = {
    str: _strict(str, what="a string"),
    bool: _strict(bool, what="true or false"),
    int: _number(int, what="a whole number"),
    float: _number(int, float, what="a number"),
    JSONObject: _strict(*_OBJECT, what="an object"),
    ProviderMetadata: lambda content, kind: mask_keys(_objects(content, kind)),
    Objects: _strict(list, tuple, what="a list of objects", inside=iter),
    datetime: read_instant,
    MaskedJSON: lambda content, _: mask_keys(content),
    Any: _as_it_is,
    tuple[str, ...]: _as_it_is,  # the class with this field checks the value
}


def instant_text(instant: datetime) -> str:
    """Return *instant* as JavaScript writes it, with microseconds if milliseconds are not exact."""
    precise = "milliseconds" if instant.microsecond % 1000 == 0 else "microseconds"
    return instant.isoformat(timespec=precise).replace("+00:00", "Z")


@attrs.frozen
class _Field:
    """A field of a class that is also a field of the JSON object."""

    name: str
    wire: str
    kind: Any
    default: object
    required: bool
    null_is_absent: bool
    lenient: bool
    plain: type | None
    """The class whose instances need no hook, or None. This saves a call for most fields."""


def wire_fields(cls: type[Any]) -> Iterator[_Field]:
    """Yield the fields of *cls* that are also fields of its JSON object."""
    # Not attrs' ``field.type``, which is a string until other code calls ``attrs.resolve_types``.
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
            default=field.default,
            required=field.default is attrs.NOTHING,
            null_is_absent=kind not in (Any, MaskedJSON) and _NULL_TOO not in marks,
            lenient=_LENIENT in marks,
            plain=kind if kind in (str, bool) else None,
        )


def _reader(converter: Converter, cls: type[Any]) -> Callable[..., Any]:
    """Return the function that reads the JSON object of class *cls*."""
    # Not a function from cattrs, because it names no field and fails on a wrong value of a lenient field.
    fields = {field.wire: field for field in wire_fields(cls)}
    hooks = {field.wire: converter.get_structure_hook(field.kind) for field in fields.values()}
    required = {field.name: field.wire for field in fields.values() if field.required}
    keeps_extra = hasattr(attrs.fields(cls), "extra")
    # The type on the wire has selected the class. A class without a type keeps a field with this name.
    ignored = {"type"} - fields.keys() if hasattr(cls, "type") else set[str]()

    def read(content: Any, _: object, local_arguments: Mapping[str, Any] = EMPTY) -> Any:
        # A second name, because isinstance() narrows the type of `content` to unknown types.
        sent_fields: Mapping[str, Any] = content
        if not isinstance(content, _OBJECT):
            raise DecodeProblem(" must be an object")
        values = {**local_arguments}
        extra: dict[str, Any] = {}
        problems: dict[str, str] = {}
        for wire, sent in sent_fields.items():
            field = fields.get(wire)
            if field is None:
                if wire not in ignored:
                    extra[wire] = sent
                continue
            if sent.__class__ is field.plain:
                values[field.name] = sent
                continue
            if sent is None and field.null_is_absent:
                continue
            try:
                values[field.name] = hooks[wire](sent, field.kind)
            except DecodeProblem as problem:
                if field.lenient:
                    extra[wire] = sent
                else:
                    problems[wire] = str(problem)
        if problems or not required.keys() <= values.keys():
            missing = {required[name]: " is missing" for name in required.keys() - values.keys()}
            faults = missing | problems
            first = next(wire for wire in fields if wire in faults)
            raise DecodeProblem(f".{first}{faults[first]}")
        if extra and keeps_extra:
            values["extra"] = mask_keys(extra)
        return cls(**values)

    return read


def _writer(converter: Converter, cls: type[Any]) -> Callable[[Any], dict[str, Any]]:
    """Return the function that writes a value of class *cls* as a JSON object."""
    from cattrs.gen import make_dict_unstructure_fn, override

    overrides: dict[str, Any] = {field.name: override(omit=True) for field in _attributes(cls)}
    for field in wire_fields(cls):
        overrides[field.name] = override(
            rename=field.wire,
            unstruct_hook=converter.get_unstructure_hook(field.kind),
            omit_if_default=not isinstance(field.default, str),  # texts are always written
        )
    generated = make_dict_unstructure_fn(cls, converter, _cattrs_use_linecache=False, **overrides)
    has_type = hasattr(cls, "type")

    def write(value: Any) -> dict[str, Any]:
        wire = generated(value)
        if has_type:
            wire = {"type": value.type, **wire}
        extra = getattr(value, "extra", None)
        if extra:
            wire.update(json_safe(drop_keys(dict(extra))))
        return wire

    return write
