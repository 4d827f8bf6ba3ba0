"""Lets values of this package be fields of pydantic models, and so results of FastAPI handlers.

pydantic calls the two hooks of :class:`InModels` when a class is used as a field. Only these hooks import
pydantic's core, because this package does not depend on pydantic. FastAPI's encoder calls ``dict(value)`` for
the result of a handler without a return annotation. In JSON, a value is the object that its ``to_wire`` or
``to_dict`` returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, Self, get_args, get_origin

from .wire_value import WireValue, wire_fields, without_halves

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core.core_schema import CoreSchema

_JSON_TYPES: Final[Mapping[Any, Mapping[str, str]]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
}
_PART: Final = {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]}


class InModels:
    """Base of the classes that can be fields of a model. Each class reads and writes a JSON object."""

    __slots__ = ()

    @classmethod
    def _from_model(cls, content: object) -> Self:
        """Return the value of a JSON object. If *content* is no such object, raise ValueError."""
        raise NotImplementedError

    def _to_model(self) -> dict[str, Any]:
        """Return the JSON object."""
        raise NotImplementedError

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report a loop over a value
        __iter__ = None  # without it, Python would iterate with __getitem__

        def keys(self):
            """Return the names of the fields of the JSON object, for ``dict(value)``."""
            return self._to_model().keys()

        def __getitem__(self, name):
            """Return the field *name* of the JSON object."""
            return without_halves(self._to_model()[name])

    @classmethod
    def _model_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of the object."""
        return schema_of(cls)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> CoreSchema:
        """Return the schema with which pydantic reads and writes the value."""
        # Imported here, because only pydantic calls this method.
        from pydantic_core import PydanticSerializationUnexpectedValue, core_schema

        def read(content: object) -> InModels:
            return content if isinstance(content, cls) else cls._from_model(content)

        def write(value: object) -> dict[str, Any]:
            if isinstance(value, InModels):
                return without_halves(value._to_model())
            # With this error, pydantic tries the next type of a union.
            raise PydanticSerializationUnexpectedValue(f"expected {cls.__name__}, got {type(value).__name__}")

        # A dump in Python mode keeps the value as it is.
        serialization = core_schema.plain_serializer_function_ser_schema(write, when_used="json")
        return core_schema.no_info_before_validator_function(
            read,
            core_schema.any_schema(),
            serialization=serialization,
            ref=f"{cls.__module__}.{cls.__qualname__}:{id(cls)}",  # so that OpenAPI lists each class once
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON schema that OpenAPI shows."""
        reference = handler(schema)
        handler.resolve_ref_schema(reference).update({"title": cls.__name__, **cls._model_schema()})
        return reference


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a field's type, or of a class of values."""
    if isinstance(kind, type) and issubclass(kind, WireValue):
        fields = list(wire_fields(kind))
        properties = {
            field.wire: schema_of(field.kind) if field.required else or_null(schema_of(field.kind))
            for field in fields
        }
        return object_schema(properties, [field.wire for field in fields if field.required])
    if get_origin(kind) is tuple:
        return {"type": "array", "items": _PART}
    if get_origin(kind) is Literal or any(get_origin(option) is Literal for option in get_args(kind)):
        kind = str  # documented words, but any other is allowed
    return dict(_JSON_TYPES.get(kind, {}))


def or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value or of null."""
    return {"anyOf": [schema, {"type": "null"}]} if schema else schema


def object_schema(properties: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    """Return the JSON schema of an object with *properties*. It may also have other fields."""
    return {"type": "object", "properties": dict(properties), "required": required}
