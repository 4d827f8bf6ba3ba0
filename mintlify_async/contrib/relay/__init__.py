"""A relay between ``useChat`` web pages of the AI SDK and the assistant. All secrets stay on the server.

Two lines in a FastAPI app (extra ``relay``)::

    from mintlify_async.contrib.relay import Relay

    relay = Relay(session, secrets=[os.environ["RELAY_SECRET"]], user=current_user)
    app.include_router(relay.router())

and one in the web page: ``useChat({ transport: new DefaultChatTransport({ api: "/api/chat" }) })``.

The size of a request is limited, and only listed fields of it reach the service. The answer is streamed as it
arrives, in a form that every release from ai 5.0.0 on accepts. The conversation's thread is sent to the page
encrypted, in the message's metadata. With ``store=``, history and thread stay on the server. The service's
key, the thread's id and the thread's key never reach the page. If the client disconnects, the answer is
closed at the service, even if it is silent.

For pages of another origin, set up CORS in your app, with exact origins. A proxy must neither buffer nor
compress the answer (Starlette's ``GZipMiddleware`` does not change ``text/event-stream``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...wrong_names import missing_names
from .. import extra_missing
from ..memory_stream_store import MemoryStreamStore

try:
    from .refusal_texts import RelayRefusal
    from .relay import Relay
    from .running_answer import RelayedAnswer
except ModuleNotFoundError as error:
    raise extra_missing("relay", error) from None

__all__ = ["MemoryStreamStore", "Relay", "RelayRefusal", "RelayedAnswer"]

if not TYPE_CHECKING:  # hidden from type checkers, so that they report a wrong name themselves
    __getattr__ = missing_names(__name__)
