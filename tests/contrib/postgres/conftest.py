"""Each case here runs on asyncio's loop and on uvloop's. A store in the test's own, empty database."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mintlify_async.contrib.postgres import PostgresStore
from tests.support.event_loops import LOOP_FACTORIES
from tests.support.postgres_server import PostgresServer


def pytest_asyncio_loop_factories():
    return LOOP_FACTORIES


@pytest.fixture
async def store(postgres_server: PostgresServer) -> AsyncIterator[PostgresStore]:
    """A store with its table."""
    store = PostgresStore(postgres_server.url, timeout=20)
    await store.setup()
    yield store
    await store.close()
