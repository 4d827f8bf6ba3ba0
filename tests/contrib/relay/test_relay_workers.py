"""Limits that hold for all workers together, counted on a real Redis; the relay's own are for one process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("fastapi")

from relay_desk import TURN, x_user
from relay_kit import SECRET, request_of, user_message
from starlette.requests import Request

from mintlify_async import Limit, Quota
from mintlify_async.contrib.redis import RedisQuotaStore
from mintlify_async.contrib.relay import Relay
from mintlify_async.testing import LocalService

ASKED = {"messages": [user_message("q")]}


@asynccontextmanager
async def workers(redis: Any, quota: bool = False, **settings: Any) -> AsyncIterator[tuple[Any, ...]]:
    """Two relays with sessions, quotas and stores of their own, as two processes have, and the service."""
    limits: dict[str, Any] = {"ask_per_organization": Limit(3, per=60), "mode": "wait"}
    one_quota, other_quota = (
        Quota.interface(**limits, store=RedisQuotaStore(redis, timeout=5.0)) if quota else None for _ in "ab"
    )
    async with (
        LocalService() as service,
        service.session(quota=one_quota) as one,
        service.session(quota=other_quota) as other,
    ):
        service.script.ask(events=TURN, times=None)
        yield (
            *(Relay(session, secrets=[SECRET], user=x_user, **settings) for session in (one, other)),
            service,
        )


async def asked(relay: Relay, user: str = "ada") -> tuple[int, int]:
    """Return the status, and the seconds after which to ask again, or 0; read the answer if there is one."""
    request = request_of(ASKED, user=user)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    response = await relay.respond(request)
    await response(request.scope, request.receive, send)
    return sent[0]["status"], int(dict(sent[0]["headers"]).get(b"retry-after", 0))


async def test_a_quota_on_redis_holds_for_all_workers(redis_client):
    """Three questions a minute, whichever worker gets them; the fourth is told when, and is not sent."""
    async with workers(redis_client, quota=True) as (one, other, service):
        for relay in (one, other, one):
            assert await asked(relay) == (200, 0)
        for relay in (one, other):
            status, wait = await asked(relay)
            assert status == 429
            assert 2 < wait <= 62
        assert service.requests.count("ask") == 3


async def test_a_rate_hook_on_redis_holds_for_each_user(redis_client):
    """The hook of the documentation: two questions a minute for each user, whichever worker gets them."""

    async def rate(user: str, request: Request) -> float | None:
        key, most = f"{request.method}:{user}", 2 if request.method == "POST" else 120
        await redis_client.set(key, 0, ex=60, nx=True)
        return None if await redis_client.incr(key) <= most else await redis_client.ttl(key)

    async with workers(redis_client, rate=rate) as (one, other, service):
        assert [await asked(relay) for relay in (one, other)] == [(200, 0)] * 2
        status, wait = await asked(one)
        assert status == 429
        assert 50 < wait <= 60
        assert await asked(other, "bob") == (200, 0)
        assert service.requests.count("ask") == 3
