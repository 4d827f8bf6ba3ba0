"""open_store: a store by its URL."""

from __future__ import annotations

from typing import Any

import pytest

from mintlify_async.contrib.store_urls import open_store
from mintlify_async.errors import ConfigurationError


@pytest.mark.parametrize("server", ["redis_server", "postgres_server"])
async def test_a_store_is_ready_at_once(request: pytest.FixtureRequest, server: str):
    """Also the second time, when its table exists."""
    url = request.getfixturevalue(server).url
    for version in ("one", "two"):
        async with open_store(url) as store:
            assert await store.write({"room/open/a": b"1"}, expected={}, version=version)
    async with open_store(url, setup=False) as store:
        assert (await store.read(["room/open/a"])).records["room/open/a"].version == "two"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ledger.db",
        "mysql://u:s3cr3t@h/d",
        "postgresql+asyncpg://u:s3cr3t@h/d",
        "postgresql:u:s3cr3t@h/d",
        "postgresql://u:s3cr3t/x@h/d",
        "redis://:s3cr3t/x@h",
        "redis://h:s3cr3t",
        None,
        7,
    ],
)
async def test_another_url_is_refused(url: Any):
    """Before anything is sent, and without the password in the text or the cause."""
    pytest.importorskip("asyncpg", reason="asyncpg is not installed")
    pytest.importorskip("redis", reason="redis is not installed")
    with pytest.raises(ConfigurationError) as caught:
        async with open_store(url):
            pass
    assert caught.value.field in ("url", "source")
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.__cause__ is None
