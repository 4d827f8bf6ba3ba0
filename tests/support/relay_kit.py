"""Shared by the relay's tests. Has an app on loopback, a page without a browser, the events of an answer."""

from __future__ import annotations

import asyncio
import io
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import uvicorn

from mintlify_async.contrib.relay.seal import ThreadSeal

SECRET = "a secret of the tests, of more than thirty-two characters"


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """Serve *app* by uvicorn, on this loop and a free port. Yield its URL."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="error",
        timeout_graceful_shutdown=1,
        timeout_keep_alive=1_000_000,  # virtual time jumps over the usual five seconds
        lifespan="on",
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[sock])  # like serve(), without its signals and its ticking
    assert server.started
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        await server.shutdown(sockets=[sock])


async def until(true: Callable[[], Any]) -> None:
    """Wait until *true* returns something true. Fail after half a minute."""
    for _ in range(3000):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never became true")


def pseudonym(user: str) -> str:
    """Return the service's pseudonym of *user*."""
    return ThreadSeal([SECRET]).pseudonym(user)


def user_message(text: str, id: str = "u1", **fields: Any) -> dict[str, Any]:
    """Return a message in the form of ``useChat``."""
    return {"parts": [{"type": "text", "text": text}], "id": id, "role": "user", **fields}


def events(body: bytes) -> list[dict[str, Any]]:
    """Return the events of a relayed answer, which must end with ``[DONE]``."""
    datas = [line[6:] for line in body.decode("ascii").split("\n") if line.startswith("data: ")]
    assert datas[-1] == "[DONE]"
    return [json.loads(data) for data in datas[:-1]]


def thread_token(body: bytes) -> str:
    """Return the sealed thread in the answer's last metadata."""
    metadata = [event.get("messageMetadata", {}) for event in events(body)]
    return [of_event["threadId"] for of_event in metadata if "threadId" in of_event][-1]


def asking(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the body of a question in the form of ``useChat``, with the complete history."""
    return {"id": "chat-1", "messages": messages, "trigger": "submit-message", **fields}


class Page:
    """Works like ``useChat`` without a browser. It posts the complete history and folds nothing."""

    def __init__(self, http: aiohttp.ClientSession, address: str, user: str = "ada") -> None:
        """Talk to the app at *address* as *user*."""
        self.http, self.address, self.user = http, address, user
        self.seen = b""  # all received and sent bytes

    def request(self, body: Any = ..., **settings: Any) -> Any:
        """Return the request with a question, or with exactly *body*, as a context manager."""
        body = asking(user_message("How do I log in?")) if body is ... else body
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.seen += data
        headers = {"content-type": "application/json", "x-user": self.user, **settings.pop("headers", {})}
        return self.http.post(f"{self.address}/api/chat", data=io.BytesIO(data), headers=headers, **settings)

    async def read(self, request: Any) -> tuple[int, bytes, Any]:
        """Return the status, the complete body and the headers of the response to *request*."""
        async with request as response:
            content = await response.read()
            self.seen += content + repr(dict(response.headers)).encode()
            return response.status, content, response.headers

    async def post(self, body: Any = ..., **settings: Any) -> tuple[int, bytes, Any]:
        """Return the status, the complete body and the headers of the response."""
        return await self.read(self.request(body, **settings))

    async def history(self, chat_id: str = "chat-1") -> tuple[int, Any]:
        """Return the status and the messages, or the text of a refusal."""
        url = f"{self.address}/api/chat/{chat_id}"
        status, content, _ = await self.read(self.http.get(url, headers={"x-user": self.user}))
        return status, json.loads(content) if status == 200 else content.decode()

    def stream(self, method: str = "GET", chat: str = "chat-1", **settings: Any) -> Any:
        """Return the request that resumes or, with ``DELETE``, stops the chat's answer."""
        url = f"{self.address}/api/chat/{chat}/stream"
        return self.http.request(method, url, headers={"x-user": self.user}, **settings)

    async def resume(self, **settings: Any) -> tuple[int, bytes]:
        """Return the status and the complete body of the chat's answer."""
        return (await self.read(self.stream(**settings)))[:2]

    async def stop(self, **settings: Any) -> int:
        """Stop the chat's answer. Return the status."""
        async with self.stream("DELETE", **settings) as response:
            return response.status

    async def ask(self, *messages: dict[str, Any], **fields: Any) -> bytes:
        """Return the answer's body."""
        status, content, _ = await self.post(asking(*messages, **fields))
        assert status == 200, content
        return content
