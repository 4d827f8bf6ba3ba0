"""Divides the suite in three: the default cases, those that need a real part, and the long sweeps.

``@pytest.mark.real``: the case needs Redis, a browser, node, another process, or a package that only examples
use. A case that takes a fixture of such a part is marked by itself. ``@pytest.mark.sweep``: it runs for long.
All others are the default suite, whose cases may take at most ten seconds of real time each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

LONGEST_SECONDS = 10.0
"""What waits longer, waits in real time: make its time virtual, or await the event."""

REAL_FIXTURES = {"browser", "own_redis", "redis_client", "redis_server", "run_block", "shared_redis"}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real: needs a real part or another process; `tox -e real` runs it")
    config.addinivalue_line("markers", "sweep: runs for long; `tox -e sweep` runs it")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a case whose fixtures need a real part."""
    if REAL_FIXTURES & set(getattr(item, "fixturenames", ())):
        item.add_marker("real")


def is_default(item: pytest.Item) -> bool:
    """Return whether the case belongs to the default suite."""
    return not any(item.iter_markers("real")) and not any(item.iter_markers("sweep"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[object]:
    """Fail a default case that took longer than its limit; a run for the debugger has none."""
    started = time.monotonic()
    result = yield
    seconds = time.monotonic() - started
    if is_default(item) and seconds > LONGEST_SECONDS and not item.config.getoption("usepdb"):
        pytest.fail(
            f"the case took {seconds:.0f} s of real time; mark it as real or sweep, or let it not wait"
        )
    return result
