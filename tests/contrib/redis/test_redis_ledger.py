"""The ledger on a real Redis: what only this one has; the promises of all are in test_ledger."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from redis_server import RedisServer, Stutter, run_all, run_python

from mintlify_async.contrib.redis import RedisConversationStore, RedisLedger
from mintlify_async.errors import ConfigurationError, OutcomeUnknownError, StateError
from mintlify_async.jobs.create_once import create_once
from mintlify_async.model.job import Job
from mintlify_async.runtime.clock import SystemClock
from mintlify_async.storage import Claim


def a_claim(key: str = "k", token: str = "t1", at: float | None = None, lease: float = 65.0) -> Claim:
    at = SystemClock().wall() if at is None else at
    return Claim(key=key, fingerprint="f", token=token, claimed_at=at, lease_until=at + lease)


class Skewed(SystemClock):
    """A computer whose wall clock is minutes off."""

    def __init__(self, by: float) -> None:
        self.by = by

    def wall(self) -> float:
        return super().wall() + self.by


@pytest.mark.parametrize("decode", [True, False])
async def test_a_claim_comes_back_as_it_was(redis_server: RedisServer, decode: bool):
    """Every field, whether the client decodes replies or not; open claims are listed until recorded."""
    async with redis_server.client(decode_responses=decode) as client:
        ledger, claim = RedisLedger(client), a_claim("schlüssel 🗝")
        assert await ledger.claim(claim) == claim
        assert await ledger.find(claim.key) == claim
        assert await ledger.open_claims() == [claim]
        await ledger.record(claim, "job_1")
        found = await ledger.find(claim.key)
        assert found is not None
        assert found.job_id == "job_1"
        assert await ledger.open_claims() == []


@pytest.mark.parametrize(("version", "named"), [("99", "format version 99"), (None, "no format version")])
async def test_a_claim_of_an_unknown_version_is_refused(redis_client: Any, version: str | None, named: str):
    """It is neither believed nor written over; the error names the key and what to do. forget() frees it."""
    ledger = RedisLedger(redis_client)
    await ledger.claim(a_claim())
    (key,) = [key.decode() for key in await redis_client.keys("*claim*")]
    if version is None:  # as before there were versions
        await redis_client.hdel(key, "claim")
        await redis_client.hset("mintlify:{ledger}:open", key, json.dumps({"key": "k"}))
    else:
        later = json.dumps({"version": int(version), "later": True})
        await redis_client.hset(key, "claim", later)
        await redis_client.hset("mintlify:{ledger}:open", key, later)
    before = await redis_client.hgetall(key)
    for step in (
        ledger.claim(a_claim(token="t2")),
        ledger.find("k"),
        ledger.resolve("k", "job_1"),
        ledger.open_claims(),
    ):
        with pytest.raises(StateError, match=named) as caught:
            await step
        assert "the Redis key 'mintlify:{ledger}:" in str(caught.value)
        assert "another namespace=" in str(caught.value)
    assert await redis_client.hgetall(key) == before
    await ledger.forget("k")
    assert await ledger.find("k") is None
    assert await ledger.open_claims() == []


@pytest.mark.parametrize("skew", [-600.0, 600.0])
async def test_a_lease_is_measured_on_the_servers_clock(redis_server: RedisServer, skew: float):
    """The loser, whose clock is ten minutes off, waits for the winner as long as the lease."""
    async with redis_server.client() as mine, redis_server.client() as yours:
        await RedisLedger(mine).claim(a_claim(lease=30.0))
        clock, there = Skewed(skew), RedisLedger(yours)
        held = await there.claim(a_claim(token="t2", at=clock.wall()))
        assert held.token == "t1"
        assert held.lease_until - clock.wall() == pytest.approx(30, abs=5)
        found = await there.find("k")
        assert found is not None
        assert found.lease_until == pytest.approx(held.lease_until, abs=0.01)


async def test_a_client_that_sends_a_claim_twice_holds_it(redis_client: Any):
    """A client's own retry after a lost answer finds its own claim, and it is still ours."""
    claim = a_claim()
    assert await RedisLedger(Stutter(redis_client)).claim(claim) == claim


async def test_keys_contain_no_names_and_live_on_one_node(redis_client: Any):
    """A dedupe_key may name a customer: keys are fingerprints, with one hash tag for a cluster."""
    await RedisLedger(redis_client).claim(a_claim("customer-4711"))
    keys = [key.decode() for key in await redis_client.keys("*")]
    assert len(keys) == 2
    assert all(key.startswith("mintlify:{ledger}:") and "4711" not in key for key in keys)


async def test_namespaces_are_apart(redis_client: Any):
    """Staging and production may share a Redis."""
    await RedisLedger(redis_client).claim(a_claim())
    assert await RedisLedger(redis_client, namespace="staging").find("k") is None


async def test_recorded_keys_are_kept_as_long_as_asked(redis_client: Any):
    """By default for ever; with keep= only recorded ones expire: an open claim never does."""
    ledger = RedisLedger(redis_client, keep=3600)
    for key in ("open", "recorded", "resolved"):
        await ledger.claim(a_claim(key))
    await ledger.record(a_claim("recorded"), "job_1")
    await ledger.resolve("resolved", "job_2")
    lives = sorted([await redis_client.ttl(key) for key in await redis_client.keys("*:claim:*")])
    assert lives[0] == -1
    assert lives[1:] == pytest.approx([3600, 3600], abs=5)


async def test_redis_away_means_no_post(own_redis: Callable[..., RedisServer]):
    """A claim that cannot be written stops the creation before anything is sent."""
    server, sent = own_redis(), []

    async def send() -> Job:
        sent.append(1)
        return Job(id="job_1", status="active")

    async with server.client() as client:
        server.kill()
        with pytest.raises(StateError, match="the ledger on Redis cannot be used: ConnectionError"):
            await create_once(RedisLedger(client), "k", "f", 5.0, send, SystemClock())
    assert not sent


async def test_a_restart_between_claim_and_record_never_sends_twice(own_redis: Callable[..., RedisServer]):
    """Redis dies during the POST: the job is returned, its claim stays open and is not sent again."""
    server, sent = own_redis(durable=True), []

    async def send() -> Job:
        server.kill()
        sent.append(1)
        return Job(id="job_1", status="active")

    async with server.client() as client:
        ledger, clock = RedisLedger(client), SystemClock()
        job = await create_once(ledger, "k", "f", 0.1, send, clock)
        assert isinstance(job, Job)
        server.start()
        with pytest.raises(OutcomeUnknownError):
            await create_once(ledger, "k", "f", 0.1, send, clock)
        assert len(sent) == 1
        (held,) = await ledger.open_claims()
        await ledger.resolve(held.key, "job_1")
        assert await create_once(ledger, "k", "f", 0.1, send, clock) == "job_1"


async def test_a_redis_that_never_answers_is_an_error_in_time():
    """A partition costs one timeout."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        finally:
            writer.close()

    from redis.asyncio import Redis

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Redis(host="127.0.0.1", port=port, socket_timeout=3600) as client:
            with pytest.raises(StateError, match="TimeoutError"):
                await RedisLedger(client, timeout=0.1).claim(a_claim())


RACER = """
import asyncio, json, sys
from mintlify_async.runtime.clock import SystemClock
from mintlify_async.contrib.redis import RedisConversationStore, RedisLedger
from mintlify_async.jobs.create_once import create_once
from mintlify_async.model.job import Job
from redis.asyncio import Redis

url, number, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])

async def main():
    got = []
    async with Redis.from_url(url) as client:
        ledger = RedisLedger(client, timeout=20)
        await client.incr("ready")
        while int(await client.get("ready")) < 3:
            await asyncio.sleep(0.01)
        async def one(turn):
            async def send():
                await client.incr(f"posts-{turn}")
                return Job(id=f"job-{turn}-{number}", status="active")
            job = await create_once(ledger, f"key-{turn}", "f", 30.0, send, SystemClock())
            got.append([turn, job if isinstance(job, str) else job.id])
        await asyncio.gather(*(one(turn) for turn in range(rounds)))
    print(json.dumps(sorted(got)))

asyncio.run(main())
"""


async def test_of_three_processes_one_sends(redis_server: RedisServer, redis_client: Any):
    """Three processes race for each of forty keys: one POST each, and all three have the same job."""
    results = await run_all(*(run_python(RACER, redis_server.url, str(number), "40") for number in range(3)))
    assert results[0] == results[1] == results[2]
    assert [int(await redis_client.get(f"posts-{turn}")) for turn in range(40)] == [1] * 40


DEADLY = """
import asyncio, os, signal, sys
from mintlify_async.runtime.clock import SystemClock
from mintlify_async.contrib.redis import RedisConversationStore, RedisLedger
from mintlify_async.errors import OutcomeUnknownError
from mintlify_async.jobs.create_once import create_once
from mintlify_async.model.job import Job
from redis.asyncio import Redis

url, step = sys.argv[1:]

def die(here):
    if here == step:
        os.kill(os.getpid(), signal.SIGKILL)

class Deadly(RedisLedger):
    async def claim(self, claim):
        die("before the claim")
        held = await super().claim(claim)
        die("after the claim")
        return held

    async def record(self, claim, job_id):
        die("before the record")
        await super().record(claim, job_id)
        die("after the record")

async def main():
    async with Redis.from_url(url) as client:
        async def send():
            await client.incr("posts")
            die("after the POST")
            return Job(id="job_1", status="active")
        try:
            job = await create_once(Deadly(client, timeout=20), "k", "f", 0.5, send, SystemClock())
            print(job if isinstance(job, str) else job.id)
        except OutcomeUnknownError:
            print("unknown")

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("step", "posts", "second"),
    [
        ("before the claim", 1, "job_1"),
        ("after the claim", 0, "unknown"),
        ("after the POST", 1, "unknown"),
        ("before the record", 1, "unknown"),
        ("after the record", 1, "job_1"),
    ],
)
async def test_killed_at_each_step_there_is_never_a_second_post(
    redis_server: RedisServer, redis_client: Any, step: str, posts: int, second: str
):
    """The next process gets the job, or an unknown outcome; it never sends what may have been sent."""
    await run_python(DEADLY, redis_server.url, step, status=-signal.SIGKILL)
    assert await run_python(DEADLY, redis_server.url, "never") == second
    assert int(await redis_client.get("posts") or 0) == posts


async def test_loops_in_other_threads_may_share_it(redis_client: Any):
    """A session serves several loops; so does its ledger, though a client's connections belong to one."""
    ledger, won = RedisLedger(redis_client, timeout=20), []
    await ledger.find("k")

    def work(token: str) -> None:
        won.append(asyncio.run(ledger.claim(a_claim(token=token))).token)

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert len(set(won)) == 1


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"namespace": "{"}, "namespace"),
        ({"namespace": "a}"}, "namespace"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"keep": 0}, "keep"),
        ({"keep": "60"}, "keep"),
        ({"keep": float("inf")}, "keep"),
        ({"keep": True}, "keep"),
    ],
)
@pytest.mark.parametrize("store", [RedisLedger, RedisConversationStore])
def test_a_bad_argument_is_refused_by_name(store: Any, arguments: dict[str, Any], field: str):
    """Before anything is sent."""
    from redis.asyncio import Redis

    client = Redis()  # connects with its first command
    with pytest.raises(ConfigurationError) as error:
        store(client, **arguments)
    assert error.value.field == field
    assert str(error.value).startswith(field)
    assert repr(RedisLedger(client)) == "RedisLedger(namespace='mintlify')"
