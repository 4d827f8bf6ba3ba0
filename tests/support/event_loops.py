"""Chooses the event loop of the tests: asyncio's, or uvloop's when ``MINTLIFY_ASYNC_LOOP=uvloop`` is set.

The tests in ``tests/real_time`` always run on both. uvloop's time cannot be made virtual. So when all tests
run on uvloop, a case that takes virtual time is skipped: before its set-up if one of its fixtures shows it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator

import pytest
import uvloop

LOOP_FACTORIES = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}

ON_UVLOOP = os.environ.get("MINTLIFY_ASYNC_LOOP") == "uvloop"
"""Set by ``tox -e uvloop``."""

VIRTUAL_FIXTURES = {"virtual", "mintlify_time"}
"""A case that takes one of them, even through another fixture, needs virtual time."""

VIRTUAL_ONLY = re.compile("be made virtual|asyncio's own")
"""Found in the errors of virtual time on another loop."""

# uvloop's first loop in a process opens a pipe for signals that stays open. No test is to blame for that.
uvloop.new_event_loop().close()


def pytest_configure() -> None:
    if ON_UVLOOP:
        # Every new loop: that of a case, of `asyncio.run` in a case, and of a thread. A loop policy would do
        # the same, but Python 3.16 has none.
        asyncio.new_event_loop = asyncio.events.new_event_loop = uvloop.new_event_loop


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if ON_UVLOOP:
        for item in items:
            if VIRTUAL_FIXTURES & set(getattr(item, "fixturenames", ())):
                item.add_marker(pytest.mark.skip(reason="uvloop's time cannot be virtual"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
    """Skip a case that starts virtual time without such a fixture. Its reason says so."""
    report: pytest.TestReport = yield
    if ON_UVLOOP and report.failed and VIRTUAL_ONLY.search(str(call.excinfo)):
        report.outcome = "skipped"
        reason = "Skipped: uvloop's time cannot be virtual, which only the running test showed"
        report.longrepr = (str(item.path), item.location[1] or 0, reason)
    return report
