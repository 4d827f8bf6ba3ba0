"""The example's page in a real browser: its six states, and what readers do with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("fastapi")

from relay_app import app

from mintlify_async.contrib.relay import MemoryStreamStore
from tests.support.relay_browser import RELEASES, SOURCE
from tests.support.relay_desk import HEAD
from tests.support.relay_kit import pseudonym, until
from tests.support.relay_shop import GRACE, SITE, shop

pytestmark = pytest.mark.real
SEARCHING = "Searching the documentation…"
RICH = """## Log in

Read the [quickstart](/quickstart), the **CLI** guide or [the status page](https://status.example).

![The dashboard](/images/dashboard.png)

| Plan | Calls |
|---|--:|
| Free | 100 |

- [x] Install `cli`
- [ ] Log in

```python
import mintlify_async  # a comment


def log_in(name: str, tries: int = 3) -> None:
    print(f"Hello, {name}, after a line that is much too long for the screen of any phone: {tries}")
```

One thing more.[^1]

[^1]: A note.

```suggestions
(Single sign-on)[/sso]
(Limits)[/limits]
```
"""
PICTURE = """<svg xmlns="http://www.w3.org/2000/svg" width="900" height="240">
<rect width="900" height="240" fill="#778899"/></svg>"""
SOURCES: list[Any] = [("Log in", "/login"), (None, "https://docs.example/sso#okta")]


async def test_the_states():
    """Each state shows what it should, without a barrier in light and in dark, from 390 pixels on."""
    async with shop() as here:
        picture = {"body": PICTURE, "content_type": "image/svg+xml"}
        await here.page.route("**/images/*.png", lambda route: route.fulfill(**picture))
        await here.shows("What would you like to know?")
        assert await here.page.get_by_role("button", name="New chat").count() == 0
        await here.look("1-empty")

        here.service.script.ask(events=[{"type": "start", "messageId": "m0"}, 600.0])
        await here.ask("How do I log in?")
        await here.shows(SEARCHING)
        assert await here.answers() in ([], [""])
        await here.look("2-searching")
        await here.click("Stop")
        await here.click("New chat")

        beginning = {"type": "text-delta", "id": "0", "delta": f"\n\n{RICH[:300]}"}
        here.service.script.ask(events=[*HEAD, beginning, 600.0])
        await here.ask("How do I log in?")
        await here.page.get_by_text("the status page").wait_for()
        assert await here.page.locator("main[data-status=streaming]").count() == 1
        assert await here.page.get_by_text(SEARCHING).locator("visible=true").count() <= 1
        await here.look("3-streaming")

        await here.click("Stop")
        await here.shows("This answer is not complete.")
        await here.look("6-stopped")
        await until(lambda: not here.service.answering)

        await here.click("New chat")
        here.service.script.ask(text=RICH, sources=SOURCES)
        await here.answered("How do I log in?\nBy the CLI?")
        await here.page.get_by_role("button", name="Copy answer").wait_for()
        await here.look("4-finished")

        here.service.script.ask(events=[*HEAD, {"type": "error", "errorText": "overloaded"}])
        await here.ask("And by SSO?")
        assert await here.alert() == "The assistant could not finish this answer. Please try again."
        assert await here.page.get_by_label("Good answer").count() == 1  # the cut answer has no thumbs
        await here.look("5-error")

        await here.page.get_by_role("button", name="Edit").first.click()
        await here.shows("This question and the 3 messages after it will be replaced.")
        await here.look("7-editing")
        await here.click("Cancel")

        here.service.script.ask(status=429, headers={"Retry-After": "90"})
        await here.click("Retry")
        assert await here.alert() == "Too many questions. Please wait a moment and try again."
        assert await here.page.get_by_role("button", name="Retry in").is_disabled()
        await here.look("8-refused")

        await here.page.reload()
        await here.page.get_by_role("button", name="Copy answer").first.wait_for()
        await here.look("9-reloaded")
        await here.page.get_by_label("Good answer").first.click()
        await here.page.locator(".thumb[aria-pressed=true]").wait_for()
        await here.look("10-rated")

        await here.page.route("**/api/chat/*", lambda route: route.fulfill(status=503, body="Later, please."))
        await here.page.reload()
        await here.shows("Later, please.")
        await here.look("11-away")
        await here.page.unroute("**/api/chat/*")
        await here.page.reload()
        await here.page.get_by_role("button", name="Copy answer").first.wait_for()


async def test_keys():
    """Enter sends, Shift+Enter begins a line, and a word that is being composed is not sent."""
    async with shop() as here:
        box = here.page.get_by_label("Your question")
        assert await box.evaluate("box => box === document.activeElement")
        low = (await box.bounding_box())["height"]
        await here.page.keyboard.press("Enter")
        await here.page.keyboard.type("one")
        await here.page.keyboard.press("Shift+Enter")
        await here.page.keyboard.type("two")
        assert (await box.bounding_box())["height"] > low
        await box.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
        await here.drafts("one\ntwo")
        here.service.script.ask(events=[*HEAD, 600.0])
        await here.page.keyboard.press("Enter")
        await here.page.get_by_text("Hello").wait_for()
        await here.drafts("")
        assert (await box.bounding_box())["height"] == low
        await here.page.keyboard.type("next")
        await here.page.keyboard.press("Enter")  # not sent, and kept
        await here.drafts("next")
        await here.click("Stop")
        await here.status("ready")
        assert await box.evaluate("box => box === document.activeElement")
        assert await here.questions() == ["one\ntwo"]
        (asked,) = here.service.requests
        assert asked.json["messages"][-1]["parts"] == [{"type": "text", "text": "one\ntwo"}]


async def test_a_reload_keeps_the_chat():
    """Questions, answers and verdicts are there again; a new chat begins anew, and the browser goes back."""
    async with shop() as here:
        await here.answered("How do I get started?")
        await here.click("Good answer")
        await here.page.locator(".thumb[aria-pressed=true]").wait_for()
        before = await here.answers()
        await here.page.reload()
        await here.page.locator(".assistant").wait_for()
        assert await here.answers() == before
        assert await here.page.locator(".thumb[aria-pressed=true]").count() == 1
        await here.click("New chat")
        await here.shows("What would you like to know?")
        await here.page.go_back()
        await here.page.locator(".assistant").wait_for()
        assert await here.questions() == ["How do I get started?"]


@pytest.mark.parametrize("release", RELEASES)
async def test_a_reload_in_the_middle_of_an_answer(release):
    """The answer goes on, or is complete if it has ended. It is asked for once."""
    rest = [
        {"type": "text-delta", "id": "0", "delta": "again"},
        {"type": "text-end", "id": "0"},
        {"type": "finish"},
    ]

    async def later(route):
        await until(lambda: not here.service.answering)
        await route.continue_()

    async with shop(release) as here:
        here.service.script.ask(events=[*HEAD, 4.0, *rest])
        await here.ask("Reload me")
        await here.page.get_by_text("Hello").wait_for()
        await here.page.route("**/stream?*", later)
        await here.page.reload()
        await here.shows("Hello again")
        await here.status("ready")
        assert await here.page.get_by_text("This answer is not complete.").count() == 0
        assert (await here.questions(), await here.answers()) == (["Reload me"], ["Hello again"])
        assert [request.client_left for request in here.service.requests] == [False]


@pytest.mark.parametrize("end", ["stop while searching", "stop", "leave", "new chat"])
async def test_an_answer_that_is_left(end):
    """It ends at the service, once; the part that arrived stays, and Retry asks again."""
    async with shop(streams=MemoryStreamStore(grace=1 if end == "leave" else GRACE)) as here:
        searching = end == "stop while searching"
        here.service.script.ask(events=[*HEAD[: 1 if searching else None], 600.0])
        await here.ask("Leave me")
        await until(lambda: here.service.answering)
        if not searching:
            await here.page.get_by_text("Hello").wait_for()
        url = here.page.url
        if end == "leave":
            await here.page.goto("about:blank")  # the answer ends after the grace
        else:
            await here.click("New chat" if end == "new chat" else "Stop")
        await until(lambda: not here.service.answering)
        assert [request.client_left for request in here.service.requests] == [True]
        if end in ("leave", "new chat"):
            await here.page.goto(url)
        await here.shows("This answer is not complete.")
        if not searching:
            assert (await here.questions(), await here.answers()) == (["Leave me"], ["Hello"])
        if end == "stop":
            assert (await here.page.evaluate("window.spoken"))[-1] == "Stopped."
        here.service.script.ask(text="All of it")
        await here.click("Retry")
        await here.shows("All of it")
        await here.status("ready")
        assert (await here.questions(), await here.answers()) == (["Leave me"], ["All of it"])
        assert await here.page.get_by_text("This answer is not complete.").count() == 0
        assert len(here.service.requests) == 2


async def test_thumbs_reach_the_app(monkeypatch):
    """The app gets who, which answer, and how it was; a reader may change it."""
    got: list[tuple[str, app.Feedback]] = []
    monkeypatch.setattr(app, "store_feedback", lambda *verdict: got.append(verdict))
    async with shop() as here:
        here.service.script.ask(text="An answer")
        await here.answered("A question")
        for label, value in (("Good answer", 1), ("Bad answer", -1)):
            await here.click(label)
            pressed = here.page.locator(".thumb[aria-pressed=true]")
            await here.page.locator(f"[aria-label='{label}'][aria-pressed=true]").wait_for()
            assert await pressed.count() == 1
            assert got[-1][1].value == value
        user = got[-1][0]
        assert here.service.requests[-1].json["fp"] == pseudonym(user)
        assert {(user, one.chatId, one.messageId) for user, one in got} == {
            (user, here.page.url.partition("?chat=")[2], "msg_1")
        }
        await here.page.context.clear_cookies()
        await here.click("Good answer")
        await here.shows("That could not be sent.")
        assert len(got) == 2


EVIL = """<script>window.hacked = 1</script> <img src=x onerror="window.hacked = 2">

<a href="javascript:window.hacked=3">html</a>

[a](javascript:window.hacked=4) [b](JaVaScRiPt:window.hacked=5) [c](data:text/html,<script>1</script>)
[d](vbscript:x) [e](//evil.example/x) [f](/\\\\evil.example) [g](mailto:help@docs.example)
![x](javascript:window.hacked=6) ![y](data:text/html,x) ![z](https://user@evil.example/ok.png)
<javascript:window.hacked=7> <https://fine.example/page>

Use `<Card>` or <Card title="x"> in a page.
"""


async def test_an_answer_cannot_run_anything():
    """HTML is shown as text, and a link leads to the web, to mail or to the documentation."""
    async with shop() as here:
        await here.page.route("https://*evil.example/**", lambda route: route.abort())
        here.service.script.ask(text=EVIL, sources=[("bad", "javascript:window.hacked=8"), ("good", "/good")])
        await here.answered("Be evil")
        text = here.page.locator(".assistant .text")
        links = await text.locator("a").evaluate_all("all => all.map(a => a.getAttribute('href'))")
        assert links == [
            f"{SITE}/%5Cevil.example",
            "mailto:help@docs.example",
            "https://user@evil.example/ok.png",  # the picture from elsewhere
            "https://fine.example/page",
        ]
        for name in ("script", "iframe", "[onerror]", "style", "img"):
            assert await text.locator(name).count() == 0
        shown = await text.inner_text()
        assert '<img src=x onerror="window.hacked = 2">' in shown
        assert '<Card title="x">' in shown
        assert await here.page.locator(".sources a").all_inner_texts() == ["good"]
        assert await here.page.evaluate("window.hacked") is None


async def test_links_and_pictures_lead_to_the_documentation():
    """Paths become addresses there, in the text, the sources and the suggestions; each page once in all."""
    async with shop() as here:
        asked: list[str] = []
        await here.page.route(f"{SITE}/**", lambda route: (asked.append(route.request.url), route.abort())[1])
        here.service.script.ask(text=RICH, sources=SOURCES)
        await here.answered("Links")

        async def hrefs(selector: str) -> list[str]:
            return await here.page.locator(selector).evaluate_all("all => all.map(a => a.href)")

        assert await hrefs(".sources a") == [f"{SITE}/login", f"{SITE}/sso#okta"]
        assert await hrefs(".suggestions a") == [f"{SITE}/limits"]
        assert (await hrefs(".text p a[target]")) == [f"{SITE}/quickstart", "https://status.example/"]
        picture = here.page.get_by_alt_text("The dashboard")
        assert await picture.get_attribute("src") == f"{SITE}/images/dashboard.png"
        await picture.scroll_into_view_if_needed()
        await until(lambda: asked == [f"{SITE}/images/dashboard.png"])
        assert "suggestions" not in (await here.answers())[0]

        # A footnote leads to the note of this answer, and the chat stays.
        url = here.page.url
        await here.page.locator(".text sup a").click()
        note = here.page.url.partition("#")[2]
        assert await here.page.locator(f"[id='{note}']").inner_text() != ""
        assert here.page.url.startswith(url)
        assert len(await here.answers()) == 1


async def test_screen_readers_hear_each_answer_once():
    """What is announced: the search, then the whole answer; not its pieces, and not the labels of buttons."""
    async with shop() as here:
        words = [{"type": "text-delta", "id": "0", "delta": f"{n} "} for n in range(10)]
        code = {"type": "text-delta", "id": "0", "delta": "\n\n```\ncode\n```\n"}
        end = [{"type": "text-end", "id": "0"}, {"type": "finish"}]
        here.service.script.ask(events=[*HEAD, *words, code, *end], pause=0.02)
        await here.answered("Speak")
        await here.page.wait_for_function("window.spoken.length >= 2")
        searching, answer = await here.page.evaluate("window.spoken")
        assert searching == SEARCHING
        assert answer.split() == ["Answer:", "Hello", *map(str, range(10)), "code"]
        assert await here.page.get_by_role("log").get_attribute("aria-live") == "off"


async def test_edit_and_answer_again():
    """An edited question takes the place of what followed it, and a new answer that of the old one."""
    async with shop() as here:
        for number in (1, 2):
            here.service.script.ask(text=f"Answer {number}")
            await here.ask(f"Question {number}")
            await here.shows(f"Answer {number}")
            await here.status("ready")
        here.service.script.ask(text="Better")
        await here.click("Answer again")
        await here.shows("Better")
        await here.status("ready")
        await here.page.reload()
        await here.shows("Better")
        assert await here.questions() == ["Question 1", "Question 2"]
        assert await here.answers() == ["Answer 1", "Better"]

        await here.page.get_by_label("Your question").fill("A draft")
        await here.page.get_by_role("button", name="Edit").last.click()
        await here.shows("This question and its answer will be replaced.")
        await here.drafts("Question 2")
        await here.click("Cancel")
        await here.drafts("A draft")

        here.service.script.ask(text="Other")
        await here.page.get_by_role("button", name="Edit").first.click()
        await here.drafts("Question 1")
        await here.ask("Question one")
        await here.shows("Other")
        await here.status("ready")
        await here.page.reload()
        await here.shows("Other")
        assert (await here.questions(), await here.answers()) == (["Question one"], ["Other"])
        sent = [message["parts"][0]["text"] for message in here.service.requests[-1].json["messages"]]
        assert sent == ["Question one"]


def test_no_lock_file_names_a_registry():
    """Versions are exact, and nothing that is committed says where packages come from."""
    manifest = json.loads((SOURCE / "package.json").read_text("utf-8"))
    versions = [*manifest["dependencies"].values(), *manifest["devDependencies"].values()]
    assert [version for version in versions if not version.replace(".", "").isdigit()] == []
    assert not list(SOURCE.glob("*lock*"))
    assert (SOURCE / ".npmrc").read_text("utf-8") == "package-lock=false\n"
