"""An app with the relay whose service is silent in mid-answer. Servers run it in their own process.

DRAIN is the number of seconds for running answers when the process gets a signal to stop.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from mintlify_async.contrib.relay import Relay, RelayedAnswer
from mintlify_async.testing import LocalService

HEAD = [
    {"type": "start", "messageId": "m1"},
    {"type": "text-start", "id": "0"},
    {"type": "text-delta", "id": "0", "delta": "Hello "},
]


def told(answer: RelayedAnswer) -> None:
    text = answer.message.text if answer.message else ""
    print("told", answer.outcome, repr(text), flush=True)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with LocalService() as service, service.session() as session:
        service.script.ask(events=[*HEAD, 60.0], times=None)
        relay = Relay(session, secrets=["x" * 32], user=lambda request: "u", on_end=told)
        app.state.relay = relay
        if "DRAIN" in os.environ:
            async with relay.drain_on_signal(float(os.environ["DRAIN"])):
                yield
        else:
            yield
    print("lifespan ended", flush=True)


async def answer(request: Request) -> Response:
    return await request.app.state.relay.routes()[0].endpoint(request)


async def streaming(request: Request) -> Response:
    return PlainTextResponse(str(request.app.state.relay.streaming))


app = Starlette(lifespan=lifespan)
app.add_route("/api/chat", answer, methods=["POST"])
app.add_route("/streaming", streaming)
