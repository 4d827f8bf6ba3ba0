"""Context items and search filters: written as they are set, checked before anything is sent."""

from __future__ import annotations

import pytest

from mintlify_async.errors import ConfigurationError
from mintlify_async.model.context_and_filter import ContextItem, SearchFilter, filter_fields


def test_context_items() -> None:
    """A context item writes what is set, and is checked."""
    item = ContextItem("code", "x = 1", path="a.py", element_id="e")
    assert item.to_wire() == {"type": "code", "value": "x = 1", "path": "a.py", "elementId": "e"}
    assert ContextItem.from_wire(item.to_wire()) == item
    assert ContextItem("textSelection", "x").to_wire() == {"type": "textSelection", "value": "x"}
    assert ContextItem("code", "").to_wire() == {"type": "code", "value": ""}
    with pytest.raises(ConfigurationError) as caught:
        ContextItem.from_wire("x")
    assert caught.value.field == "context"
    for wrong in ({"value": 5}, {"path": 5}, {"element_id": 5}):
        with pytest.raises(ConfigurationError):
            ContextItem(**{"type": "code", "value": "", **wrong})


def test_a_field_of_a_later_version_stays_in_a_context_item() -> None:
    """A field that this version does not know is read, kept and written."""
    wire = {"type": "code", "value": "x", "language": "python", "lines": [1, 2]}
    item = ContextItem.from_wire(wire)
    assert item.extra == {"language": "python", "lines": [1, 2]}
    assert item.to_wire() == wire


def test_search_filters() -> None:
    """A filter writes what is set; any iterable of strings is good for groups."""
    assert SearchFilter().to_wire() == {}
    full = SearchFilter(version="v2", language="en", groups=["a", "b"])
    assert full.to_wire() == {"version": "v2", "language": "en", "groups": ["a", "b"]}
    assert SearchFilter.from_wire(full.to_wire()) == full


@pytest.mark.parametrize(
    ("wire", "field"),
    [
        (5, "filter"),
        ({"versoin": "v2"}, "filter.versoin"),
        ({"version": 2}, "filter.version"),
        ({"language": ["en"]}, "filter.language"),
        ({"groups": "admin"}, "filter.groups"),
        ({"groups": ["a", 5]}, "filter.groups[1]"),
    ],
)
def test_wrong_filters_name_the_field(wire: object, field: str) -> None:
    """A misspelt name would search everything: it is refused."""
    with pytest.raises(ConfigurationError) as caught:
        SearchFilter.from_wire(wire)
    assert caught.value.field == field


def test_a_name_of_no_field_is_told_once(caplog) -> None:
    """A misspelt name in a dict limits nothing. It is sent, and logged once: the service may know it."""
    for _ in range(3):
        assert filter_fields({"group": ["staff"], "version": "v2"}) == {"group": ["staff"], "version": "v2"}
    (record,) = caplog.records
    assert record.getMessage() == (
        "filter: 'group' is sent, but this version does not know it; it knows groups, language, version"
    )
