"""The documentation's page in a real browser: a reload in mid-answer, and Stop in a second tab.

It is the page as it is printed, with the ``useChat`` of each release.
``test_relay_sweeps.py`` has the counts.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import mintlify_async
from mintlify_async.testing import LocalService
from tests.support.redis_server import RedisServer
from tests.support.relay_browser import LONGEST_MS, RELEASES, SOURCE, browser, build_page
from tests.support.relay_kit import until
from tests.support.relay_workers import ANSWER, PAUSE, WORDS, workers

DOCUMENT = Path(mintlify_async.__file__).parent / "docs" / "how-to" / "relay-resume.md"
QUESTION, TEXT = "How do I log in?", "".join(WORDS).strip()
INDEX = b'<!doctype html><div id="root"></div><script type="module" src="/main.jsx"></script>'
MAIN = b"""import { createElement } from "react";
import { createRoot } from "react-dom/client";
import { Chat } from "./chat.jsx";
const id = new URLSearchParams(location.search).get("chat");
createRoot(document.getElementById("root")).render(createElement(Chat, { id }));
"""

pytestmark = pytest.mark.real


def page_of(release: str) -> Path:
    """Return the folder with the page that the documentation prints, with what it adds for ai 5.0.0."""
    (component, fetch) = re.findall(r"```jsx\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    if release == "5.0.0":
        component = component.replace('  api: "/api/chat",\n', f'  api: "/api/chat",\n{fetch}')
        assert fetch in component
    sources = {"index.html": INDEX, "main.jsx": MAIN, "chat.jsx": component.encode()}
    sources |= {name: (SOURCE / name).read_bytes() for name in ("package.json", "vite.config.js")}
    return build_page(release, {Path(name): content for name, content in sources.items()})


async def ask(tab: Any, service: LocalService) -> None:
    earlier = len(service.requests)
    await tab.get_by_label("Your question").fill(QUESTION)
    await tab.get_by_role("button", name="Send").click()
    await until(lambda: len(service.requests) > earlier)


async def shown(tab: Any) -> tuple[list[str], list[str]]:
    await tab.locator("main[data-status=ready]").wait_for()
    questions, answers = tab.locator(".user"), tab.locator(".assistant")
    return await questions.all_inner_texts(), [text.strip() for text in await answers.all_inner_texts()]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("store", ["memory", "memory+store", "redis", "redis+store"])
async def test_reload_and_stop(release: str, store: str, redis_server: RedisServer):
    """After reloads the answer is whole and there once; a second tab stops it, and both show the part."""
    where, _, kept = store.partition("+")
    redis, page = redis_server.url if where == "redis" else "", str(page_of(release))
    async with (
        LocalService() as service,
        browser() as started,
        workers(service, redis=redis, store=bool(kept), page=page, shared=True) as (worker, *_),
    ):
        context = await started.new_context()
        context.set_default_timeout(LONGEST_MS)
        await context.add_cookies([{"name": "user", "value": "ada", "url": worker.address}])
        tab, other = await context.new_page(), await context.new_page()

        service.script.ask(events=ANSWER, pause=PAUSE)
        await tab.goto(f"{worker.address}/?chat=one")
        await ask(tab, service)
        await tab.reload()
        await tab.get_by_text(WORDS[0].strip()).wait_for()
        await tab.reload()
        await tab.get_by_text(WORDS[-1].strip()).wait_for()
        assert await shown(tab) == ([QUESTION], [TEXT])
        await tab.reload()  # now the answer is the browser's own
        assert await shown(tab) == ([QUESTION], [TEXT])
        assert [request.client_left for request in service.requests] == [False]

        service.script.ask(events=[*ANSWER[:25], 600.0])
        await tab.goto(f"{worker.address}/?chat=two")
        await ask(tab, service)
        await tab.reload()
        await other.goto(f"{worker.address}/?chat=two")
        await other.get_by_text(WORDS[0].strip()).wait_for()
        await other.get_by_role("button", name="Stop").click()
        questions, (part,) = await shown(tab)
        assert (questions, await shown(other)) == ([QUESTION], (questions, [part]))
        assert TEXT.startswith(part)
        assert part != TEXT
        await until(lambda: not service.answering)
        assert service.requests[-1].client_left
        await tab.reload()
        assert await shown(tab) == (questions, [part])
        await context.close()
