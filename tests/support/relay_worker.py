"""One worker of an app with the relay, as its own process.

``python relay_worker.py LISTENER REDIS STORE PAGE``: the number of an open listening socket, which workers
may share; the URL of a Redis, or ""; whether the app stores the conversations, or ""; the folder of a page,
or "". The service is found by the environment; the user is in a header or a cookie.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from contextlib import AsyncExitStack

import uvicorn
from fastapi import FastAPI, Request
from fastapi.staticfiles import StaticFiles

from mintlify_async import MintlifySession
from mintlify_async.contrib.relay import MemoryStreamStore, Relay
from mintlify_async.storage import MemoryStore

SECRET = "a secret of the tests, of more than thirty-two characters"


def user(request: Request) -> str:
    return request.headers.get("x-user") or request.cookies.get("user", "")


async def main(listener: socket.socket, redis: str, store: str, page: str) -> None:
    async with AsyncExitStack() as stack:
        settings = {"secrets": [SECRET], "user": user, "max_per_user": 1000}
        settings["streams"] = MemoryStreamStore()
        settings["store"] = MemoryStore() if store else None
        if redis:
            from redis.asyncio import Redis

            from mintlify_async.contrib.redis import RedisStore, RedisStreamStore

            client = await stack.enter_async_context(Redis.from_url(redis))
            settings["streams"] = RedisStreamStore(client, timeout=10)
            settings["store"] = RedisStore(client) if store else None
        session = await stack.enter_async_context(MintlifySession())
        app = FastAPI(openapi_url=None)
        app.include_router(Relay(session, **settings).router())
        if page:
            app.mount("/", StaticFiles(directory=page, html=True))
        config = uvicorn.Config(app, log_level="warning", access_log=False)
        await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    number, *arguments = sys.argv[1:]
    ends_with_the_test = threading.Thread(target=lambda: os._exit(bool(sys.stdin.read())), daemon=True)
    ends_with_the_test.start()
    asyncio.run(main(socket.socket(fileno=int(number)), *arguments))
