"""The example that streams to a page, in a real browser: what a reader sees, and how often the page asks."""

from __future__ import annotations

import pytest
import stream_app

from mintlify_async import MintlifySession
from mintlify_async.testing import Cut
from tests.support.relay_browser import browser
from tests.support.relay_kit import serving

httpx = pytest.importorskip("httpx", reason="httpx is not installed")

pytestmark = pytest.mark.real

ASKED = {"q": "How do I log in?"}


@pytest.fixture
async def url(service, bare, monkeypatch):
    for name, value in service.environment.items():
        bare.setenv(name, value)
    monkeypatch.setattr(stream_app, "session", MintlifySession(site="https://docs.acme.com"))
    async with serving(stream_app.app) as url:
        yield url


@pytest.fixture
async def page(url):
    async with browser() as started:
        page = await started.new_page()
        await page.goto(url)
        yield page


async def ask(page) -> str:
    """Ask, wait until the page has closed its stream, and return what it shows."""
    await page.fill("input", ASKED["q"])
    await page.click("button")
    await page.wait_for_function("answer.readyState === EventSource.CLOSED")
    return (await page.inner_text("pre")).strip()


async def test_a_page_shows_the_answer_and_its_sources_and_asks_once(page, service):
    """Line breaks arrive; the sources are links; the end of the response is no reason to ask again."""
    service.script.ask(text="First.\n\nSecond — é 🚀", sources=["/quickstart"])
    assert await ask(page) == "First.\n\nSecond — é 🚀"
    assert await page.get_attribute("li a", "href") == "https://docs.acme.com/quickstart"
    await page.wait_for_timeout(
        3500
    )  # after three seconds, a browser connects again to a stream that is open
    assert service.requests.count("ask") == 1


async def test_a_cut_answer_does_not_look_complete(page, service):
    """The page says that it was interrupted, shows no sources, and does not ask again."""
    service.script.ask(text="Press the button and", fault=Cut(400))
    assert (await ask(page)).endswith("The answer was interrupted.")
    assert await page.query_selector("li") is None
    assert service.requests.count("ask") == 1


async def test_a_refusal_is_told_by_the_status(page, url, service):
    """No stream begins: the page shows a sentence, another client gets 503."""
    for _ in range(2):
        service.script.ask(status=403, body={"error": "no"})
    assert await ask(page) == "No answer. Please ask again later."
    async with httpx.AsyncClient(base_url=url) as client:
        assert (await client.get("/events", params=ASKED)).status_code == 503


async def test_a_complete_answer_is_json(url, service):
    """The text, and each source with its title and URL."""
    service.script.ask(text="Press the button.", sources=["/quickstart"])
    async with httpx.AsyncClient(base_url=url) as client:
        found = (await client.get("/answer", params=ASKED)).json()
    assert found["text"] == "Press the button."
    assert [source["url"] for source in found["sources"]] == ["https://docs.acme.com/quickstart"]


async def test_an_answer_that_the_service_ends_early_does_not_look_complete(url, service):
    """An `abort` raises no error, so the app looks at `aborted`: no JSON, and `failed` in a stream."""
    for _ in range(2):
        service.script.ask(events=[{"type": "start"}, {"type": "abort", "reason": "too long"}])
    async with httpx.AsyncClient(base_url=url) as client:
        assert (await client.get("/answer", params=ASKED)).status_code == 503
        events = (await client.get("/events", params=ASKED)).text
    assert "event: failed" in events
    assert "event: done" not in events
