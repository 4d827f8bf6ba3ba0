"""What a session shares with those that its ``with_options`` makes: connections, and jobs it knows."""

from __future__ import annotations

import ssl as ssl_module
import warnings
from typing import TYPE_CHECKING

from .checks import check_bool, check_type
from .http.dispatch import Dispatcher
from .http.retry import RetryBudget
from .http.transport import Transport, TransportSettings
from .jobs.agent_api import AgentAPI, LoopResources
from .jobs.stale_guard import JobStates
from .runtime.caller import Place
from .runtime.per_event_loop import LoopLocal
from .settings.assumptions import Assumptions
from .settings.environment import proxy_to, service_url
from .settings.options import Options

if TYPE_CHECKING:
    import aiohttp


class Shared:
    """What a session shares with those that its ``with_options`` makes: connections, and jobs it knows.

    Sessions, handles and open replies keep it alive. It is collected with the last of them, and warns if the
    session was never closed. It contains no keys, because a reply must not keep them.

    Args:
        options: Those of the first session, which limit how often jobs are polled.
        transport: How connections are made.
        made_at: Where the first session was made.
    """

    def __init__(self, options: Options, transport: TransportSettings, made_at: Place) -> None:
        self.transport = transport
        self.budget = RetryBudget(options.retry.budget)
        self.states = JobStates()
        policy = options.poll
        self.loops = LoopLocal(lambda: LoopResources(Transport(transport), policy))
        self._made_at = made_at

    def agent_api(self, options: Options) -> AgentAPI:
        """Return what sends requests with *options*. It keeps the connections alive."""
        loops = self.loops
        http = Dispatcher(
            assumptions=options.assumptions,
            transport=lambda: loops.get().transport,
            keys=options.keys,
            retry=options.retry,
            budget=self.budget,
            quota=options.quota,
            observer=options.observer,
            base_url=self.transport.base_url,
        )
        return AgentAPI(
            http=http,
            loops=loops,
            poll=options.poll,
            defaults=options,
            states=self.states,
            ledger=options.ledger,
            owner=self,
        )

    def __del__(self) -> None:
        """Free the connections, and warn, if the session was not closed."""
        if self.loops.abandon():
            warnings.warn(
                f"a MintlifySession made at {':'.join(map(str, self._made_at))} was never closed; "
                "use `async with` or `await session.close()`",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )


def transport_settings(
    assumptions: Assumptions,
    base_url: str | None,
    allow_insecure_http: bool,
    client_session: aiohttp.ClientSession | None,
    proxy: str | None,
    ssl: ssl_module.SSLContext | None,
) -> TransportSettings:
    """Return how a session connects, checked."""
    check_type(ssl, "ssl", ssl_module.SSLContext)  # aiohttp's ssl=False would verify nothing
    check_bool(allow_insecure_http, "allow_insecure_http")
    url = service_url(assumptions, base_url, allow_insecure_http=allow_insecure_http)
    return TransportSettings(base_url=url, client_session=client_session, proxy=proxy_to(url, proxy), ssl=ssl)
