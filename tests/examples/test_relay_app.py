"""The relay's example app without its page; test_relay_app_page has the page in a browser."""

from __future__ import annotations

import asyncio
import signal
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from yarl import URL

pytest.importorskip("fastapi")

from relay_app.app import create_app

from tests.support.relay_desk import HEAD, TURN
from tests.support.relay_kit import SECRET, Page, events, pseudonym, serving, until


@pytest.fixture
def page_folder(tmp_path):
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text('<meta name="docs-site" content="">', encoding="utf-8")
    return tmp_path


@pytest.fixture
async def address(service, page_folder):
    """The address of the app, with the page in a folder."""
    site = {"CHATS": f"{page_folder}/chats.sqlite", "MINTLIFY_SITE": "https://docs.example/x"}
    app = create_app(service.session(), {"RELAY_SECRET": SECRET, **site}, page_folder)
    async with serving(app) as address:
        yield address


def browser() -> aiohttp.ClientSession:
    """Return a client that keeps cookies, also of an address without a name."""
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


@pytest.fixture
async def http():
    async with browser() as http:
        yield http


@pytest.fixture
def server_handler():
    """A handler of SIGTERM in place of the server's."""
    earlier = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, earlier)


async def test_a_deployment_cuts_no_answer(server_handler, service, address, http):
    """From SIGTERM on new questions are refused, and the answer that runs goes on to its end."""
    service.script.ask(events=[*HEAD, 1.0, *TURN[3:]])
    page = Page(http, address)
    assert (await page.post())[0] == 401
    await (await http.get(address)).read()
    async with page.request() as response:
        head = await response.content.readuntil(b"Hello ")
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.05)  # the drain begins with the loop's next turn
        assert (await page.post())[0] == 503
        assert events(head + await response.read())[-1]["type"] == "finish"
    await until(lambda: not service.answering)


async def test_a_verdict_is_taken(address, http):
    """From a page of the app only, and only 1 or -1."""

    async def status(value: int) -> int:
        verdict = {"chatId": "c", "messageId": "m", "value": value}
        async with http.post(f"{address}/api/chat/feedback", json=verdict) as response:
            return response.status

    assert await status(-1) == 401
    await (await http.get(address)).read()
    assert [await status(-1), await status(2)] == [204, 422]


async def test_a_browser_with_a_forged_cookie_gets_its_own(service, address, http):
    """The cookie is signed: an id that the app did not give is not taken, and is replaced."""
    page = Page(http, address)

    async def given() -> Any:
        async with http.get(address) as response:
            return response.cookies["browser"]

    cookie = await given()
    assert (cookie["httponly"], cookie["samesite"]) == (True, "lax")
    name, _, mark = cookie.value.partition(".")
    for forged in ("ada", f"ada.{mark}", f"{name}.", "\u00e9", ""):
        http.cookie_jar.update_cookies({"browser": forged}, URL(address))
        assert (await page.post())[0] == 401
    assert (await given()).value not in ("", cookie.value)
    assert (await page.post())[0] == 200
    assert service.requests[-1].json["fp"] not in (pseudonym("ada"), pseudonym(name))


@pytest.mark.parametrize(("missing", "words"), [("secret", "RELAY_SECRET is missing"), ("page", "run build")])
def test_what_is_missing_is_named(page_folder, missing, words):
    """The app does not start, and says what to do."""
    env = {} if missing == "secret" else {"RELAY_SECRET": SECRET}
    with pytest.raises(SystemExit, match=words):
        create_app(None, env, page_folder / ("" if missing == "secret" else "dist"))


async def test_an_address_asks_twenty_questions_a_minute(address, monkeypatch):
    """Whatever its cookies are; the page is told when to ask again, and may read all the same."""
    monkeypatch.setattr("relay_app.app.time", SimpleNamespace(time=lambda: 90.0))
    for number in range(21):
        async with browser() as http:
            async with http.get(address) as response:
                policy = response.headers["content-security-policy"]
            status, _, headers = await Page(http, address).post()
            assert status == (200 if number < 20 else 429)
            assert (await Page(http, address).history())[0] == (200 if number < 20 else 404)
    assert headers["retry-after"] == "30"
    assert "img-src 'self' data: https://docs.example;" in policy
    assert "frame-ancestors 'none'" in policy
