"""Never twice: killed workers, failing requests, and calls that are cancelled or closed at random moments.

``SWEEPS=whole python -m pytest tests/jobs/test_killed_workers.py -s`` runs all rounds and prints the counts.
One kind alone: ``-k workers_killed`` (150 rounds on each ledger), ``-k random_faults`` (10,000 keys on each),
``-k cancelled_and_closed`` (500 calls in each case), ``-k many_creations`` (3,000 at the same time).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
from asyncio import selector_events
from collections import Counter
from multiprocessing import forkserver

import pytest

from mintlify_async import APIConnectionError, Ledger, MemoryStore, OutcomeUnknownError, SQLiteStore
from mintlify_async.errors import APIStatusError
from mintlify_async.testing import JobLife, LocalService, Reset
from mintlify_async.testing.virtual_clock import virtual_time
from tests.support.keyed_worker import Worker, opened

WHOLE = os.environ.get("SWEEPS") == "whole"
ROUNDS = 150 if WHOLE else 2
FAULTS = 10_000 if WHOLE else 60
CANCELLED = 500 if WHOLE else 20
AT_ONCE = 3000 if WHOLE else 300
LONGEST_LIFE = 0.3
"""Seconds after which a worker that is to be killed has been killed. On an idle machine it needs 0.15 s."""

pytestmark = pytest.mark.sweep if WHOLE else pytest.mark.real


@pytest.fixture(scope="module")
def fork_server():
    """The process that forks the workers. It ends with the process of the tests."""
    forkserver.ensure_running()


@pytest.fixture(params=["sqlite", "redis", "postgres", "pgbouncer", "postgres-sqlalchemy"])
def ledger(request, tmp_path):
    """The ledger as the worker's first argument."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    if request.param == "postgres-sqlalchemy":
        pytest.importorskip("sqlalchemy")
        return request.getfixturevalue("postgres_server").url.replace(":", "+asyncpg:", 1)
    servers = {"redis": "redis_server", "postgres": "postgres_server", "pgbouncer": "pgbouncer"}
    return request.getfixturevalue(servers[request.param]).url


def prompts(service):
    """Count the POSTs by their prompts."""
    return Counter(request.json["prompt"] for request in service.requests if request.method == "POST")


async def killed_round(service, ledger, key, moments, *, later):
    """Let workers race, kill each at its moment, and perhaps let another one come later."""

    async def race(moments):
        workers = [Worker(service.environment, ledger, key) for _ in moments]
        for worker in workers:
            await worker.ready()
        return await asyncio.gather(*(worker.run(at) for worker, at in zip(workers, moments, strict=True)))

    said = await race(moments)
    survivors = [line for line, at in zip(said, moments, strict=True) if at is None]
    if later:
        survivors += await race([None])
    assert {line.split(" ")[0] for line in survivors} <= {"done", "unknown", "failed"}, said
    assert len({line for line in [*said, *survivors] if line.startswith("done")}) <= 1, said
    return survivors[0].split(" ")[0]


async def test_workers_killed_at_random_moments(ledger, fork_server):
    """Three workers race, two are killed, a fourth comes later: no request is ever seen twice."""
    dice, ends, burnt, places = random.Random(ledger[:5]), Counter(), 0, asyncio.Semaphore(10)
    async with LocalService(life=JobLife(looks=["completed"])) as service:
        service.script.create_job(delay=0.02, times=None)
        service.script.send_message(delay=0.02, times=None)

        async def one(number):
            moments = [dice.uniform(0, LONGEST_LIFE), dice.uniform(0, LONGEST_LIFE), None]
            async with places:
                later = number % 10 == 0 or not WHOLE  # two workers that survive say the same
                ends[await killed_round(service, ledger, f"key {number}", moments, later=later)] += 1

        async with asyncio.TaskGroup() as rounds:
            for number in range(ROUNDS):
                rounds.create_task(one(number))
        counts = prompts(service)
        assert set(counts.values()) <= {1}
        async with opened(ledger, timeout=60) as store:
            for claim in await Ledger(store).open_claims():
                follow_up = claim.key.endswith(" again")
                prompt = f"Follow up {claim.key[:-6]}" if follow_up else f"Create {claim.key}"
                ends[claim.state] += 1
                burnt += claim.state == "sending" and not counts[prompt]
    print(f"\n{ROUNDS} rounds, {sum(counts.values())} POSTs, none twice; {dict(ends)}; {burnt} burnt unsent")


FAULT_SCRIPTS = [
    {},
    {"status": 500},
    {"status": 503, "headers": {"Retry-After": "0"}},
    {"status": 400},
    {"status": 307, "headers": {"Location": "/elsewhere"}},
    {"status": 429, "headers": {"Retry-After": "0"}},
    {"fault": Reset()},
    {"body": b"<html>", "status": 200},
    {"fields": {"status": None}},
    {"delay": 10.0},
]


async def test_random_faults(ledger):
    """Each key is called up to three times: the service has accepted it once at most."""
    # A server answers in real time. A call after an unknown outcome waits.
    is_slow = ledger.startswith(("redis", "postgresql"))
    faults, calls_again = (FAULT_SCRIPTS[:-1], 0.0) if is_slow else (FAULT_SCRIPTS, 0.1)
    dice, ends = random.Random(ledger[:5]), Counter()
    with contextlib.nullcontext() if is_slow else virtual_time():
        async with (
            LocalService(life=JobLife(looks=["completed"])) as service,
            opened(ledger, timeout=60) as store,
            service.session(ledger=store) as session,
        ):
            job = await session.create_job("the job of the follow-ups")
            calls = {"create_job": session.create_job, "send_message": job.send}
            for number in range(FAULTS):
                service.script.clear()
                service.requests.clear()
                operation = dice.choice(list(calls))
                for attempt in range(3):
                    fault = dice.choice(faults) if attempt < 2 else {}
                    getattr(service.script, operation)(**fault)
                    try:
                        await calls[operation]("x", dedupe_key=f"key {number}", timeout=5)
                        ends["done"] += 1
                        break
                    except OutcomeUnknownError:
                        ends["unknown"] += 1
                        if dice.random() >= calls_again:
                            break
                    except (APIStatusError, APIConnectionError):
                        ends["refused"] += 1
                answers = [request.status for request in service.requests.of(operation)]
                accepted = [status for status in answers if status not in (400, 307, 429)]
                assert len(accepted) <= 1, (number, answers)
    print(f"\n{FAULTS} keys with random faults: {dict(ends)}; none accepted twice")


@pytest.fixture
def written(monkeypatch):
    """The prompts that were handed to a socket; an aborted connection may lose them on the way."""
    prompts = set()
    write = selector_events._SelectorSocketTransport.write

    def noting(self, data):
        prompts.update(re.findall(rb"prompt [0-9]+", bytes(data)))
        write(self, data)

    monkeypatch.setattr(selector_events._SelectorSocketTransport, "write", noting)
    return prompts


async def end_early(session, task, number):
    """Cancel *task*, or, each fourth time, close its session. Return how it has ended."""
    if number % 4:
        task.cancel()
    else:
        await session.close()
    await asyncio.wait([task])
    return "ended early" if task.cancelled() or task.exception() else "answered"


async def state_of(store, key):
    """Return the state of the key's claim."""
    claim = await Ledger(store).find(key)
    return "free" if claim is None else claim.state


@pytest.mark.parametrize("operation", ["create", "send"])
async def test_cancelled_and_closed_at_random_moments(ledger, operation, written):
    """From the claim to the record: no POST twice, and no key is burnt whose bytes never came."""
    dice, ends = random.Random(operation), Counter()

    def call(session, number):
        if operation == "create":
            return session.create_job(f"prompt {number}", dedupe_key=f"{operation} {number}")
        return session.job("job_1").send(f"prompt {number}", dedupe_key=f"{operation} {number}")

    async with LocalService() as service, opened(ledger, timeout=60) as store:
        async with service.session() as session:
            await session.create_job("the job of the follow-ups")
        service.script.create_job(delay=0.01, times=None)
        service.script.send_message(delay=0.01, times=None)
        for number in range(CANCELLED):
            session = service.session(ledger=store)
            task = asyncio.create_task(call(session, number))
            await asyncio.sleep(dice.uniform(0, 0.035))
            for _ in range(dice.randrange(6)):
                await asyncio.sleep(0)
            ends[await end_early(session, task, number)] += 1
            await session.close()
            sent = b"prompt %d" % number in written
            state = await state_of(store, f"{operation} {number}")
            ends[f"{state}, {'sent' if sent else 'not sent'}"] += 1
            assert not (state == "done" and not sent)
            if state in ("free", "done"):
                async with service.session(ledger=store) as again:
                    await call(again, number)
    counts = prompts(service)
    print(f"\n{operation}: {CANCELLED} cancels and closes, {sum(counts.values())} POSTs: {dict(ends)}")
    assert set(counts.values()) == {1}
    assert ends["ended early"] >= CANCELLED / 10
    assert ends["sending, not sent"] == ends["sending, sent"] == ends["unknown, not sent"] == 0


class LateStore(MemoryStore):
    """A ledger behind a network that holds each write back for a while, also when its caller has left."""

    seconds = 1.5

    async def write(self, changes, **further):
        async def arrive():
            await asyncio.sleep(self.seconds)
            return await MemoryStore.write(self, changes, **further)

        return await asyncio.shield(asyncio.create_task(arrive()))


@pytest.mark.parametrize("operation", ["create", "send"])
async def test_cancelled_with_writes_that_come_late(operation):
    """A write that arrives after its call has ended burns no key, and sends nothing twice."""
    dice, ends = random.Random(operation), Counter()
    with virtual_time():
        async with LocalService() as service:
            service.script.create_job(delay=1, times=None)
            service.script.send_message(delay=1, times=None)
            async with service.session() as session:
                await session.create_job("the job of the follow-ups")
            for number in range(CANCELLED):
                store = LateStore()

                def call(session, number=number):
                    prompt, key = f"prompt {number}", "k"
                    if operation == "create":
                        return session.create_job(prompt, dedupe_key=key)
                    return session.job("job_1").send(prompt, dedupe_key=key)

                session = service.session(ledger=store)
                task = asyncio.create_task(call(session))
                await asyncio.sleep(dice.choice([0, 0.1, 1.4, 1.5, 1.6, 2.4, 2.6, 4]))
                ends[await end_early(session, task, number)] += 1
                await asyncio.sleep(70)
                await session.close()
                sent = prompts(service)[f"prompt {number}"]
                state = await state_of(store, "k")
                ends[f"{state}, {'sent' if sent else 'not sent'}"] += 1
                store.seconds = 0
                if state in ("free", "done"):
                    async with service.session(ledger=store) as again:
                        await call(again)
            counts = prompts(service)
    print(f"\n{operation}: {CANCELLED} cancels and closes, {sum(counts.values())} POSTs: {dict(ends)}")
    assert set(counts.values()) == {1}
    assert ends["ended early"] >= CANCELLED / 10
    assert ends["sending, not sent"] == ends["sending, sent"] == ends["unknown, not sent"] == 0
    assert ends["free, sent"] == 0


async def test_many_creations_at_once(tmp_path):
    """On one SQLite file none is refused, and each is recorded."""
    store = SQLiteStore(tmp_path / "ledger.db")
    async with LocalService() as service, service.session(ledger=store) as session:
        calls = (session.create_job(f"{n}", dedupe_key=f"{n}", timeout=600) for n in range(AT_ONCE))
        jobs = await asyncio.gather(*calls)
    assert len({job.id for job in jobs}) == AT_ONCE
    assert await Ledger(store).open_claims() == []
    assert len(await store.keys("claims/done/")) == AT_ONCE
