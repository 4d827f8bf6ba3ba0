"""The requests of pages with a store on the server, and the responses to them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fastapi")

from tests.support.relay_desk import Desk
from tests.support.relay_kit import events, user_message

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
