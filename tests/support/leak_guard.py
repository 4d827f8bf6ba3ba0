"""Fails a test that leaves a task, a descriptor, an aiohttp session, connector or connection open.

A test that leaves something on purpose says so, with its reason:
``@pytest.mark.leaves_open("what and why")``.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.connector import Connection

GRACE_SECONDS = 1.0
"""How long a server thread or a child process may take to notice that its peer has gone."""

_shared: set[str] = set()
_live: weakref.WeakSet[Any] = weakref.WeakSet()


def open_descriptors() -> set[str]:
    """Return the entries of ``/proc/self/fd`` as ``number target``, without devices and deleted files.

    Libraries are left out, too: libffi 3.8 keeps its own file open as soon as ctypes is imported.
    """
    seen = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:  # the listing's own descriptor
            continue
        if not target.startswith("/dev/") and not target.endswith("(deleted)") and ".so." not in target:
            seen.add(f"{entry.name} {target}")
    return seen


def _settle(before: set[str]) -> set[str]:
    """Return the descriptors that stay open. Peers in other threads get a moment to close theirs."""
    end = time.monotonic() + GRACE_SECONDS
    while (left := open_descriptors() - before - _shared) and time.monotonic() < end:
        gc.collect()
        time.sleep(0.01)
    return left


def _is_open(thing: Any) -> bool:
    """Return whether *thing* would warn when the collector finds it, even in a later test."""
    return thing._protocol is not None if isinstance(thing, Connection) else not thing.closed


def _watch(cls: type) -> None:
    """Store each new object of *cls*, so that an open one is found without the collector."""
    original = cls.__init__

    @functools.wraps(original)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _live.add(self)

    cls.__init__ = made  # type: ignore[misc]  # only while tests run


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "leaves_open(why): the test leaves a task, socket or session on purpose"
    )
    for cls in (aiohttp.ClientSession, aiohttp.BaseConnector, Connection):
        _watch(cls)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the task check around each coroutine test, outside every other fixture of it."""
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.function):
            item.fixturenames.insert(0, "no_task_left")


@pytest.fixture
async def no_task_left(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Fail when a task outlives the test and all of its fixtures."""
    yield
    if request.node.get_closest_marker("leaves_open"):
        return
    for _ in range(3):  # a cancelled task needs a turn of the loop to end
        await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, f"tasks left running: {left}"


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Iterator[Any]:
    """The resources of a module's or the session's fixture are no leak of one test."""
    if fixturedef.scope == "function":
        return (yield)
    before = open_descriptors()
    try:
        return (yield)
    finally:
        _shared.update(open_descriptors() - before)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[Any]:
    item.stash[_BEFORE] = open_descriptors()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[Any]:
    result = yield
    on_purpose = item.get_closest_marker("leaves_open") is not None
    left = set() if on_purpose else _settle(item.stash[_BEFORE])
    unclosed = [thing for thing in _live if _is_open(thing)]
    _live.clear()
    assert on_purpose or not unclosed, f"left unclosed: {unclosed}"
    assert not left, f"descriptors left open: {sorted(left)}"
    return result


_BEFORE = pytest.StashKey[set[str]]()
