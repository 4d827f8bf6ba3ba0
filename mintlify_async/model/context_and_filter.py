"""The context items and the search filter of a question. They are checked when they are made."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal

import attrs
from attrs import frozen

from ..argument_checks import check_object, check_optional_text, check_text, check_word
from ..errors import ConfigurationError, printable
from .strict_json import as_object
from .wire_value import EMPTY, WireValue, read_argument

log = logging.getLogger("mintlify_async")


@frozen(eq=False, repr=False)
class ContextItem(WireValue):
    """A text that the user looks at, for the assistant to consider.

    Args:
        type: ``"code"`` or ``"textSelection"``.
        value: The snippet, or the selected text. It may be empty.
        path: The source file or the documentation page, or None.
        element_id: The element of the user interface that contains the text, or None.
        extra: Additional fields to send.

    Raises:
        ConfigurationError: *type* has another value, or a field is not a string.
    """

    type: Literal["code", "textSelection"]
    value: str
    path: str | None = attrs.field(default=None, kw_only=True)
    element_id: str | None = attrs.field(default=None, kw_only=True)
    extra: Mapping[str, Any] = attrs.field(default=EMPTY, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_word(self.type, "context.type", ("code", "textSelection"))
        check_text(self.value, "context.value", empty=True)
        check_optional_text(self.path, "context.path")
        check_optional_text(self.element_id, "context.elementId")

    @classmethod
    def from_wire(cls, wire: object) -> ContextItem:
        """Read the JSON object.

        Raises:
            ConfigurationError: *wire* is not a context item.
        """
        return read_argument(cls, wire, "context")


def _is_list(value: object) -> bool:
    """Return whether *value* can be read as a list. A text and a mapping are mistakes."""
    return hasattr(value, "__iter__") and not isinstance(value, str | Mapping)


def context_fields(items: Sequence[ContextItem | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the items of a question's context as the fields that are sent.

    Raises:
        ConfigurationError: *items* is no list of items, or an item is invalid.
    """
    if not _is_list(items):
        raise ConfigurationError("context must be a list of ContextItem", field="context")
    return [_item_fields(item, f"context[{index}]") for index, item in enumerate(items)]


def _item_fields(item: ContextItem | Mapping[str, Any], name: str) -> dict[str, Any]:
    wire = check_object({**item.to_wire(), **item.extra} if isinstance(item, ContextItem) else item, name)
    try:
        return ContextItem.from_wire(wire).to_wire()
    except ConfigurationError as error:
        message, field = str(error), error.field or ""
    # Errors about a single item name the field "context".
    raise ConfigurationError(message.replace("context", name, 1), field=field.replace("context", name, 1))


def _groups(names: Iterable[str]) -> tuple[str, ...]:
    if not _is_list(names):
        raise ConfigurationError("filter.groups must be a list of strings", field="filter.groups")
    groups = tuple(names)
    for i, group in enumerate(groups):
        check_text(group, f"filter.groups[{i}]")
    return groups


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class SearchFilter(WireValue):
    """Limits the search for an answer.

    Args:
        version: The documentation's version, or None.
        language: The language, or None.
        groups: User groups whose pages may be used. The assistant's behavior without groups is not
            documented. If the deployment is protected, the service's search and page operations without
            groups use only public pages. Test questions without groups on your own site before you rely on
            this. Groups decide which pages a user may see. Take the groups from your own sign-in, never from
            a web page or a language model.

    Raises:
        ConfigurationError: A field has another type.
    """

    version: str | None = None
    language: str | None = None
    groups: tuple[str, ...] = attrs.field(default=(), converter=_groups)

    def __attrs_post_init__(self) -> None:
        check_optional_text(self.version, "filter.version")
        check_optional_text(self.language, "filter.language")

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object, without fields that are not set."""
        return {name: content for name, content in super().to_wire().items() if content}

    @classmethod
    def from_wire(cls, wire: object) -> SearchFilter:
        """Read the JSON object.

        Raises:
            ConfigurationError: *wire* is not a search filter, or has an unknown field.
        """
        unknown_names = sorted(set(as_object(wire) or ()) - _FILTER_NAMES)
        if unknown_names:  # with a misspelt name, all pages would be searched
            raise ConfigurationError(
                f"filter has no field {unknown_names[0]!r}", field=f"filter.{unknown_names[0]}"
            )
        return read_argument(cls, wire, "filter")


_FILTER_NAMES: Final = {field.name for field in attrs.fields(SearchFilter)}


def filter_fields(value: SearchFilter | Mapping[str, Any]) -> dict[str, Any]:
    """Return a search filter, or its JSON object, as the fields that are sent.

    Raises:
        ConfigurationError: *value* is neither a SearchFilter nor a dict, or a known field has another type.
    """
    if isinstance(value, SearchFilter):
        return check_object(value.to_wire(), "filter")
    fields = check_object(value, "filter")
    SearchFilter(**{name: fields[name] for name in _FILTER_NAMES if fields.get(name) is not None})
    for name in sorted(fields.keys() - _FILTER_NAMES):
        _log_unknown(name)
    return fields


@lru_cache(maxsize=16)
def _log_unknown(name: str) -> None:
    """Log once that a field of the filter is unknown. It may be new or misspelt."""
    known = ", ".join(sorted(_FILTER_NAMES))
    log.warning(
        "filter: %s is sent, but this version does not know it; it knows %s", printable(repr(name), 40), known
    )
