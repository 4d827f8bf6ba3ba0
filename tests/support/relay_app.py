"""An app with the relay, for servers in their own processes, which find the service by the environment.

``STREAMS`` says where running answers are: ``memory``, or the URL of a Redis. With ``STORE``, the app stores
the conversations. ``PAGE`` is the folder of a page. The user is in a header or a cookie. When the process
gets a signal to stop, running answers are cut at once.

``python -m tests.support.relay_app LISTENER`` serves it, on the open listening socket with that number, which
several workers may share.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.staticfiles import StaticFiles

from mintlify_async import MintlifySession
from mintlify_async.contrib.relay import MemoryStreamStore, Relay, RelayedAnswer
from mintlify_async.storage import MemoryStore
from tests.support.relay_kit import SECRET


def user(request: Request) -> str:
    return request.headers.get("x-user") or request.cookies.get("user", "")


def told(answer: RelayedAnswer) -> None:
    print("told", answer.outcome, repr(answer.message.text if answer.message else ""), flush=True)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    streams, store, page = (os.environ.get(name, "") for name in ("STREAMS", "STORE", "PAGE"))
    places: dict[str, Any] = {"streams": MemoryStreamStore()} if streams else {}
    places |= {"store": MemoryStore()} if store else {}
    async with AsyncExitStack() as stack:
        if streams.startswith("redis"):
            from redis.asyncio import Redis

            from mintlify_async.contrib.redis import RedisStore, RedisStreamStore

            client = await stack.enter_async_context(Redis.from_url(streams))
            places["streams"] = RedisStreamStore(client, timeout=10)
            places |= {"store": RedisStore(client)} if store else {}
        session = await stack.enter_async_context(MintlifySession())
        relay = Relay(session, secrets=[SECRET], user=user, max_per_user=1000, on_end=told, **places)
        app.router.routes += relay.routes()
        if page:
            app.mount("/", StaticFiles(directory=page, html=True))
        await stack.enter_async_context(relay.drain_on_signal(0))
        yield
    print("lifespan ended", flush=True)


app = Starlette(lifespan=lifespan)

if __name__ == "__main__":
    ends_with_the_test = threading.Thread(target=lambda: os._exit(bool(sys.stdin.read())), daemon=True)
    ends_with_the_test.start()
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(sys.argv[1]))])
