"""Divides the suite into the default cases, the cases that need a real part, and the long sweeps.

``@pytest.mark.real``: the case needs Redis, Postgres, a browser, node, another process, or a package that
only examples use. A case that takes a fixture of such a part, or whose parameter is such a server, is marked
automatically.
``@pytest.mark.sweep``: it runs long.
All others are the default suite, whose cases may wait at most ten seconds of real time each.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import find
from hypothesis import strategies as st

LONGEST_WAIT = 10.0
"""A case in which this process does nothing for longer waits in real time. A slow computer fails no case."""

REAL_FIXTURES = {
    *(
        "browser",
        "cluster",
        "own_redis",
        "redis_client",
        "redis_server",
        "run_block",
        "shared_redis",
    ),
    *("own_postgres", "pgbouncer", "postgres_server", "shared_postgres"),
    "pytester",  # a complete run of pytest
}

PROCESS_EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"}

_processes: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real: needs a real part or another process; `tox -e real` runs it")
    config.addinivalue_line("markers", "sweep: runs for long; `tox -e sweep` runs it")
    sys.addaudithook(_note_process)


def _note_process(event: str, args: tuple[Any, ...]) -> None:
    if event in PROCESS_EVENTS:
        _processes.append(str(args[0]) if args else event)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a case whose fixtures or parameters need a real part."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    servers = ("redis", "postgres", "pgbouncer")
    server = any(isinstance(value, str) and value.startswith(servers) for value in parameters)
    if server or REAL_FIXTURES & set(getattr(item, "fixturenames", ())):
        item.add_marker("real")


def pytest_collection_finish() -> None:
    """Hide long-living objects from the collector, so that a ``gc.collect()`` in a case is quick."""
    # The first search makes hypothesis's Random, and fails if the collector does not see what refers to it.
    find(st.none(), lambda _: True)
    gc.collect()
    gc.freeze()


def is_default(item: pytest.Item) -> bool:
    """Return whether the case belongs to the default suite."""
    return not any(item.iter_markers("real")) and not any(item.iter_markers("sweep"))


def seconds() -> tuple[float, float]:
    """Return real time, and the time in which this process worked or queued for a processor."""
    queued = 0
    for thread in Path("/proc/self/task").glob("*/schedstat"):  # Linux only
        with contextlib.suppress(OSError):  # the thread has ended
            queued += int(thread.read_text().split()[1])
    return time.monotonic(), time.process_time() + queued / 1e9


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    _processes.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[object]:
    """Fail a default case that waited too long, or that started a process itself or by a fixture.

    A run for the debugger has no limit.
    """
    began, worked = seconds()
    result = yield
    if not is_default(item) or item.config.getoption("usepdb"):
        return result
    if _processes:
        pytest.fail(f"the case started {_processes}; mark it as real")
    ended, busy = seconds()
    busy -= worked
    waited = ended - began - busy
    if waited > max(LONGEST_WAIT, 2 * busy):  # a shared processor is away for as long as it is there
        pytest.fail(f"the case waited {waited:.0f} s; make its time virtual, or mark it as real or sweep")
    return result
