"""An app with the relay between a local service and a page, over real connections on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

pytest.importorskip("fastapi")

from starlette.applications import Starlette
from starlette.requests import Request

from mintlify_async import MintlifySession, Thread
from mintlify_async.contrib.relay import Relay
from mintlify_async.contrib.relay.seal import ThreadSeal
from mintlify_async.testing import LocalService
from tests.support.relay_kit import SECRET, Page, events, serving, until, user_message

TURN = [
    {"type": "start", "messageId": "m1"},
    {"type": "text-start", "id": "0"},
    {"type": "text-delta", "id": "0", "delta": "Hello "},
    {"type": "text-delta", "id": "0", "delta": "there"},
    {"type": "text-end", "id": "0"},
    {"type": "finish", "finishReason": "stop", "threadId": "thread_77"},
]

HEAD = TURN[:3]
ENDLESS = [*HEAD, 600.0, *TURN[3:]]


def x_user(request: Request) -> str:
    """The tests' own authentication."""
    return request.headers.get("x-user", "")


class Desk:
    """A service, an app with the relay, and the page's side of it."""

    def __init__(self, service: LocalService, session: MintlifySession, page: Page, relay: Relay) -> None:
        self.service, self.session, self.page, self.relay = service, session, page, relay

    def opened(self, token: str, user: str = "ada") -> Thread:
        """Return the thread in a page's token."""
        return ThreadSeal([SECRET]).open(token, user, self.site)

    def sealed(self, thread: Thread) -> str:
        """Return the token that ada's page has of *thread*."""
        return ThreadSeal([SECRET]).seal(thread, "ada", self.site)

    @property
    def site(self) -> str:
        return f"{self.session.base_url} {self.session.options.domain}"

    @property
    def asked(self) -> dict[str, Any]:
        """The body of the last question that the service got."""
        return self.service.requests[-1].json

    def other(self, user: str) -> Page:
        return Page(self.page.http, self.page.address, user)

    async def all_closed(self) -> None:
        """Return when no answer runs any more, on either side."""
        await until(lambda: not self.service.answering and not self.relay.streaming)


@asynccontextmanager
async def served(relay: Relay) -> AsyncIterator[Page]:
    """Serve an app with *relay*. Yield a page of it."""
    app = Starlette(routes=relay.routes())
    async with serving(app) as address, aiohttp.ClientSession() as http:
        yield Page(http, address)


@asynccontextmanager
async def desk(
    *, session: dict[str, Any] | None = None, service: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Desk]:
    """Start everything, and check at the end that the page never got a secret."""
    settings = {"secrets": [SECRET], "user": x_user, **settings}
    async with LocalService(**(service or {})) as local, local.session(**(session or {})) as asking:
        relay = Relay(asking, **settings)
        async with served(relay) as page:
            made = Desk(local, asking, page, relay)
            yield made
            await made.all_closed()
        assert_nothing_shown(local, page.seen)
        assert page.user == "ada" or page.user.encode() not in page.seen


@asynccontextmanager
async def other_worker(here: Desk, **settings: Any) -> AsyncIterator[Page]:
    """Start another worker of the same app. Yield a page of it."""
    async with served(Relay(here.session, secrets=[SECRET], user=x_user, **settings)) as page:
        yield page


def assert_nothing_shown(service: LocalService, seen: bytes) -> None:
    """No key, no thread id and no thread key went to the page or came from it."""
    secrets = [service.assistant_key, service.admin_key, "thread_77", "thread_key"]
    for thread in service.threads.values():
        secrets += [thread.id, thread.key or thread.id]
    assert [secret for secret in secrets if secret.encode() in seen] == []


# --- Pages with a store on the server: their requests, and the responses -------------------------------

USER = "ada@private.example"


def form(text: str | None, id: str = "u1", **fields: Any) -> dict[str, Any]:
    """Return the body that prepareSendMessagesRequest makes, with only the newest message."""
    body: dict[str, Any] = {"id": fields.pop("chat", "chat-1"), "trigger": "submit-message", **fields}
    return body if text is None else {**body, "message": user_message(text, id)}


def again(text: str | None = None, id: str = "u1", **fields: Any) -> dict[str, Any]:
    return form(text, id, trigger="regenerate-message", **fields)


async def say(here: Desk, body: dict[str, Any]) -> str:
    """Post *body* as USER. Return the id of the page's answer."""
    here.page.user = USER
    status, content, _ = await here.page.post(body)
    assert status == 200, content
    shown = events(content)
    assert [event for event in shown if event["type"] == "error"] == []
    (id,) = {event["messageId"] for event in shown if "messageId" in event}
    return id


async def shown(here: Desk, chat_id: str = "chat-1") -> list[tuple[str, str]]:
    """Return id and text of the messages that the page gets back."""
    here.page.user = USER
    status, messages = await here.page.history(chat_id)
    assert status == 200, messages
    return [
        (message["id"], "".join(part.get("text", "") for part in message["parts"])) for message in messages
    ]


def asked(here: Desk) -> list[str]:
    """Return the ids of the messages of the last request to the service."""
    return [message["id"] for message in here.asked["messages"]]
