"""The example app in front of a local service, and its page in a real browser."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("playwright")

from playwright.async_api import expect
from relay_app.app import create_app

from mintlify_async.contrib.relay import MemoryStreamStore
from mintlify_async.testing import LocalService
from tests.support.relay_browser import LONGEST_MS, NEWEST, browser, built, installed
from tests.support.relay_desk import assert_nothing_shown
from tests.support.relay_kit import SECRET, serving, until

SITE = "https://docs.example"
GRACE = 60.0  # seconds that an answer goes on while nobody reads it; more than a reload takes
# The page's texts and the screen reader's texts, in the order of their changes.
WATCH = """
window.texts = [];
window.spoken = [];
new MutationObserver(() => {
  const note = (list, selector) => {
    const text = document.querySelector(selector)?.innerText ?? '';
    if (text && text !== list.at(-1)) list.push(text);
  };
  note(window.texts, '.assistant .text');
  note(window.spoken, '[role=status]');
}).observe(document, { subtree: true, childList: true, characterData: true });
"""


class Traffic:
    """An ASGI app around another that records every byte between the page and the app."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.seen = bytearray()

    def note(self, message: Any) -> Any:
        self.seen += message.get("body", b"") + repr(message.get("headers")).encode()
        return message

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def received() -> Any:
            return self.note(await receive())

        self.seen += repr(scope).encode()
        await self.app(scope, received, lambda message: send(self.note(message)))


class Shop:
    """The service, the app before it, and a page of it in a browser."""

    def __init__(self, release: str, service: LocalService, page: Any) -> None:
        self.release, self.service, self.page = release, service, page

    async def ask(self, text: str) -> None:
        await self.page.get_by_label("Your question").fill(text)
        await self.click("Send")

    async def answered(self, text: str) -> None:
        """Ask, and wait for the whole answer."""
        await self.ask(text)
        await self.status("ready")

    async def click(self, name: str) -> None:
        await self.page.get_by_role("button", name=name, exact=True).click()

    async def status(self, status: str) -> None:
        await self.page.locator(f"main[data-status={status}]").wait_for()

    async def shows(self, text: str) -> None:
        await self.page.get_by_text(text, exact=True).first.wait_for()

    async def drafts(self, text: str) -> None:
        """Wait until the box for a question contains *text*."""
        await expect(self.page.get_by_label("Your question")).to_have_value(text, timeout=LONGEST_MS)

    async def answers(self) -> list[str]:
        return await self.page.locator(".assistant .text").all_inner_texts()

    async def questions(self) -> list[str]:
        return await self.page.locator(".user p").all_inner_texts()

    async def alert(self) -> str:
        await self.status("error")
        return await self.page.get_by_role("alert").locator("span").inner_text()

    async def look(self, state: str) -> None:
        """Check the page in light and dark, on a phone and wide. SCREENSHOTS=folder keeps pictures."""
        axe = (installed(self.release) / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
        for scheme in ("light", "dark"):
            await self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            await self.page.evaluate(axe)  # no script tag, as the page allows only its own
            found = await self.page.evaluate(AXE)
            assert found == [], f"{state}, {scheme}"
            for width in (390, 1280):
                await self.page.set_viewport_size({"width": width, "height": 844})
                await self.page.wait_for_function("width => window.innerWidth === width", arg=width)
                wide, inner = await self.page.evaluate(WIDTHS)
                assert (wide, inner) == (width, 0), state
                if folder := os.environ.get("SCREENSHOTS"):
                    await self.page.screenshot(path=Path(folder) / f"{state}-{scheme}-{width}.png")


# The width of the page's content, and by how many pixels the messages are wider than their box.
WIDTHS = """(() => {
  const box = document.querySelector('.messages');
  return [document.documentElement.scrollWidth, box ? box.scrollWidth - box.clientWidth : 0];
})()"""
AXE = """async () => {
  const { violations } = await window.axe.run();
  return violations.map(({ id, nodes }) => [id, ...nodes.map((node) => node.html + node.failureSummary)]);
}"""


@asynccontextmanager
async def shop(release: str = NEWEST, **settings: Any) -> AsyncIterator[Shop]:
    """Start everything, and check at the end that the traffic has no secret and no script failed."""
    with tempfile.TemporaryDirectory() as folder:
        async with browser() as started, LocalService() as service:  # the browser first, because it may skip
            dist = built(release)
            env = {"RELAY_SECRET": SECRET, "MINTLIFY_SITE": f"{SITE}/", "CHATS": f"{folder}/chats.sqlite"}
            settings = {"streams": MemoryStreamStore(grace=GRACE), **settings}
            app = create_app(service.session(), env, dist, **settings)
            traffic = Traffic(app)
            async with serving(traffic) as address:
                context = await started.new_context(permissions=["clipboard-read", "clipboard-write"])
                context.set_default_timeout(LONGEST_MS)
                page = await context.new_page()
                failures: list[str] = []
                page.on("pageerror", lambda error: failures.append(str(error)))
                page.on("console", lambda said: failures.append(said.text) if _is_failure(said) else None)
                await page.add_init_script(WATCH)
                await page.goto(address)
                yield Shop(release, service, page)
                await context.close()
                await until(lambda: not service.answering)
    assert_nothing_shown(service, bytes(traffic.seen))
    assert failures == [], "\n".join(failures)


def _is_failure(said: Any) -> bool:
    """Return whether the page logs an error that is not about our refusal or our cut."""
    expected = "net::ERR" in said.text or "the server responded" in said.text
    return said.type in ("error", "warning") and not expected
