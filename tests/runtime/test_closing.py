"""What can be closed can be closed by both names, and stores can be closed, too."""

from __future__ import annotations

import importlib
import inspect

import pytest

PACKAGES = ["", ".storage", ".contrib.postgres", ".contrib.redis", ".contrib.relay"]


def can(cls: type, name: str) -> bool:
    return inspect.iscoroutinefunction(getattr(cls, name, None))


@pytest.mark.parametrize("package", PACKAGES)
def test_close_has_the_name_that_contextlib_looks_for(package: str):
    """``contextlib.aclosing`` calls ``aclose``: every public class with ``close`` has it, and every store."""
    module = importlib.import_module(f"mintlify_async{package}")
    public = [getattr(module, name) for name in module.__all__]
    classes = [cls for cls in public if isinstance(cls, type) and not getattr(cls, "_is_protocol", False)]
    closable = [cls for cls in classes if can(cls, "close") or cls.__name__.endswith("Store")]
    assert closable
    assert [cls for cls in closable if not can(cls, "aclose")] == []
