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
    assert len(str(caught.value)) < 160
    return str(caught.value)


@pytest.mark.parametrize(
    ("argument", "value", "advice"),
    [
        ("ledger", "redis://:secret@host/0", "a store such as SQLiteStore('mintlify.sqlite'), not a str"),
        ("ledger", MemoryStore, "MemoryStore"),
        ("timeouts", aiohttp.ClientTimeout(total=5), "must be Timeouts(…) or None; got ClientTimeout"),
        ("ssl", False, "must be SSLContext(…) or None; got bool"),
    ],
)
def test_a_session_refuses_a_wrong_object(argument, value, advice):
    """At once, not with an AttributeError at the first request."""
    text = refused(MintlifySession, **{argument: value})
    assert advice in text
    assert "secret" not in text


async def test_a_conversation_refuses_a_wrong_store(service):
    """Where it is made: its first turn would pay for an answer that it cannot keep."""
    async with service.session() as session:
        text = refused(session.conversation, store="x.sqlite")
        assert "SQLiteStore('mintlify.sqlite'), not a str" in text
        refused(session.conversation, store=MemoryStore)


async def test_a_function_is_checked_before_a_job_is_paid_for(service):
    """run_job creates nothing when what comes after the creation cannot work."""
    async with service.session() as session:
        for wrong in ({"on_created": later}, {"on_created": "x"}):
            with pytest.raises(ConfigurationError) as caught:
                await session.run_job("x", **wrong)
            assert [caught.value.field] == list(wrong)
        reply = session.ask("x")
        refused(reply.edits, tail=later)
        await reply.close()
    assert not service.requests


def test_redis_stores_refuse_what_is_no_client():
    """An address, or a client that does not await."""
    redis = pytest.importorskip("redis")
    from mintlify_async.contrib.redis import RedisStore

    for wrong in ("redis://:secret@host/0", redis.Redis()):
        text = refused(RedisStore, client=wrong)
        assert "redis.asyncio.Redis" in text
        assert "secret" not in text
