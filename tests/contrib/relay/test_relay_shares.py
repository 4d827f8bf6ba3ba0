"""What one IP address may use of the relay, in whatever form the server gives it; half-sent bodies."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.applications import Starlette

from mintlify_async.contrib.relay import MemoryStreamStore
from mintlify_async.contrib.relay.refusal_texts import BUSY_TEXT
from tests.support.asgi_visitor import Visit
from tests.support.relay_desk import ENDLESS, TURN, desk
from tests.support.relay_kit import events, until, user_message

MEBIBYTE = 1024 * 1024
LARGEST = b'{"a":"' + b"x" * (4 * MEBIBYTE - 14)  # all but the last eight bytes of the largest body
SAME = [
    ("192.0.2.1", "::ffff:192.0.2.1"),
    ("192.0.2.1", "::ffff:c000:201"),
    ("192.0.2.1", "::ffff:0:192.0.2.1"),
    ("192.0.2.1", "64:ff9b::192.0.2.1"),
    ("192.0.2.1", "192.0.2.1:5678"),
    ("192.0.2.1", "[::ffff:192.0.2.1]:443"),
    ("127.0.0.1", "::ffff:127.0.0.1"),
    ("2001:db8::1", "[2001:db8::2]"),
    ("2001:db8::1", "[2001:db8::1]:443"),
    ("2001:db8::1", '"[2001:db8::1]:443"'),
    ("2001:db8::1", "2001:db8::ffff:192.0.2.1"),
    ("fe80::1%eth0", "fe80::2%eth0"),
    ("", None),
    ("", "unix:/run/app.sock"),
    ("", "unknown"),
    ("", "_hidden"),
    ("", "[::1"),
    ("", "testclient"),
]
APART = [
    ("127.0.0.1", "::1"),
    ("192.0.2.1", "192.0.2.2"),
    ("::ffff:192.0.2.1", "::ffff:192.0.2.2"),
    ("64:ff9b::192.0.2.1", "64:ff9b::192.0.2.2"),
    ("64:ff9b:1::192.0.2.1", "64:ff9b:1::192.0.2.2"),
    ("192.0.2.1:443", "192.0.2.2:443"),
    ("2001:db8::1", "2001:db8:0:1::1"),
    ("2001:0:1:2:3:4:5:6", "2001:0:1:2:3:4:5:7"),  # Teredo: the first half is the relay's
    ("192.0.2.1", ""),
    ("::1", None),
]


def question(chat: str = "chat-1") -> dict[str, Any]:
    return {"id": chat, "messages": [user_message("q")], "trigger": "submit-message"}


@asynccontextmanager
async def visitors(**settings: Any) -> AsyncIterator[tuple[Any, Callable[..., Visit]]]:
    """Yield the desk, and what makes a visit. All visitors leave at the end."""
    async with desk(**settings) as here:
        app = Starlette(routes=here.relay.routes())
        visits = list[Visit]()

        def visit(*args: Any, **fields: Any) -> Visit:
            visits.append(Visit(app, *args, **fields))
            return visits[-1]

        try:
            yield here, visit
        finally:
            await asyncio.gather(*(one.leave() for one in visits))
            await here.relay.drain(0)


# --- Places -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "status"),
    [*((*pair, 429) for pair in SAME), *((*pair, 200) for pair in APART)],
)
async def test_an_ip_address_has_a_share_in_each_of_its_forms(one, other, status):
    """Two forms of an address share its places; two addresses do not. All without an address share one."""
    async with visitors(max_concurrent=4, max_per_user=1) as (here, visit):
        here.service.script.ask(events=ENDLESS, times=None)
        assert await visit(one, "ada", body=question()).status() == 200
        assert await visit(other, "bob", body=question()).status() == status


async def test_a_relay_that_shuts_down_reads_no_question():
    """The refusal does not wait for the rest of a body, which a slow page may never send."""
    async with visitors() as (here, visit):
        await here.relay.drain(0)
        async with asyncio.timeout(5):
            assert await visit("192.0.2.1", "ada", body=b'{"id": ').status() == 503


async def test_no_address_is_told_once(caplog):
    """A server behind a Unix socket gives none; the log says what to do, and never the address."""
    async with visitors() as (_, visit):
        for client in (None, "", "unix:/run/app.sock", "192.0.2.1"):
            assert await visit(client, "ada", method="GET", path="/api/chat/c/stream").status() == 204
    lines = [record.getMessage() for record in caplog.records if "no IP address" in record.getMessage()]
    assert len(lines) == 1
    assert "app.sock" not in lines[0]


# --- Bodies -------------------------------------------------------------------------------------------


async def test_an_ip_address_may_use_a_quarter_of_the_memory_for_bodies():
    """Half-sent bodies of one address keep no other address out; one body of the largest size may arrive."""
    async with visitors() as (_, visit):
        half = [visit("192.0.2.1", f"user-{n}", body=LARGEST) for n in range(16)]
        await until(lambda: sum(one.task.done() for one in half) == 15)
        assert {await one.status() for one in half if one.task.done()} == {503}
        refused = next(one for one in half if one.task.done())
        assert (await refused.read()).decode() == BUSY_TEXT
        assert refused.headers["retry-after"] == "1"
        assert await visit("192.0.2.2", "bob", body=question()).status() == 200


async def test_half_sent_bodies_of_many_ip_addresses_keep_nobody_out():
    """If all memory for bodies is taken, the address with the most bytes gives way."""
    async with visitors() as (_, visit):
        half = [visit(f"192.0.2.{n}", f"user-{n}", body=LARGEST) for n in range(100)]
        await until(lambda: sum(one.task.done() for one in half) == 96)
        assert await visit("192.0.2.200", "bob", body=question()).status() == 200
        assert sum(not one.task.done() for one in half) >= 3


async def test_a_body_that_left_counts_no_more():
    """Neither do those that were refused or complete: the memory is free again."""
    async with visitors() as (_, visit):
        for _ in range(10):
            half = visit("192.0.2.1", "ada", body=LARGEST)
            await asyncio.sleep(0)
            await half.leave()
            assert await visit("192.0.2.1", "ada", body=question()).status() == 200


async def test_a_larger_body_of_the_app_may_arrive():
    """Whatever max_body_bytes is, one address may send one such body."""
    async with visitors(max_body_bytes=20 * MEBIBYTE) as (_, visit):
        body = {**question(), "padding": "x" * 19 * MEBIBYTE}
        assert await visit("192.0.2.1", "ada", body=body).status() == 200


# --- The worst user -----------------------------------------------------------------------------------

FAMILIES = {
    "IPv4": ("198.51.100.1", "203.0.113.{}"),
    "IPv6": ("2001:db8:bad::{:x}", "2001:db8:0:{}::1"),
    "mapped": ("::ffff:198.51.100.1", "::ffff:203.0.113.{}"),
}


@pytest.mark.parametrize("family", FAMILIES)
async def test_ten_users_beside_the_worst_one(family):
    """It takes its share, reads a thousand times, stops in a loop, sends half bodies. All ten get answers."""
    worst, honest = FAMILIES[family]
    hosts = (worst.format(n) for n in itertools.count(1))
    async with visitors(streams=MemoryStreamStore(), max_concurrent=80, max_per_user=4) as (here, visit):
        endless = here.service.script.ask(events=ENDLESS, times=None)
        asked = [visit(next(hosts), f"evil-{n}", body=question()) for n in range(60)]
        answered = [n for n, one in enumerate(asked) if await one.status() == 200]
        assert len(answered) == 20, "its share"
        reading = [
            visit(next(hosts), f"evil-{answered[n % 20]}", method="GET", path="/api/chat/chat-1/stream")
            for n in range(1000)
        ]
        assert {await one.status() for one in reading} == {200, 429}
        endless.stop()

        async def stop_in_a_loop() -> None:
            while True:
                await visit(next(hosts), "evil-0", method="DELETE", path="/api/chat/chat-1/stream").read()
                again = visit(next(hosts), "evil-0", body=question())
                await again.leave()
                await asyncio.sleep(0.005)  # a network has a speed, too

        looping = asyncio.create_task(stop_in_a_loop())
        await asyncio.sleep(0.2)
        half = [visit(next(hosts), f"evil-{n}", body=LARGEST) for n in range(16)]
        await until(lambda: sum(one.task.done() for one in half) == 15)
        here.service.script.ask(events=TURN, times=None)
        users = [visit(honest.format(n), f"user-{n}", body=question()) for n in range(1, 11)]
        assert [await one.status() for one in users] == [200] * 10
        assert {events(await one.read())[-1]["type"] for one in users} == {"finish"}
        assert sum(one.task.done() for one in half) == 15
        looping.cancel()
        await asyncio.wait([looping])


# --- Stopped answers ----------------------------------------------------------------------------------


async def test_stopped_answers_count():
    """While they are saved: a user who asks again and again gets 429, and the relay does not fill."""
    hold = asyncio.Event()

    async def slow(answer: Any) -> None:
        await hold.wait()

    async with visitors(on_end=slow, max_per_user=3) as (here, visit):
        here.service.script.ask(events=ENDLESS, times=None)
        statuses = list[int]()
        for _ in range(30):
            one = visit("192.0.2.1", "ada", body=question())
            running = here.relay.streaming
            await asyncio.sleep(0.05)
            if one.task.done():
                statuses.append(await one.status())
            assert running <= 2 * 3 + 1
        assert set(statuses) == {429}
        assert await visit("192.0.2.2", "bob", body=question()).status() == 200
        hold.set()


async def test_a_refused_question_stops_nothing():
    """Neither the answer of its own chat nor an answer without a reader that made way for it."""
    async with visitors(streams=MemoryStreamStore(), max_concurrent=2, max_per_user=1) as (here, visit):
        here.service.script.ask(events=ENDLESS, times=None)
        unread = visit("192.0.2.1", "ada", body=question())
        assert await unread.status() == 200
        await unread.leave()
        assert await visit("192.0.2.2", "bob", body=question()).status() == 200
        assert await visit("192.0.2.2", "bob", body=question("other")).status() == 429
        assert here.service.answering == 2
