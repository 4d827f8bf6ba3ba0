"""``ask_per_user``: the share of each of the app's own users, in every store and in both modes."""

from __future__ import annotations

import asyncio
import json
import pickle
from typing import Any

import pytest

from mintlify_async import (
    APIConnectionError,
    ConfigurationError,
    Limit,
    MemoryStore,
    Quota,
    QuotaExceededError,
    SQLiteStore,
)
from mintlify_async.quota.quota import QuotaScope
from mintlify_async.testing import LocalService
from mintlify_async.testing.virtual_clock import VirtualTime

PER = 1.5
"""Seconds of a window in real time: a busy computer asks four questions in less."""


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    if request.param == "memory":
        return MemoryStore()
    if request.param == "sqlite":
        return SQLiteStore(tmp_path / "quota.sqlite")
    if request.param == "redis":
        redis = pytest.importorskip("mintlify_async.contrib.redis")
        return redis.RedisStore(request.getfixturevalue("redis_client"), timeout=20)
    return request.getfixturevalue("postgres_store")


@pytest.fixture
async def postgres_store(postgres_server: Any) -> Any:
    from mintlify_async.contrib.postgres import PostgresStore

    store = PostgresStore(postgres_server.url, timeout=20)
    await store.setup()
    yield store
    await store.close()


def scope(user: str, domain: str = "acme.com") -> QuotaScope:
    return QuotaScope(domain=domain, key="key", user=user)


async def used(quota: Quota, user: str) -> dict[str, int]:
    return {one.limit: one.amount - one.left for one in await quota.left("ask", scope(user))}


# ------------------------------------------------------------------ in every store


async def test_windows_of_two_lengths_in_one_store_do_not_end_each_others_slots(store: Any) -> None:
    """Neither for the same user nor for another one: a day's share stays used up beside a short window."""
    day = Quota(ask_per_user=Limit(1, per=86_400), ask_per_key=Limit(3, per=86_400), store=store)
    short = Quota(ask_per_user=Limit(1, per=0.05), ask_per_key=Limit(3, per=0.05), store=store)
    await day.lease("ask", scope("ann")).take()
    for user in ("ann", "bob", "cid", "ann", "bob"):
        await asyncio.sleep(0.1)
        await short.lease("ask", scope(user)).take()
    with pytest.raises(QuotaExceededError, match="this user's share"):
        await day.lease("ask", scope("ann")).take()
    assert (await used(day, "bob")) == {
        "ask_per_key": 1,
        "ask_per_organization": 6,
        "ask_per_address": 6,
        "ask_per_user": 0,
    }


async def test_a_user_whose_share_is_used_up_takes_nothing_of_the_shared_limits(store: Any) -> None:
    """The error names the user's limit. Another user still asks, and every shared slot is for a question."""
    quota = Quota(ask_per_user=Limit(2, per=3600), ask_per_key=5, store=store)
    for _ in range(2):
        await quota.lease("ask", scope("ann")).take()
    for _ in range(3):
        with pytest.raises(QuotaExceededError, match="this user's share") as refused:
            await quota.lease("ask", scope("ann")).take()
        assert refused.value.limit == "ask_per_user"
        assert 3500 < (refused.value.retry_after or 0) <= 3600
    await quota.lease("ask", scope("bob")).take()
    assert await used(quota, "ann") == {
        "ask_per_key": 3,
        "ask_per_organization": 3,
        "ask_per_address": 3,
        "ask_per_user": 2,
    }


async def test_a_shared_limit_that_is_used_up_takes_nothing_of_a_share(store: Any) -> None:
    """The error names the shared limit, and the user's share is as it was."""
    quota = Quota(ask_per_user=Limit(2, per=3600), ask_per_key=1, store=store)
    await quota.lease("ask", scope("ann")).take()
    for _ in range(2):
        with pytest.raises(QuotaExceededError, match="every slot") as refused:
            await quota.lease("ask", scope("bob")).take()
        assert refused.value.limit == "ask_per_key"
    assert (await used(quota, "bob"))["ask_per_user"] == 0


async def test_a_refund_gives_both_back(store: Any) -> None:
    """A question that was not sent takes neither of the user's share nor of the shared limits."""
    quota = Quota(ask_per_user=1, store=store)
    lease = await quota.lease("ask", scope("ann")).take()
    await lease.refund()
    assert set((await used(quota, "ann")).values()) == {0}
    await quota.lease("ask", scope("ann")).take()


async def test_a_call_waits_for_the_share_of_its_user(store: Any) -> None:
    """The third question comes a window after the first, and another user does not wait for it."""
    loop = asyncio.get_running_loop()
    quota = Quota(ask_per_user=Limit(2, per=PER), mode="wait", store=store)
    start = loop.time()
    for _ in range(2):
        await quota.lease("ask", scope("ann")).take()
    third = asyncio.create_task(quota.lease("ask", scope("ann")).take())
    await asyncio.sleep(0.1)
    assert quota.waiting == 1
    bob = await quota.lease("ask", scope("bob")).take()
    assert bob.waited < PER / 2
    await third
    assert PER - 0.01 <= loop.time() - start < 10 * PER


@pytest.mark.parametrize("mode", ["raise", "wait"])
async def test_two_hundred_at_once(store: Any, mode: Any) -> None:
    """Ten users with twenty questions each, seven allowed: exactly seventy are sent, seven of each user."""
    quota = Quota(ask_per_user=Limit(7, per=3600), mode=mode, store=store)
    loop = asyncio.get_running_loop()
    calls = [
        quota.lease("ask", scope(f"user {number % 10}")).take(deadline=loop.time() + 60)
        for number in range(200)
    ]
    results = await asyncio.gather(*calls, return_exceptions=True)
    taken = [number % 10 for number, result in enumerate(results) if not isinstance(result, Exception)]
    assert [taken.count(user) for user in range(10)] == [7] * 10
    assert {type(result) for result in results if isinstance(result, Exception)} == {QuotaExceededError}
    assert await used(quota, "user 0") == {
        "ask_per_key": 70,
        "ask_per_organization": 70,
        "ask_per_address": 70,
        "ask_per_user": 7,
    }


# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    "name",
    ["ann:bob", "a/b{c}", "{x}", "a b\n", "Åsa 🎉", "%s", "../..", "*", "x" * 5000],
)
async def test_any_name_is_counted_and_no_store_has_it(store: Any, name: str) -> None:
    """A key of the store has the hash of the user, never the name, and each name has its own count."""
    quota = Quota(ask_per_user=1, store=store)
    await quota.lease("ask", scope(name)).take()
    await quota.lease("ask", scope(f"{name}2")).take()
    with pytest.raises(QuotaExceededError):
        await quota.lease("ask", scope(name)).take()
    assert not any(name in window.key for window in quota.lease("ask", scope(name))._gate.windows)


async def test_users_of_two_sites_with_one_name_do_not_share() -> None:
    """``fp="1"`` of one customer's site is another person than that of the next site."""
    quota = Quota(ask_per_user=1)
    await quota.lease("ask", scope("1", "acme.com")).take()
    await quota.lease("ask", scope("1", "other.com")).take()


# ------------------------------------------------------------------ waiting


@pytest.fixture
async def service(virtual: VirtualTime) -> Any:
    async with LocalService() as service:
        yield service


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_nobody_waits_behind_a_user_without_a_share(virtual: VirtualTime) -> None:
    """Ann's calls stand in her own line. The shared limit keeps the order of the others."""
    quota = Quota(ask_per_user=Limit(1, per=1000), ask_per_key=Limit(2, per=100), mode="wait")
    order: list[tuple[str, float]] = []
    start = now()

    async def ask(user: str) -> None:
        await quota.lease("ask", scope(user)).take()
        order.append((user, round(now() - start, -1)))

    async with asyncio.TaskGroup() as group:
        for user in ("ann", "ann", "ann", "bob", "cid", "dora"):
            group.create_task(ask(user))
        await asyncio.sleep(1)
        assert quota.waiting == 4
    assert order == [("ann", 0), ("bob", 0), ("cid", 100), ("dora", 100), ("ann", 1000), ("ann", 2000)]
    assert quota.waiting == 0


async def test_a_refund_wakes_the_user(virtual: VirtualTime) -> None:
    """A waiting call of the user takes a slot that is given back, and does not wait for the window."""
    quota = Quota(ask_per_user=Limit(1, per=1000), mode="wait")
    first = await quota.lease("ask", scope("ann")).take()
    second = asyncio.create_task(quota.lease("ask", scope("ann")).take())
    await asyncio.sleep(1)
    await first.refund()
    assert (await second).waited == pytest.approx(1, abs=0.1)


async def test_a_waiting_call_says_that_the_share_is_the_reason(virtual: VirtualTime) -> None:
    """The first of the user and the one behind it both name his limit, and are refused at once."""
    quota = Quota(ask_per_user=Limit(1, per=1000), mode="wait")
    await quota.lease("ask", scope("ann")).take()
    waiting = asyncio.create_task(quota.lease("ask", scope("ann")).take())
    await asyncio.sleep(1)
    for seconds in (10, 20):
        with pytest.raises(QuotaExceededError, match="deadline") as refused:
            await quota.lease("ask", scope("ann")).take(deadline=now() + seconds)
        assert refused.value.limit == "ask_per_user"
    waiting.cancel()


# ------------------------------------------------------------------ in a session


async def test_a_session_counts_each_user(service: LocalService) -> None:
    """By the fp of the question; refused before anything is sent; each user sees what he has left."""
    quota = Quota(ask_per_user=Limit(2, per=3600))
    async with service.session(quota=quota) as session:
        for _ in range(2):
            await session.ask("Hello", fp="ann")
        with pytest.raises(QuotaExceededError) as refused:
            await session.ask("Hello", fp="ann")
        copy = pickle.loads(pickle.dumps(refused.value))
        assert (copy.limit, copy.retry_after) == ("ask_per_user", refused.value.retry_after)
        await session.conversation(fp="bob").ask("Hello")
        assert service.requests.count("ask") == 3
        left = {user: await session.quota_left("ask", fp=user) for user in ("ann", "bob", "cid")}
        assert [{one.limit: one.left for one in left[user]}["ask_per_user"] for user in left] == [0, 1, 2]
        assert [one.limit for one in await session.quota_left("ask")] == [
            "ask_per_key",
            "ask_per_organization",
            "ask_per_address",
        ]


async def test_the_fp_that_is_sent_is_counted(service: LocalService) -> None:
    """Also where ``extra_body`` replaces it, of the session or of the question."""
    async with service.session(quota=Quota(ask_per_user=1)) as session:
        await session.ask("Hello", fp="ann")
        with pytest.raises(QuotaExceededError):
            await session.ask("Hello", fp="bob", extra_body={"fp": "ann"})
        with pytest.raises(QuotaExceededError):
            await session.with_options(extra_body={"fp": "ann"}).ask("Hello", fp="cid")
        for fp in ("anonymous", None, 5):
            with pytest.raises(ConfigurationError) as error:
                session.ask("Hello", fp="dora", extra_body={"fp": fp})
            assert error.value.field == "fp"
    assert [json.loads(request.body)["fp"] for request in service.requests] == ["ann"]


async def test_a_question_that_was_not_sent_gives_its_slots_back(service: LocalService) -> None:
    """No server was found, so the user may ask again."""
    async with service.session(quota=Quota(ask_per_user=1)) as session:
        async with service.refusing():
            with pytest.raises(APIConnectionError):
                await session.ask("Hello", fp="ann")
        await session.ask("Hello", fp="ann")


@pytest.mark.parametrize("fp", [None, "anonymous", "Anonymous", " anonymous "])
async def test_a_question_needs_a_user(service: LocalService, fp: str | None, tmp_path: Any) -> None:
    """All would share the count: a ConfigurationError when the question is made, before any I/O."""
    store = SQLiteStore(tmp_path / "chats.sqlite")
    async with service.session(quota=Quota(ask_per_user=1)) as session:
        chat = session.conversation(fp=fp, owner="ann", store=store, id="c")
        for ask in (lambda: session.ask("Hello", fp=fp), lambda: chat.ask("Hello")):
            with pytest.raises(ConfigurationError, match="ask_per_user") as error:
                ask()
            assert error.value.field == "fp"
        if fp is not None:
            with pytest.raises(ConfigurationError):
                await session.quota_left("ask", fp=fp)
        await session.with_options(fp="ann").ask("Hello")
        await session.create_job("Fix it")  # a job has no user
    assert service.requests.count("ask") == 1
    assert not (tmp_path / "chats.sqlite").exists()


async def test_without_the_limit_nobody_needs_a_name(service: LocalService) -> None:
    """An anonymous question is counted for the shared limits alone."""
    async with service.session(quota=Quota()) as session:
        await session.ask("Hello")
        assert "ask_per_user" not in [one.limit for one in await session.quota_left("ask", fp="anonymous")]


# ------------------------------------------------------------------ users who never come again


async def test_slots_of_users_who_left_are_deleted(virtual: VirtualTime) -> None:
    """Of three thousand users who asked once, a hundred in each hour, most have left no row."""
    store, groups, each = MemoryStore(), 30, 100
    shared = {"ask_per_key": None, "ask_per_organization": None, "ask_per_address": None}
    quota = Quota(ask_per_user=Limit(5, per=3600), store=store, **shared)  # type: ignore[arg-type]
    for group in range(groups):
        for user in range(each):
            await quota.lease("ask", scope(f"{group} {user}")).take()
        await asyncio.sleep(3601)
    (count,) = store._db.execute("SELECT count(*) FROM slots").fetchone()
    assert each <= count <= 3 * each
