"""The documentation's page in a real browser: reloads at random moments, Stop in another tab, killed workers.

``SWEEPS=whole`` runs more of them. It is the page as it is printed, with the ``useChat`` of each release.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import mintlify_async
from mintlify_async.testing import LocalService
from tests.support.redis_server import RedisServer
from tests.support.relay_browser import RELEASES, SOURCE, browser, build_page
from tests.support.relay_kit import until
from tests.support.relay_workers import ANSWER, LASTS, PAUSE, WORDS, Worker, workers

DOCUMENT = Path(mintlify_async.__file__).parent / "docs" / "how-to" / "relay-resume.mdx"
RELOADS, STOPS, KILLS = (40, 10, 20) if os.environ.get("SWEEPS") == "whole" else (2, 1, 1)
TEXT = "".join(WORDS)
INDEX = b'<!doctype html><div id="root"></div><script type="module" src="/main.jsx"></script>'
MAIN = b"""import { createElement } from "react";
import { createRoot } from "react-dom/client";
import { Chat } from "./chat.jsx";
const id = new URLSearchParams(location.search).get("chat");
createRoot(document.getElementById("root")).render(createElement(Chat, { id }));
"""

pytestmark = pytest.mark.real
releases = pytest.mark.parametrize("release", RELEASES)
stores = pytest.mark.parametrize("store", ["memory", "memory+store", "redis", "redis+store"])


def page_of(release: str) -> Path:
    """Return the folder with the page that the documentation prints, with what it adds for ai 5.0.0."""
    (component, fetch) = re.findall(r"```jsx\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    if release == "5.0.0":
        component = component.replace('  api: "/api/chat",\n', f'  api: "/api/chat",\n{fetch}')
        assert fetch in component
    sources = {"index.html": INDEX, "main.jsx": MAIN, "chat.jsx": component.encode()}
    sources |= {name: (SOURCE / name).read_bytes() for name in ("package.json", "vite.config.js")}
    return build_page(release, {Path(name): content for name, content in sources.items()})


@asynccontextmanager
async def tabs(
    release: str, store: str, redis_server: RedisServer, *, pause: float = PAUSE
) -> AsyncIterator[tuple[LocalService, Any, list[Worker]]]:
    """Serve the page by workers at one address; yield the service, what opens a tab, and the workers."""
    page = str(page_of(release))
    where, _, kept = store.partition("+")
    redis = redis_server.url if where == "redis" else ""
    async with LocalService() as service, browser() as started:
        service.script.ask(events=ANSWER, times=None, pause=pause)
        async with workers(service, redis=redis, store=bool(kept), page=page, shared=True) as served:
            context = await started.new_context()
            address = served[0].address
            await context.add_cookies([{"name": "user", "value": "ada", "url": address}])

            async def open_tab(chat: str) -> Any:
                tab = await context.new_page()
                await tab.goto(f"{address}/?chat={chat}")
                return tab

            yield service, open_tab, served
            await context.close()


async def ask(tab: Any, service: LocalService) -> None:
    before = len(service.requests)
    await tab.get_by_label("Your question").fill("How do I log in?")
    await tab.get_by_role("button", name="Send").click()
    await until(lambda: len(service.requests) > before)


async def shown(tab: Any) -> tuple[list[str], list[str]]:
    questions, answers = tab.locator(".user"), tab.locator(".assistant")
    return await questions.all_inner_texts(), [text.strip() for text in await answers.all_inner_texts()]


@releases
@stores
async def test_reloads(release: str, store: str, redis_server: RedisServer):
    """The answer is whole and there once, however often the page is loaded again while it comes."""
    dice = random.Random(f"{release} {store}")
    async with tabs(release, store, redis_server) as (service, open_tab, _):
        for number in range(RELOADS):
            tab = await open_tab(f"chat-{number}")
            await ask(tab, service)
            for _ in range(dice.randint(1, 3)):
                await asyncio.sleep(dice.uniform(0, LASTS / 2000))
                await tab.reload()
            await tab.get_by_text(WORDS[-1].strip()).wait_for(timeout=30_000)
            await until(lambda: not service.answering)
            for _ in range(2):  # the second time, the answer is the browser's own
                assert await shown(tab) == (["How do I log in?"], [TEXT.strip()])
                await tab.locator("main[data-status=ready]").wait_for(timeout=30_000)
                await tab.reload()
            await tab.close()
        assert len(service.requests) == RELOADS
        assert not any(request.client_left for request in service.requests)


@releases
@stores
async def test_stop_in_another_tab(release: str, store: str, redis_server: RedisServer):
    """The service is let go, both tabs are ready, and a reload shows the part."""
    dice = random.Random(f"{release} {store}")
    async with tabs(release, store, redis_server, pause=0.3) as (service, open_tab, _):
        for number in range(STOPS):
            tab = await open_tab(f"chat-{number}")
            await ask(tab, service)
            other = await open_tab(f"chat-{number}")
            await other.get_by_text(WORDS[0].strip()).wait_for(timeout=30_000)
            await asyncio.sleep(dice.uniform(0, 1))
            await other.get_by_role("button", name="Stop").click()
            for one in (tab, other):
                await one.locator("main[data-status=ready]").wait_for(timeout=30_000)
            await until(lambda: not service.answering)
            assert service.requests[-1].client_left
            questions, (part,) = await shown(tab)
            assert questions == ["How do I log in?"]
            assert TEXT.startswith(part)
            assert part != TEXT.strip()
            await tab.reload()
            await tab.locator("main[data-status=ready]").wait_for(timeout=30_000)
            assert await shown(tab) == (questions, [part])
            await tab.close()
            await other.close()


@releases
async def test_killed_worker(release: str, redis_server: RedisServer):
    """The page goes on with the other worker: it shows the part, and that the answer was interrupted."""
    dice = random.Random(release)
    async with tabs(release, "redis", redis_server, pause=0.3) as (service, open_tab, served):
        for number in range(KILLS):
            tab = await open_tab(f"chat-{number}")
            await ask(tab, service)
            await tab.get_by_text(WORDS[0].strip()).wait_for(timeout=30_000)
            await asyncio.sleep(dice.uniform(0, 1))
            for worker in served:  # which of the two has the answer, the system decides
                if service.answering:
                    await worker.kill()
                    await worker.start()
            await tab.reload()
            await tab.get_by_role("alert").wait_for(timeout=30_000)
            assert "interrupted" in await tab.get_by_role("alert").inner_text()
            questions, (part,) = await shown(tab)
            assert questions == ["How do I log in?"]
            assert TEXT.startswith(part)
            assert part != TEXT.strip()
            await tab.close()
