"""Context items and a search filter of a question, checked when they are made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import attrs
from attrs import frozen

from ..errors import ConfigurationError, printable
from .json_text import as_object, require_text
from .wire_value import EMPTY, WireValue, read_argument

_CONTEXT_TYPES: Final = ("code", "textSelection")


def _check_optional_text(content: object, field: str) -> None:
    if content is not None:
        require_text(content, field, empty=True)


@frozen(eq=False, repr=False)
class ContextItem(WireValue):
    """Something that the user looks at, for the assistant to consider.

    Args:
        type: ``"code"`` or ``"textSelection"``.
        value: The snippet, or the selected text. It may be empty.
        path: The source file or the page, or None.
        element_id: The element of the user interface that holds it, or None.
        extra: Fields that this version does not know. They are also sent.

    Raises:
        ConfigurationError: Another type, or a field that is not a string.
    """

    type: Literal["code", "textSelection"]
    value: str
    path: str | None = attrs.field(default=None, kw_only=True)
    element_id: str | None = attrs.field(default=None, kw_only=True)
    extra: Mapping[str, Any] = attrs.field(default=EMPTY, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.type not in _CONTEXT_TYPES:
            raise ConfigurationError(
                f"context.type must be 'code' or 'textSelection', not {printable(repr(self.type), 40)}",
                field="context.type",
            )
        require_text(self.value, "context.value", empty=True)
        _check_optional_text(self.path, "context.path")
        _check_optional_text(self.element_id, "context.elementId")

    @classmethod
    def from_wire(cls, wire: object) -> ContextItem:
        """Read the JSON object.

        Raises:
            ConfigurationError: It is not such an object.
        """
        return read_argument(cls, wire, "context")


def _groups(names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not hasattr(names, "__iter__"):
        raise ConfigurationError("filter.groups must be a list of strings", field="filter.groups")
    groups = tuple(names)
    for i, group in enumerate(groups):
        require_text(group, f"filter.groups[{i}]")
    return groups


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class SearchFilter(WireValue):
    """Limits the search behind an answer.

    Args:
        version: The documentation's version, or None.
        language: The language, or None.
        groups: User groups whose pages may be used. If it is empty, the pages of all groups may be used.
            Groups decide which pages a user may see. Take them from your own sign-in, never from a web page
            or a language model.

    Raises:
        ConfigurationError: A field has another type.
    """

    version: str | None = None
    language: str | None = None
    groups: tuple[str, ...] = attrs.field(default=(), converter=_groups)

    def __attrs_post_init__(self) -> None:
        _check_optional_text(self.version, "filter.version")
        _check_optional_text(self.language, "filter.language")

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object, without fields that are not set."""
        return {name: content for name, content in super().to_wire().items() if content}

    @classmethod
    def from_wire(cls, wire: object) -> SearchFilter:
        """Read the JSON object.

        Raises:
            ConfigurationError: It is not such an object, or has a field of another name.
        """
        unknown_names = sorted(set(as_object(wire) or ()) - {field.name for field in attrs.fields(cls)})
        if unknown_names:  # a misspelt name would search everything
            raise ConfigurationError(
                f"filter has no field {unknown_names[0]!r}", field=f"filter.{unknown_names[0]}"
            )
        return read_argument(cls, wire, "filter")
