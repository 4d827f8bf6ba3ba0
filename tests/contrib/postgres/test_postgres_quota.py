"""The quota on a real Postgres, in four processes whose clocks are minutes apart."""

from __future__ import annotations

import asyncio
import sys

import pytest

from mintlify_async.contrib.postgres import PostgresStore
from tests.support.child_process import run_to_end
from tests.support.postgres_server import PostgresServer

WORKER = """
import asyncio, sys, time
true_time, skew = time.time, float(sys.argv[2])
time.time = lambda: true_time() + skew  # before anything of ours is imported

import asyncpg, uvloop
from mintlify_async import Limit, Quota, QuotaExceededError
from mintlify_async.quota.quota import QuotaScope
from mintlify_async.quota.quota import Lease
from mintlify_async.runtime import clock
from tests.support.keyed_worker import opened

assert abs(clock.now() - true_time() - skew) < 1

async def take(quota):
    return await quota.lease("create_job", QuotaScope(project="p")).take()

async def call(quota):
    return [await asyncio.gather(take(quota), return_exceptions=True) for _ in range(4)]

async def main():
    other = await asyncpg.connect(sys.argv[1].replace("+asyncpg", ""), statement_cache_size=0)
    async with opened(sys.argv[1], timeout=20) as store:
        quota = Quota(create_job=Limit(100, per=60), store=store)
        await other.execute("INSERT INTO ready VALUES (1)")
        while await other.fetchval("SELECT count(*) FROM ready") < 4:
            await asyncio.sleep(0.01)
        calls = await asyncio.gather(*(call(quota) for _ in range(25)))
    results = [result for rows in calls for [result] in rows]
    assert all(isinstance(result, Lease | QuotaExceededError) for result in results), results
    print(sum(isinstance(result, Lease) for result in results), len(results))
    await other.close()

with asyncio.Runner(loop_factory=uvloop.new_event_loop if sys.argv[3] == "uvloop" else None) as runner:
    runner.run(main())
"""


WAYS = [
    ("direct", "read committed"),
    ("direct", "repeatable read"),
    ("direct", "serializable"),
    ("pgbouncer", "read committed"),
    ("pgbouncer", "repeatable read"),
    ("pgbouncer", "serializable"),
    ("sqlalchemy", "repeatable read"),
]
"""How the server is reached, and the level of the role."""


@pytest.mark.parametrize(("way", "level"), WAYS)
async def test_four_processes_keep_one_limit(
    request: pytest.FixtureRequest,
    postgres_server: PostgresServer,
    store: PostgresStore,
    way: str,
    level: str,
):
    """Of 400 calls, exactly a hundred get a slot, whatever the level of the role is."""
    url = postgres_server.url
    if way == "pgbouncer":
        url = request.getfixturevalue("pgbouncer").url
    elif way == "sqlalchemy":
        pytest.importorskip("sqlalchemy")
        url = url.replace(":", "+asyncpg:", 1)
    postgres_server.say(
        "CREATE TABLE ready (a int)",
        f"ALTER DATABASE {postgres_server.database} SET default_transaction_isolation = '{level}'",
    )
    loop = "uvloop" if "uvloop" in type(asyncio.get_running_loop()).__module__ else "asyncio"
    async with asyncio.TaskGroup() as group:  # if one process fails, the others also end
        tasks = [
            group.create_task(run_to_end(sys.executable, "-c", WORKER, url, skew, loop))
            for skew in ("-420", "-60", "0", "300")
        ]
    counts = [[int(number) for number in task.result().split()] for task in tasks]
    assert [sum(column) for column in zip(*counts, strict=True)] == [100, 400]
