"""Bodies that are arriving: bounded by address and size, apart from answers, so that honest users get in."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest

pytest.importorskip("fastapi")

from relay_desk import TURN, desk, x_user
from relay_kit import SECRET, refused, request_of, until, user_message

from mintlify_async import MintlifySession, QuotaExceededError
from mintlify_async.contrib.relay import Relay, RelayLimits, RelayRefusal
from mintlify_async.testing import LocalService, VirtualClock

KIB, MIB = 1024, 1024 * 1024
ASKED = {"messages": [user_message("q")]}


class Trickle:
    """A connection that sends pieces of a body when the test says so, and never its end."""

    def __init__(self, relay: Relay, client: str, user: str, *, path: str = "respond") -> None:
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        request = request_of(b"", receive=self._receive, client=client, user=user)
        handler = partial(refused, relay) if path == "respond" else getattr(relay, path)
        self.answered = asyncio.create_task(handler(request))

    async def _receive(self) -> Any:
        return {"type": "http.request", "body": await self._pieces.get(), "more_body": True}

    def send(self, size: int = 1) -> None:
        self._pieces.put_nowait(b" " * size)


@asynccontextmanager
async def relay(service: dict[str, Any] | None = None, **settings: Any):
    """A relay over a local service that gives every question the same answer."""
    async with LocalService(**(service or {})) as local, local.session() as session:
        local.script.ask(events=TURN, times=None)
        made = Relay(session, **{"secrets": [SECRET], "user": x_user, **settings})
        yield made
        assert made.arriving == 0


async def ask(relay: Relay, body: Any = ASKED, **settings: Any) -> int:
    """Return the status that an honest reader gets, and close the answer."""
    try:
        opened = await relay.open(request_of(body, **settings))
    except RelayRefusal as refusal:
        return refusal.status_code
    await opened.close()
    return 200


async def end(trickles: list[Trickle]) -> list[int]:
    """Hang up on those that still trickle; return the statuses of the others, in order."""
    statuses = []
    for trickle in trickles:
        trickle.answered.cancel()
    for trickle in trickles:
        with suppress(asyncio.CancelledError):
            statuses.append((await trickle.answered).status_code)
    return statuses


@pytest.mark.parametrize("addresses", [1, 4, 1000])
async def test_a_thousand_trickling_connections_cost_honest_users_nothing(addresses):
    """Each sends 64 KiB of a body that never ends, as a user of its own; 50 honest users get answers."""
    async with relay(max_concurrent=60, max_concurrent_per_user=1) as made:
        trickles = []
        for number in range(1000):
            client = f"198.51.{number % addresses % 250}.{number % addresses // 250}"
            trickles.append(Trickle(made, client, f"invented-{number}"))
            trickles[-1].send(64 * KIB - 1)
        most = 0
        for number in range(50):
            await asyncio.sleep(0)
            for trickle in trickles[number::50]:
                trickle.send()
            client = "198.51.0.0" if number % 2 else f"203.0.113.{number}"  # from an attacker's address, too
            assert await ask(made, client=client, user=f"honest-{number}") == 200
            most = max(most, made.arriving)
        assert most <= 64 * MIB
        assert made.streaming == 0  # a body that arrives takes no answer's place
        statuses = await end(trickles)
        assert set(statuses) <= {503}
        assert len(statuses) >= (0 if addresses == 1000 else 1000 - 100 * addresses)


async def test_a_full_relay_reads_no_body():
    """While there is no place for an answer, the refusal comes before the body."""
    async with relay(max_concurrent_per_user=1) as made:
        opened = await made.open(request_of(ASKED))
        trickle = Trickle(made, "203.0.113.7", "ada")
        assert (await trickle.answered).status_code == 429
        await opened.close()


async def test_what_a_page_sent_besides_is_let_go_before_the_service_answers():
    """The parsed fields of a question are not kept in memory while the service is silent."""

    class Kept(dict[str, Any]):
        """A dictionary that can be watched."""

    seen: list[weakref.ref[Kept]] = []
    released = asyncio.Event()

    def ask(request: Any, fields: Any) -> dict[str, Any]:
        fields["a"] = Kept()
        seen.append(weakref.ref(fields["a"]))
        return {}

    async def key() -> str:
        gc.collect()
        assert seen[0]() is None
        released.set()
        return "mint_dsc_0123456789"

    async with MintlifySession(domain="acme", assistant_key=key, base_url="http://127.0.0.1:9") as session:
        made = Relay(session, secrets=[SECRET], user=x_user, ask=ask)
        assert (await refused(made, request_of({**ASKED, "a": {}}))).status_code == 502
    assert released.is_set()


async def test_an_addresss_oldest_upload_gives_way():
    """Two may arrive at once from one address; the third takes the place of the first, which is told so."""
    async with relay(limits=RelayLimits(uploads_per_address=2)) as made:
        first, second = (Trickle(made, "203.0.113.7", f"u{n}") for n in range(2))
        elsewhere = Trickle(made, "203.0.113.8", "u0")
        for trickle in (first, second, elsewhere):
            trickle.send()
        await until(lambda: made.arriving == 3)
        third = Trickle(made, "203.0.113.7", "u3")
        third.send(5)
        # Without this, the service's clock would move on while a thread asks who the user is.
        await until(first.answered.done)
        response = await first.answered
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert response.headers["connection"] == "close"
        await until(lambda: made.arriving == 7)
        assert await end([second, third, elsewhere]) == []


@pytest.mark.parametrize(("one", "other", "same"), [
    ("2001:db8::1", "2001:db8::ffff:2", True),
    ("2001:db8::1", "2001:db8:0:1::1", False),
    ("203.0.113.1", "203.0.113.2", False),
    ("testclient", "testclient", True),
])  # fmt: skip
async def test_what_counts_as_one_address(one, other, same):
    """An IPv6 customer has 2 to the 64 addresses: they count as one."""
    async with relay(limits=RelayLimits(uploads_per_address=1)) as made:
        first = Trickle(made, one, "u1")
        first.send()
        await until(lambda: made.arriving)
        second = Trickle(made, other, "u2")
        second.send()
        await until(lambda: first.answered.done() or made.arriving == 2)
        assert first.answered.done() == same
        await end([first, second])


async def test_all_bodies_together_are_bounded():
    """When they would take more memory than upload_bytes, the oldest of all gives way."""
    limits = RelayLimits(body_bytes=100, upload_bytes=400)
    async with relay(limits=limits) as made:
        trickles = [Trickle(made, f"203.0.113.{n}", f"u{n}") for n in range(5)]
        for trickle in trickles[:4]:
            trickle.send(100)
        await until(lambda: made.arriving == 400)
        trickles[4].send(50)
        await until(lambda: any(trickle.answered.done() for trickle in trickles))
        assert [trickle.answered.done() for trickle in trickles] == [True, False, False, False, False]
        assert made.arriving == 350
        assert await end(trickles) == [503]


async def test_one_address_holds_a_quarter():
    """A fast sender makes its own older bodies give way, and not those of others."""
    async with relay(limits=RelayLimits(body_bytes=100, upload_bytes=400)) as made:
        honest = Trickle(made, "203.0.113.1", "ada")
        honest.send(90)
        await until(lambda: made.arriving == 90)
        fast = [Trickle(made, "203.0.113.2", f"u{n}") for n in range(9)]
        for trickle in fast:
            trickle.send(60)
        await until(lambda: sum(trickle.answered.done() for trickle in fast) == 8)
        assert made.arriving == 150
        assert not honest.answered.done()
        await end([honest, *fast])


async def test_verdicts_are_uploads_too():
    """Feedback that trickles takes no answer's place and is bounded in the same way."""
    seen: list[Any] = []
    limits = RelayLimits(uploads_per_address=1)
    async with relay(limits=limits, on_feedback=seen.append, max_concurrent=1) as made:
        trickle = Trickle(made, "203.0.113.7", "eve", path="feedback")
        trickle.send()
        await until(lambda: made.arriving)
        assert await ask(made, client="203.0.113.8") == 200
        verdict = request_of({"messageId": "m", "value": 1}, client="203.0.113.7")
        assert (await made.feedback(verdict)).status_code == 204
        assert (await trickle.answered).status_code == 503
    assert [one.message_id for one in seen] == ["m"]


async def test_a_body_has_its_time_however_many_pieces_it_comes_in():
    """A byte every few seconds does not put off the end of body_seconds."""
    clock = VirtualClock()
    async with relay({"clock": clock}, clock=clock) as made:
        trickle = Trickle(made, "203.0.113.7", "eve")
        began = clock.now()
        while not trickle.answered.done():
            trickle.send()
            await clock.sleep(4)
        assert (await trickle.answered).status_code == 408
        assert 30 <= clock.now() - began <= 34


async def test_slow_bodies_of_real_connections_give_way():
    """Over uvicorn: the connections of those that gave way are closed, and the honest one is answered."""
    async with desk(limits=RelayLimits(uploads_per_address=5)) as here:
        host, port = here.page.address.removeprefix("http://").split(":")
        head = "POST /api/chat HTTP/1.1\r\nhost: a\r\nx-user: eve-%d\r\ncontent-type: application/json\r\n"
        opened = []
        for number in range(40):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write((head % number + "content-length: 9000\r\n\r\n{").encode())
            opened.append((reader, writer))
        for reader, _ in opened[:35]:
            assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        assert (await here.page.post())[0] == 200
        for _, writer in opened:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


# --- How often ---------------------------------------------------------------------------------------


async def test_the_rate_hook_may_look_at_the_request():
    """It gets the user and the request, before the body has arrived."""
    seen: list[tuple[str, str]] = []

    async def rate(user: str, request: Any) -> float | None:
        seen.append((user, request.client.host))
        return 9.0 if request.headers.get("x-tier") == "free" else None

    async with relay(rate=rate) as made:
        assert await ask(made, client="203.0.113.9", user="ada") == 200
        held = request_of(b"not read", client="203.0.113.9", user="bob", **{"x-tier": "free"})
        response = await refused(made, held)
        assert (response.status_code, response.headers["retry-after"]) == (429, "9")
    assert seen == [("ada", "203.0.113.9"), ("bob", "203.0.113.9")]


async def test_the_rate_hook_may_raise_what_a_quota_raises():
    """An app that counts users with a quota of its own need not translate its refusal."""

    def rate(user: str, request: Any) -> None:
        raise QuotaExceededError("no slot is free", retry_after=4.2, limit="ask_per_key")

    async with relay(rate=rate) as made:
        response = await refused(made, request_of(ASKED))
        assert (response.status_code, response.headers["retry-after"]) == (429, "5")
