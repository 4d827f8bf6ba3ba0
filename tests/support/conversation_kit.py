"""Shared by the tests of conversations, for scripted answers and the service's requests."""

from __future__ import annotations

from mintlify_async.conversation.conversation import Conversation


def body(service, index: int = -1) -> dict:
    return service.requests[index].json


def sent(service, index: int = -1) -> list[tuple[str, str]]:
    """Return role and text of the messages in a request."""
    return [
        (message["role"], "".join(part.get("text", "") for part in message["parts"]))
        for message in body(service, index)["messages"]
    ]


def answer(text: str, *, id: str = "m", **finish) -> list[dict]:
    return [
        {"type": "start", "messageId": id},
        {"type": "text-start", "id": "0"},
        *({"type": "text-delta", "id": "0", "delta": word + " "} for word in text.split()),
        {"type": "text-end", "id": "0"},
        {"type": "finish", "finishReason": "stop", **finish},
    ]


def roles(chat: Conversation) -> list[str]:
    return [message.role for message in chat.messages]


def questions(chat: Conversation) -> list[str]:
    """Return the text of the user's messages."""
    return [message.text for message in chat.messages if message.role == "user"]
