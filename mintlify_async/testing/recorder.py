r"""Recordings: files with requests and responses, which the local service can play back.

A recording is a file of JSON lines. The first is ``{"recording": 1, "redacted": true, …}``, where 1 is the
version. Each following line has the fields of an :class:`Exchange` and is written when its response has
ended. Bytes are text, or ``{"base64": …}`` if they are not UTF-8::

    {"operation": "ask", "method": "POST", "path": …, "request_body": …, "after": 0.31, "status": 200,
     "body": [[0.0, "data: {\"type\":\"start\"}\n\n"], [0.02, …]], "ended_after": 0.0, "how": "whole", …}
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, cast

import aiohttp
from attrs import define, evolve, field
from cattrs import Converter

from ..http.connection_errors import FOREIGN_ERRORS
from ..protocol.requests import Call
from ..runtime.lasting_steps import KeptStep, Recordings
from ..runtime.tasks import compute
from ..session import MintlifySession, record_requests, steps_of
from ..version import __version__
from ..wrong_names import helpful
from .redaction import BodyRedactor, hide, redact_header, redact_path, secrets_in

RECORDING_VERSION = 1

How: TypeAlias = Literal["whole", "lost", "left", "none"]

SMALL_BYTES = 32 * 1024
"""Larger exchanges are written by a thread, because replacing their text would block the event loop."""

log = logging.getLogger("mintlify_async")


@define(kw_only=True, repr=False)
class Exchange:
    """One request and its response, with every byte and pause as the client read it.

    Args:
        operation: ``create_job``, ``get_job``, ``send_message`` or ``ask``.
        method: The HTTP method.
        path: The path that was sent.
        route: The path's template.
        request_headers: The headers that were sent, names in lower case.
        request_body: The body that was sent. Empty if there was none.
        at: When the request was sent, by the loop's time in seconds. In a file, seconds since the first
            exchange.
        after: Seconds until the response's headers, or until the failure if there is no response.
        status: The response's status. None without a response.
        headers: The response's headers, names in lower case. Of a repeated header, the first one.
        body: The pieces of the body as they were read. Each has the seconds since the previous piece.
        ended_after: Seconds from the last piece to the end.
        how: The end of the response: ``whole``, ``lost`` (the connection was lost), ``left`` (the client
            closed it), or ``none`` (there was no response).
        error: The class of the network's error, or None.
    """

    operation: str
    method: str
    path: str
    route: str
    request_headers: dict[str, str]
    request_body: bytes
    at: float
    after: float = 0.0
    status: int | None = None
    headers: dict[str, str] = field(factory=dict[str, str])
    body: list[tuple[float, bytes]] = field(factory=list[tuple[float, bytes]])
    ended_after: float = 0.0
    how: How = "none"
    error: str | None = None

    def redacted(self, *, keep_text: bool) -> Exchange:
        """Return a copy without keys. Without *keep_text*, text is also replaced. Lengths do not change."""
        content = b"".join(piece for _, piece in self.body)
        all_secrets = secrets_in(self.request_headers, self.request_body) | secrets_in(self.headers, content)
        secrets = sorted(all_secrets, key=len, reverse=True)
        redactor = BodyRedactor(keep_text, secrets)
        content, pieces, start = redactor.redact(content), list[tuple[float, bytes]](), 0
        for pause, piece in self.body:
            pieces.append((pause, content[start : start + len(piece)]))
            start += len(piece)

        def shown(headers: Mapping[str, str]) -> dict[str, str]:
            return {
                name: hide(redact_header(name, value, keep_text=keep_text), secrets)
                for name, value in headers.items()
            }

        return evolve(
            self,
            path=hide(redact_path(self.path, self.route, keep_text=keep_text), secrets),
            request_headers=shown(self.request_headers),
            request_body=redactor.redact(self.request_body),
            headers=shown(self.headers),
            body=pieces,
        )


def _to_json(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:  # a piece may end inside a character
        return {"base64": base64.b64encode(data).decode()}


def _to_bytes(recorded: Any, _: object) -> bytes:
    if isinstance(recorded, str):
        return recorded.encode()
    return base64.b64decode(recorded["base64"], validate=True)


CONVERTER = Converter()
"""Reads and writes an exchange as JSON."""
CONVERTER.register_structure_hook(bytes, _to_bytes)
CONVERTER.register_unstructure_hook(bytes, _to_json)
CONVERTER.register_unstructure_hook(float, partial(round, ndigits=6))  # microseconds


@helpful
class Recorder:
    """Writes the requests and responses of a session to a file, for ``service.replay(path)``.

    ::

        async with MintlifySession() as session:
            Recorder("answer.jsonl").record(session)
            await session.ask("How do I log in?")

    API keys, words that start like one, and threads' keys are never written. Prompts, answers, titles, paths,
    URLs, the project and the domain are replaced by text of the same length and the same escapes. Names of
    fields, event types, ids of jobs, threads, messages and requests, dates, blanks and punctuation are kept.

    Each exchange stays in memory until its response has ended. Then it is written in one piece. So sessions,
    loops and threads may share a recorder, and there is nothing to close. A complete response is written
    before its end is returned to your code. A thread writes responses of more than 32 KiB. If such a response
    is interrupted, or your code leaves it early, it is in the file when the session is closed.

    Pauses are measured when the response is read, so slow reading makes longer pauses. If the file cannot be
    written any more, a warning is logged and the recording ends. The requests continue.

    Args:
        path: The file, which the recorder replaces when it is made. Only the file's owner can read it.
        keep_text: Whether to replace only keys, and no other text.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], *, keep_text: bool = False) -> None:
        self._path: Path | None = Path(path)
        self._keep_text = keep_text
        self._began: float | None = None
        opening = {"recording": RECORDING_VERSION, "redacted": not keep_text, "client": __version__}
        self._write(self._path, opening, os.O_TRUNC)

    def record(self, session: MintlifySession) -> Self:
        """Record every request of *session* and of the sessions that share its connections, from now on."""
        record_requests(session, partial(self._record, steps_of(session)))
        return self

    async def _record(
        self,
        steps: Callable[[], Recordings],
        call: Call,
        headers: Mapping[str, str],
        response: Awaitable[aiohttp.ClientResponse],
    ) -> aiohttp.ClientResponse:
        """Send a request, and return a response whose body is recorded."""
        exchange = Exchange(
            operation=call.operation.name,
            method=call.operation.method,
            path=call.path,
            route=call.route,
            request_headers={name.lower(): str(value) for name, value in headers.items()},
            request_body=call.body or b"",
            at=asyncio.get_running_loop().time(),
        )
        self._began = exchange.at if self._began is None else self._began
        keep = partial(self._keep, steps())
        try:
            recorded = _RecordedResponse(await response, exchange, keep)
        except BaseException as error:  # an error or a cancellation: no response follows
            exchange.after = asyncio.get_running_loop().time() - exchange.at
            exchange.error = type(error).__name__
            keep(exchange)
            raise
        return cast("aiohttp.ClientResponse", recorded)

    def _keep(self, steps: Recordings, exchange: Exchange) -> KeptStep | None:
        """Write a small exchange now. Otherwise return the step in which a thread writes the exchange."""
        size = len(exchange.request_body) + sum(len(data) for _, data in exchange.body)
        if size <= SMALL_BYTES:
            self.keep(exchange)
            return None
        return steps.keep(compute([partial(self.keep, exchange)]), f"{exchange.operation} was not recorded")

    def keep(self, exchange: Exchange) -> None:
        """Write an exchange whose response has ended."""
        if self._path is None:
            return
        at = exchange.at - (exchange.at if self._began is None else self._began)
        shown = evolve(exchange.redacted(keep_text=self._keep_text), at=at)
        try:
            self._write(self._path, CONVERTER.unstructure(shown), os.O_APPEND)
        except OSError as error:
            log.warning("the recording %s ends here: %s", self._path, error.strerror)
            self._path = None

    @staticmethod
    def _write(path: Path, line: Mapping[str, Any], how: int) -> None:
        # Opened for each line. So nothing stays open, and a file that was moved away is not changed.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | how, 0o600), "wb") as file:
            # In pieces, because other threads cannot run while a long text is encoded.
            fields = [f"{json.dumps(name)}: {_dumped(value)}" for name, value in line.items()]
            file.write(f"{{{', '.join(fields)}}}\n".encode())


def _dumped(value: Any) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return f"[{', '.join(map(json.dumps, value))}]"  # pyright: ignore[reportUnknownArgumentType] - of JSON


class _RecordedResponse:
    """An aiohttp response whose body is recorded. All other attributes are the response's own.

    Args:
        response: The response.
        exchange: The request, to which the response is added.
        keep: Takes the exchange once, after the response has ended, and returns the step that writes it.
    """

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        exchange: Exchange,
        keep: Callable[[Exchange], KeptStep | None],
    ) -> None:
        self._response, self._keep = response, keep
        self._exchange, self._last = exchange, exchange.at
        self._kept, self._step = False, cast("KeptStep | None", None)
        exchange.after, exchange.status, exchange.how = self._elapsed(), response.status, "left"
        for name, value in response.headers.items():
            exchange.headers.setdefault(name.lower(), value)
        self.content = _RecordedContent(response.content, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._response, name)

    def _elapsed(self) -> float:
        previous_time, self._last = self._last, asyncio.get_running_loop().time()
        return self._last - previous_time

    def read(self, data: bytes) -> None:
        """Record a piece of the body."""
        if data:
            self._exchange.body.append((self._elapsed(), data))

    def lost(self, error: BaseException) -> None:
        """Record that the connection was lost. Bytes that arrived before are read afterwards."""
        self._exchange.how, self._exchange.error = "lost", type(error).__name__

    def ended(self, *, whole: bool) -> None:
        """Write the exchange once, after the end of its response."""
        if self._kept:
            return
        self._kept, self._exchange.ended_after = True, self._elapsed()
        if whole:
            self._exchange.how = "whole"
        self._step = self._keep(self._exchange)

    async def ended_whole(self) -> None:
        """Write the exchange after the complete response, and wait for the write."""
        self.ended(whole=True)
        if self._step is not None:
            await self._step.result()

    def close(self) -> None:
        content = self._response.content
        whole = content.at_eof() and content.exception() is None
        self._response.close()
        self.ended(whole=whole)


class _RecordedContent:
    """An aiohttp stream whose reads are recorded."""

    def __init__(self, content: aiohttp.StreamReader, response: _RecordedResponse) -> None:
        self._content, self._recorded = content, response

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def readany(self) -> bytes:
        try:
            data = await self._content.readany()
        except FOREIGN_ERRORS as error:
            self._recorded.lost(error)
            raise
        self._recorded.read(data)
        if not data:
            await self._recorded.ended_whole()
        return data

    def read_nowait(self) -> bytes:
        data = self._content.read_nowait()
        self._recorded.read(data)
        if self._content.at_eof() and self._content.exception() is None:
            self._recorded.ended(whole=True)  # nobody has to close a response that was read to its end
        return data
