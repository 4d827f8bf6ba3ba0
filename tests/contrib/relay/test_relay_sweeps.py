"""Reloads, Stops and dead workers at random moments, with the published releases of ai and real workers.

``SWEEPS=whole`` runs the full counts: 200 reloads, 50 Stops, 20 kills for each release and store. It prints
how long Stops take.
"""

from __future__ import annotations

import asyncio
import os
import random
from statistics import median
from typing import Any

import pytest

pytest.importorskip("fastapi")

from mintlify_async.contrib.relay.refusal_texts import CUT_TEXT
from mintlify_async.testing import LocalService
from tests.support.redis_server import RedisServer
from tests.support.relay_browser import RELEASES
from tests.support.relay_kit import until
from tests.support.relay_workers import ANSWER, LASTS, PAUSE, WORDS, pages, workers

WHOLE = os.environ.get("SWEEPS") == "whole"
RELOADS, STOPS, KILLS = (200, 50, 20) if WHOLE else (4, 3, 1)
AT_ONCE = 10
FOR_EVER = 60.0  # seconds; such an answer does not end before a Stop, however busy the computer is
IDLE = {release: ["ready"] for release in RELEASES}
IDLE["5.0.0"].append("submitted")  # where this release stays when there was nothing to resume

pytestmark = pytest.mark.sweep
stores = pytest.mark.parametrize("store", ["memory", "redis"])
releases = pytest.mark.parametrize("release", RELEASES)


def answer_of(shown: dict[str, Any], chat: str) -> dict[str, Any]:
    """Return the page's only answer, without the seal, which differs each time."""
    question, answer = shown["messages"]
    assert (question["role"], answer["role"]) == ("user", "assistant")
    assert question["parts"][0]["text"] == f"question of {chat}"
    assert isinstance((answer.get("metadata") or {}).pop("threadId", ""), str)
    return answer


def text_of(answer: dict[str, Any]) -> str:
    return "".join(part["text"] for part in answer["parts"] if part["type"] == "text")


async def in_turns(stories: list[Any]) -> None:
    """Run *stories*, some at a time."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(story: Any) -> None:
        async with places:
            await story

    async with asyncio.TaskGroup() as group:
        for story in stories:
            group.create_task(one(story))


def serving(
    streams: str, redis_server: RedisServer, service: LocalService, events: Any = ANSWER, **settings: Any
) -> Any:
    service.script.ask(events=events, times=None, pause=PAUSE)
    return workers(service, redis=redis_server.url if streams == "redis" else "", **settings)


@releases
@stores
async def test_reloads(release: str, store: str, redis_server: RedisServer):
    """After reloads at random moments, on any worker, the message is that of a page that was not reloaded."""
    dice = random.Random(f"{release} {store}")
    async with (
        LocalService() as service,
        serving(store, redis_server, service) as served,
        pages(release, service) as made,
    ):

        def somewhere() -> dict[str, Any]:
            return {"address": dice.choice(served).address}

        expected = answer_of(await made.tell("whole", somewhere()), "whole")
        assert text_of(expected) == "".join(WORDS)

        async def story(number: int) -> None:
            chat = f"chat-{number}"
            lives = [
                {**somewhere(), "milliseconds": dice.uniform(0, LASTS / 2)} for _ in range(dice.randint(1, 3))
            ]
            shown = await made.tell(chat, *lives, somewhere())
            assert shown["status"] in IDLE[release], lives
            assert answer_of(shown, chat) == expected, lives

        await in_turns([story(number) for number in range(RELOADS)])
        await until(lambda: not service.answering)
        assert len(service.requests) == RELOADS + 1
        assert not any(request.client_left for request in service.requests)


@releases
@stores
async def test_stops(release: str, store: str, redis_server: RedisServer, capsys: pytest.CaptureFixture[str]):
    """Another tab, on another worker, stops the answer: the service is let go, and the page is ready."""
    stopped, took = dict[str, float](), list[float]()
    dice = random.Random(f"{release} {store}")
    async with (
        LocalService() as service,
        serving(store, redis_server, service, [*ANSWER[:-3], FOR_EVER, *ANSWER[-3:]]) as served,
        pages(release, service) as made,
    ):

        async def story(number: int) -> None:
            chat, milliseconds = f"chat-{number}", dice.uniform(0, LASTS / 2)
            life = {"address": served[0].address, "stop": served[-1].address}
            shown = await made.tell(chat, {**life, "milliseconds": milliseconds})
            assert shown["status"] == "ready"
            stopped[shown["messages"][0]["id"]] = shown["stopped"] / 1000
            if len(shown["messages"]) > 1:
                assert "".join(WORDS).startswith(text_of(answer_of(shown, chat)))

        await in_turns([story(number) for number in range(STOPS)])
        await until(lambda: not service.answering)
        assert all(request.client_left for request in service.requests)
        for request in service.requests:
            ended = request.wall + request.seconds
            took.append(max(0.0, ended - stopped[request.json["messages"][-1]["id"]]))
        with capsys.disabled():
            what = f"ai {release}, {store}: {len(took)} Stops, from the response until the service was let go"
            print(f"\n{what}: median {1000 * median(took):.0f} ms, worst {1000 * max(took):.0f} ms")
        assert max(took) < FOR_EVER / 2


@releases
async def test_kills(release: str, redis_server: RedisServer):
    """The worker of an answer dies: another one gives the part, and says that it was interrupted."""
    dice = random.Random(release)
    async with (
        LocalService() as service,
        serving("redis", redis_server, service, store=True) as (one, other),
        pages(release, service) as made,
    ):
        for number in range(KILLS):
            chat = f"chat-{number}"
            telling = asyncio.create_task(
                made.tell(chat, {"address": one.address}, {"address": other.address})
            )
            await until(lambda: service.answering)
            await asyncio.sleep(dice.uniform(0, LASTS / 2000))
            await one.kill()
            shown = await telling
            assert (shown["status"], shown["error"]) == ("error", CUT_TEXT)
            if len(shown["messages"]) > 1:
                text = text_of(answer_of(shown, chat))
                assert len(text) < len("".join(WORDS))
                assert "".join(WORDS).startswith(text)
            await one.start()
