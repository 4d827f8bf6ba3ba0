"""An app with the relay whose service is silent in mid-answer. Servers run it in their own process.

When the process gets a signal to stop, running answers are cut at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette

from mintlify_async.contrib.relay import Relay, RelayedAnswer
from mintlify_async.testing import LocalService
from tests.support.relay_desk import ENDLESS


def told(answer: RelayedAnswer) -> None:
    text = answer.message.text if answer.message else ""
    print("told", answer.outcome, repr(text), flush=True)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with LocalService() as service, service.session() as session:
        service.script.ask(events=ENDLESS, times=None)
        relay = Relay(session, secrets=["x" * 32], user=lambda request: "u", on_end=told)
        app.router.routes += relay.routes()
        async with relay.drain_on_signal(0):
            yield
    print("lifespan ended", flush=True)


app = Starlette(lifespan=lifespan)
