"""The address of an answer in; what was read of it out, by each of the clients compared.

Each subject is opened once (its connection pool stays warm) and then asked for
the same answer again and again. It does what its users get from it by
default, and no more: the comparison is of whole clients, on the same bytes.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from .server import ServerAddress

__all__ = [
    "FLOOR",
    "OURS",
    "SUBJECTS",
    "Heard",
    "Reader",
    "Subject",
    "available",
    "session_for",
    "slow_motion",
]

SLOWDOWN = 20  # of a process in callgrind, at least
ADMIN_KEY, ASSISTANT_KEY = "mint_benchmark", "mint_dsc_benchmark"
Installed = TypeVar("Installed", bound="Needing")
BODY = {
    "fp": "anonymous",
    "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "How do I sign in?"}]}],
    "retrievalPageSize": 5,
}
HEADERS = {"Authorization": f"Bearer {ASSISTANT_KEY}"}
DONE = "[DONE]"


class Heard(NamedTuple):
    """What a subject took from one answer: how much, and the text where it was asked to keep it."""

    events: int = 0
    body_bytes: int = 0
    text: str | None = None


class Needing(Protocol):
    """Anything that cannot do without some modules."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The modules' names."""
        ...


class Reader(Protocol):
    """Reads one whole answer.

    Calls *first* when it has the first event. With *keep*, says the text, too: not to be timed.
    """

    async def __call__(self, *, first: Callable[[], object] = int, keep: bool = False) -> Heard:
        """Read it."""
        ...


class Subject(NamedTuple):
    """A client that is compared.

    *needs* are the modules it cannot do without; *named*: it yields only
    events that have an ``event:`` line; *unable*: shapes on which it fails.
    """

    name: str
    needs: tuple[str, ...]
    opened: Callable[[ServerAddress, str], AbstractAsyncContextManager[Reader]]
    named: bool = False
    unable: tuple[str, ...] = ()


def text_of(events: list[Any]) -> str:
    """Join the text deltas of *events*, which are objects or dicts."""
    fields = [event if isinstance(event, dict) else vars_of(event) for event in events]
    return "".join(event["delta"] for event in fields if event.get("type") == "text-delta")


def vars_of(event: Any) -> dict[str, Any]:
    """Return an event object's type and delta, whatever its class."""
    return {"type": getattr(event, "type", None), "delta": getattr(event, "delta", None)}


async def drain(stream: AsyncIterator[Any], first: Callable[[], object], keep: bool) -> tuple[int, list[Any]]:
    """Step through *stream* with the smallest loop there is."""
    if keep:
        kept = [event async for event in stream]
        return len(kept), kept
    async for _ in stream:
        first()
        break
    count = 1
    async for _ in stream:
        count += 1
    return count, []


def session_for(server: ServerAddress, domain: str = "burst", **options: Any) -> Any:
    """Return this package's session for *server*."""
    from mintlify_async import MintlifySession

    if server.authority:
        options["ssl"] = trusting(server.authority)
    return MintlifySession(
        project_id="p",
        domain=domain,
        admin_key=ADMIN_KEY,
        assistant_key=ASSISTANT_KEY,
        base_url=server.base_url,
        **options,
    )


def slow_motion() -> dict[str, Any]:
    """Make the package do what it does by the clock as much slower as callgrind makes the process.

    It looks at its live streams twice a second, and waits a little for what may follow an answer's end: the
    count would else hold both some twenty times over; and its limits would come in the middle of a long
    run. Returns a session's options for that.
    """
    from mintlify_async import Timeouts, assistant, transport  # not beside aiohttp: more to collect there

    transport.WATCH_SECONDS *= SLOWDOWN
    assistant.GRACE_SECONDS *= SLOWDOWN
    usual = Timeouts()
    assert usual.idle is not None
    slow = Timeouts(
        connect=usual.connect * SLOWDOWN,
        first_event=usual.first_event * SLOWDOWN,
        idle=usual.idle * SLOWDOWN,
    )
    return {"timeouts": slow}


def trusting(authority: str) -> Any:
    """Return a TLS context that trusts the benchmark's own authority."""
    import ssl

    return ssl.create_default_context(cafile=authority)


@asynccontextmanager
async def ours(server: ServerAddress, shape: str) -> AsyncIterator[Reader]:
    """This package: typed events, folded; the message is taken at the end."""
    async with session_for(server, shape) as session:

        async def read(*, first: Callable[[], object] = int, keep: bool = False) -> Heard:
            reply = session.ask("How do I sign in?")
            count, kept = await drain(reply, first, keep)
            text = reply.message.text
            assert not keep or text_of(kept) == text
            return Heard(count, text=text)

        yield read


@asynccontextmanager
async def bare_aiohttp(server: ServerAddress, shape: str) -> AsyncIterator[Reader]:
    """The floor: aiohttp's ``iter_any``, which parses nothing."""
    import aiohttp

    options: dict[str, Any] = {"ssl": trusting(server.authority)} if server.authority else {}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout) as session:

        async def read(*, first: Callable[[], object] = int, keep: bool = False) -> Heard:
            size = 0
            async with session.post(server.url(shape), json=BODY, headers=HEADERS, **options) as response:
                async for data in response.content.iter_any():
                    if not size:
                        first()
                    size += len(data)
            return Heard(body_bytes=size)

        yield read


@asynccontextmanager
async def sse_client(server: ServerAddress, shape: str) -> AsyncIterator[Reader]:
    """aiohttp-sse-client2, and ``json.loads``; it would reconnect, so reading stops at ``[DONE]``."""
    import aiohttp
    from aiohttp_sse_client2.client import EventSource

    async with aiohttp.ClientSession() as session:

        async def read(*, first: Callable[[], object] = int, keep: bool = False) -> Heard:
            kept: list[Any] = []
            count = 0
            source = EventSource(
                server.url(shape),
                option={"method": "POST"},
                session=session,
                json=BODY,
                headers=dict(HEADERS),
            )
            async with source:
                async for event in source:
                    if event.data == DONE:
                        break
                    data = json.loads(event.data)
                    if not count:
                        first()
                    count += 1
                    if keep:
                        kept.append(data)
            return Heard(count, text=text_of(kept) if keep else None)

        yield read


@asynccontextmanager
async def httpx_sse(server: ServerAddress, shape: str) -> AsyncIterator[Reader]:
    """httpx with httpx-sse, and ``json.loads``."""
    import httpx
    from httpx_sse import aconnect_sse

    async with httpx.AsyncClient(**httpx_options(server)) as client:

        async def read(*, first: Callable[[], object] = int, keep: bool = False) -> Heard:
            kept: list[Any] = []
            count = 0
            connected = aconnect_sse(client, "POST", server.url(shape), json=BODY, headers=dict(HEADERS))
            async with connected as source:
                async for event in source.aiter_sse():
                    if event.data == DONE:
                        continue
                    data = json.loads(event.data)
                    if not count:
                        first()
                    count += 1
                    if keep:
                        kept.append(data)
            return Heard(count, text=text_of(kept) if keep else None)

        yield read


def httpx_options(server: ServerAddress) -> dict[str, Any]:
    """Return the options of an httpx client that may hold any number of streams."""
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    verify = trusting(server.authority) if server.authority else True
    return {"timeout": None, "limits": limits, "trust_env": False, "verify": verify}


@asynccontextmanager
async def langgraph(server: ServerAddress, shape: str) -> AsyncIterator[Reader]:
    """httpx with langgraph's decoder, which parses with orjson; ``[DONE]`` is kept from it."""
    import httpx
    from langgraph_sdk.sse import SSEDecoder, aiter_lines_raw

    async with httpx.AsyncClient(**httpx_options(server)) as client:

        async def read(*, first: Callable[[], object] = int, keep: bool = False) -> Heard:
            kept: list[Any] = []
            count = 0
            decoder = SSEDecoder()
            async with client.stream("POST", server.url(shape), json=BODY, headers=HEADERS) as response:
                async for line in aiter_lines_raw(response):
                    if line == b"data: [DONE]":
                        continue
                    part = decoder.decode(line)  # type: ignore[arg-type]
                    if part is not None and part.data is not None:
                        if not count:
                            first()
                        count += 1
                        if keep:
                            kept.append(part.data)
            return Heard(count, text=text_of(kept) if keep else None)

        yield read


@asynccontextmanager
async def openai(server: ServerAddress, shape: str) -> AsyncIterator[Reader]:
    """openai's ``AsyncStream``; it does not fold."""
    import openai as package

    client = package.AsyncOpenAI(api_key=ASSISTANT_KEY, base_url=server.base_url, max_retries=0)
    async with client:
        yield sdk_reader(package, client, shape)


@asynccontextmanager
async def anthropic(server: ServerAddress, shape: str) -> AsyncIterator[Reader]:
    """anthropic's ``AsyncStream``; it does not fold."""
    import anthropic as package

    client = package.AsyncAnthropic(api_key=ASSISTANT_KEY, base_url=server.base_url, max_retries=0)
    async with client:
        yield sdk_reader(package, client, shape)


def sdk_reader(package: Any, client: Any, shape: str) -> Reader:
    """Return the reader of an SDK of that family, with a small model for the event."""

    class Event(package.BaseModel):  # type: ignore[misc]
        type: str
        id: str | None = None
        delta: str | None = None

    kind = package.AsyncStream[Event]
    path = f"/discovery/v2/assistant/{shape}/message"

    async def read(*, first: Callable[[], object] = int, keep: bool = False) -> Heard:
        stream = await client.post(path, body=BODY, cast_to=Event, stream=True, stream_cls=kind)
        count, kept = await drain(stream, first, keep)
        return Heard(count, text=text_of(kept) if keep else None)

    return read


OURS = Subject("mintlify-async", ("mintlify_async",), ours)
FLOOR = Subject("aiohttp", ("aiohttp",), bare_aiohttp)

#: In the order of the tables. The second of ours is the control: what its ratio is off 1 is noise.
SUBJECTS = (
    OURS,
    Subject("control", ("mintlify_async",), ours),
    FLOOR,
    Subject("aiohttp-sse-client2", ("aiohttp_sse_client2",), sse_client, unable=("event",)),  # LineTooLong
    Subject("httpx-sse", ("httpx", "httpx_sse"), httpx_sse),
    Subject("langgraph", ("httpx", "langgraph_sdk"), langgraph),
    Subject("openai", ("openai",), openai),
    Subject("anthropic", ("anthropic",), anthropic, named=True),
)


def available(subjects: Iterable[Installed]) -> list[Installed]:
    """Return those whose modules are installed."""
    return [one for one in subjects if all(importlib.util.find_spec(name) for name in one.needs)]
