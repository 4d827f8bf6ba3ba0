"""Answers the AI SDK's ``useChat`` pages from the assistant, with every secret on the server.

Three lines in a FastAPI app (extra ``relay``)::

    from mintlify_async.contrib.relay import relay_router

    app.include_router(relay_router(session, secrets=[os.environ["RELAY_SECRET"]], user=current_user))

and one in the page: ``useChat({ transport: new DefaultChatTransport({ api: "/api/chat" }) })``.

What a page posts is read within bounds and stripped to what may pass. The answer
streams as it comes, in a form that every release from ai 5.0.0 on accepts; the
conversation's thread travels sealed in the message's metadata. The service's key,
the thread and the thread's key never reach the page. When the reader leaves, the
answer is closed at the service, also while it is silent.

Cross-origin pages: CORS is your app's; allow exact origins. A server in front must
neither buffer nor compress the answer (Starlette's own ``GZipMiddleware`` leaves
``text/event-stream`` alone).
"""

from __future__ import annotations

from .answer import OpenReply, RelayedAnswer, RelayResponse
from .question import Question, RelayLimits
from .refusals import RelayRefusal
from .relay import Relay, RelaySettings
from .router import relay_router, relay_routes
from .seal import SealError, ThreadSeal

__all__ = [
    "OpenReply",
    "Question",
    "Relay",
    "RelayLimits",
    "RelayRefusal",
    "RelayResponse",
    "RelaySettings",
    "RelayedAnswer",
    "SealError",
    "ThreadSeal",
    "relay_router",
    "relay_routes",
]
