"""A session with everything it needs, for the tests of the protocol."""

from __future__ import annotations

import pytest

from mintlify_async import MintlifySession
from tests.support.secret_guard import Keys

KEYS = Keys()


@pytest.fixture
async def session():
    """A session with everything it needs, at the service's own address."""
    async with MintlifySession(
        project_id="acme", domain="acme-docs", admin_key=KEYS.admin, assistant_key=KEYS.assistant
    ) as session:
        yield session
