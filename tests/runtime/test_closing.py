"""What can be closed can be closed by both names, and stores can be closed, too."""

from __future__ import annotations

import importlib
import inspect

import pytest

PUBLIC = [
    "mintlify_async",
    "mintlify_async.storage",
    "mintlify_async.quota",
    "mintlify_async.rendering",
    "mintlify_async.contrib.redis",
    "mintlify_async.contrib.relay",
    "mintlify_async.testing",
]


def classes(module: str) -> list[type]:
    loaded = importlib.import_module(module)
    found = [getattr(loaded, name) for name in loaded.__all__]
    return [cls for cls in found if isinstance(cls, type) and not getattr(cls, "_is_protocol", False)]


@pytest.mark.parametrize("module", PUBLIC)
def test_close_has_the_name_that_contextlib_looks_for(module: str):
    """``contextlib.aclosing`` calls ``aclose``; every public class with ``close`` has it."""
    closable = [cls for cls in classes(module) if inspect.iscoroutinefunction(getattr(cls, "close", None))]
    assert [cls.__name__ for cls in closable if not hasattr(cls, "aclose")] == []


def test_every_store_can_be_closed():
    """A start-up function closes what it made, and needs not know which store it is."""
    stores = {cls for module in PUBLIC for cls in classes(module) if cls.__name__.endswith("Store")}
    assert {"MemoryStore", "SQLiteStore", "RedisStore"} <= {store.__name__ for store in stores}
    assert [cls for cls in stores if not inspect.iscoroutinefunction(getattr(cls, "aclose", None))] == []
