"""A page of another origin, in a real browser whose reader has a chat: it can ask, stop and read nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from tests.support.relay_browser import RELEASES
from tests.support.relay_kit import serving
from tests.support.relay_shop import HEAD, shop

pytestmark = pytest.mark.real

ATTEMPTS = Path(__file__).parents[2] / "support" / "js" / "other_origin.js"


async def test_a_page_of_another_origin_gets_nothing():
    """Neither by form, beacon, XHR, fetch nor frame, although the browser sends the cookie."""
    other = Starlette(routes=[Route("/", lambda request: HTMLResponse("<iframe name=frame></iframe>"))])
    async with shop(list(RELEASES)[-1]) as here, serving(other) as address:
        here.service.script.ask(events=[*HEAD, 60.0])
        await here.ask("Mine")
        await here.shows("Hello")
        chat = here.page.url.partition("?chat=")[2]
        tab = await here.page.context.new_page()
        await tab.goto(address)
        app = here.page.url.partition("/?")[0]
        assert await tab.evaluate(ATTEMPTS.read_text("utf-8"), [app, chat]) == []
        assert len(here.service.requests) == 1
        assert here.service.answering == 1
        await tab.close()
        await here.click("Stop")
