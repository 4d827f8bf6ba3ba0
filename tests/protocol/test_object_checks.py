"""A wrong object or function is refused where it is passed, and the error says what to pass."""

from __future__ import annotations

import aiohttp
import pytest

from mintlify_async import ConfigurationError, MemoryStore, MintlifySession


async def later(*arguments):
    """A hook that would never run: its coroutine is not awaited."""


def refused(make, **arguments):
    with pytest.raises(ConfigurationError) as caught:
        make(**arguments)
    [field] = arguments
    assert caught.value.field == field
    assert str(caught.value).startswith(field)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"ledger": "redis://:secret@host/0"},
        {"ledger": MemoryStore},
        {"timeouts": aiohttp.ClientTimeout(total=5)},
        {"timeouts": 3},
        {"timeouts": 0},
        {"ssl": False},
        *({"proxy": url} for url in ("localhost:3128", "http://", "https:///path", "http://[bad")),
        *({"site": site} for site in ("docs.acme.com", "//docs.acme.com", "", 7)),
        {"retrieval_page_size": "5"},
        {"allow_insecure_http": "false"},
        {"extra_body": 3},
    ],
    ids=repr,
)
def test_a_session_refuses_a_wrong_object(arguments):
    """At once, not with an AttributeError at the first request."""
    refused(MintlifySession, **arguments)


async def test_a_conversation_refuses_a_wrong_store(session):
    """Where it is made: its first turn would pay for an answer that it cannot keep."""
    refused(session.conversation, store="x.sqlite")
    refused(session.conversation, store=MemoryStore)


async def test_a_function_is_checked_before_a_job_is_paid_for(service, session):
    """run_job creates nothing when what comes after the creation cannot work."""
    for wrong in (later, "x"):
        with pytest.raises(ConfigurationError) as caught:
            await session.run_job("x", on_created=wrong)
        assert caught.value.field == "on_created"
    reply = session.ask("x")
    refused(reply.edits, tail=later)
    await reply.close()
    assert not service.requests


def test_redis_stores_refuse_what_is_no_client():
    """An address, or a client that does not await."""
    redis = pytest.importorskip("redis")
    from mintlify_async.contrib.redis import RedisStore

    for wrong in ("redis://:secret@host/0", redis.Redis()):
        refused(RedisStore, client=wrong)
