"""Reads the request bodies of web pages, and limits their size, their time and the work to parse them.

The bytes of all arriving bodies together are limited. An IP address may use a quarter. If the limit is
reached, the largest body of the IP address that has the most bytes is ended. Other web pages can still send.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

from attrs import define, field

from mintlify_async.runtime.time_limits import TimeLimit

from .client_address import ADDRESS_SHARE
from .page_question import Wire, is_object
from .refusal_texts import (
    BUSY_TEXT,
    NO_JSON_TEXT,
    NO_OBJECT_TEXT,
    NOT_JSON_TYPE_TEXT,
    TOO_LARGE_TEXT,
    TOO_SLOW_TEXT,
    RelayRefusal,
    retry_after_header,
)

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_BODY_BYTES = 4 * 1024 * 1024  # maximum size of one body, the default of Relay(max_body_bytes=)
ARRIVING_BYTES = 16 * 1024 * 1024  # the server also buffers, up to 256 KiB for each connection
PIECE_BYTES = 64 * 1024
MOST_VALUES = 50_000  # maximum number of values and names in the JSON (about 20 ms to parse)
MOST_ESCAPES = 500_000  # backslashes (about 10 ms to parse)
BODY_SECONDS = 30.0  # maximum time for the complete body to arrive
LINGER = 1.0  # maximum time for reading the rest of a refused body, in seconds


@define(eq=False)
class ArrivingBody:
    """A body that is arriving.

    Attributes:
        address: The sender, as named by :class:`.ClientAddresses`.
        limit: Ends the wait for the remaining bytes.
        pieces: The bytes up to now. One growing array would leave gaps in the memory of the process.
        size: The number of bytes.
    """

    address: str
    limit: TimeLimit
    pieces: list[bytearray] = field(factory=list[bytearray], init=False)
    size: int = field(default=0, init=False)

    def append(self, piece: bytes) -> None:
        """Append *piece*. Small pieces are joined, because each piece needs extra memory."""
        self.size += len(piece)
        if self.pieces and len(self.pieces[-1]) + len(piece) <= PIECE_BYTES:
            self.pieces[-1] += piece
        else:
            self.pieces.append(bytearray(piece))


class ArrivingBodies:
    """The bodies that are arriving at one relay.

    Args:
        largest: Maximum size of one body, in bytes. An IP address may always have one such body.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._share = max(largest, ARRIVING_BYTES // ADDRESS_SHARE)
        self._bodies: dict[ArrivingBody, None] = {}  # the oldest first
        self._sizes: defaultdict[str, int] = defaultdict(int)  # by IP address
        self._size = 0

    @contextmanager
    def counting(self, body: ArrivingBody) -> Generator[None]:
        """Count the bytes of *body* while the block runs."""
        self._bodies[body] = None
        try:
            yield
        finally:
            self._drop(body)

    def add(self, body: ArrivingBody, piece: bytes) -> bool:
        """Append *piece* to *body*. Return False if *body* is too large, or if there is no room for it."""
        if body not in self._bodies:
            return False
        body.append(piece)
        self._size += len(piece)
        self._sizes[body.address] += len(piece)
        if body.size > self._largest or self._sizes[body.address] > self._share:
            return False
        while self._size > self._share * ADDRESS_SHARE:
            self._end_largest()
        return body in self._bodies

    def _end_largest(self) -> None:
        """End the largest body of the IP address that has the most bytes. The body's bytes are freed now."""
        address = max(self._sizes, key=self._sizes.__getitem__)
        of_address = (body for body in self._bodies if body.address == address)
        largest = max(of_address, key=lambda body: body.size)
        self._drop(largest)
        largest.pieces.clear()
        largest.limit.end()

    def _drop(self, body: ArrivingBody) -> None:
        if body in self._bodies:
            del self._bodies[body]
            self._size -= body.size
            self._sizes[body.address] -= body.size
            if not self._sizes[body.address]:
                del self._sizes[body.address]


class BodyReader:
    """Reads the request bodies of web pages.

    Args:
        most: Maximum size of one body, in bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._arriving = ArrivingBodies(most)

    async def read(self, request: Request, address: str) -> Wire:
        """Return the JSON object in the body of *request*, which comes from *address*.

        Raises:
            RelayRefusal: The body is not JSON, is too large, arrives too slowly, or is not a JSON object.
            ClientDisconnect: The client disconnected before the complete request had arrived.
        """
        content_type = request.headers.get("content-type", "").partition(";")[0]
        # Browsers send other content types to other origins without asking the server first.
        if content_type.strip().lower() != "application/json":
            raise RelayRefusal(415, NOT_JSON_TYPE_TEXT)
        raw = await self._arrived(request, address)
        await _check_values(raw)
        return await _parsed(raw)

    async def _arrived(self, request: Request, address: str) -> bytes:
        """Return the complete body."""
        limit = TimeLimit(asyncio.get_running_loop().time() + BODY_SECONDS)
        body = ArrivingBody(address, limit)
        with self._arriving.counting(body):
            try:
                with limit:
                    async for piece in request.stream():
                        if not self._arriving.add(body, piece):
                            break
                    else:
                        if not limit.ended:
                            return b"".join(body.pieces)
            except TimeoutError:
                if not limit.ended:
                    raise _too_slow() from None
        body.pieces.clear()
        await _linger(request)
        raise _too_large() if body.size > self._most else _too_many_bytes()


async def _linger(request: Request) -> None:
    """Read for a moment, because a close during the upload would delete the refusal."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER):
            while (await request.receive()).get("more_body"):
                pass


def _too_slow() -> RelayRefusal:
    return RelayRefusal(408, TOO_SLOW_TEXT, {"connection": "close"})


def _too_many_bytes() -> RelayRefusal:
    return RelayRefusal(503, BUSY_TEXT, {**retry_after_header(1), "connection": "close"})


def _too_large() -> RelayRefusal:
    return RelayRefusal(413, TOO_LARGE_TEXT, {"connection": "close"})


async def _check_values(raw: bytes) -> None:
    """Refuse a body that takes long to parse. The time depends on the number of values, not on the bytes."""
    if raw.count(b"\\") > MOST_ESCAPES:
        raise _too_large()
    plain = raw.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 2 * MOST_VALUES + 2:  # each string has two quotation marks
        raise _too_large()
    await asyncio.sleep(0)
    outside = b"".join(plain.split(b'"')[::2])  # the text outside of strings
    if sum(map(outside.count, (b",", b":", b"[", b"{"))) > MOST_VALUES:
        raise _too_large()
    if _LONG_NUMBER in outside.translate(_DIGITS_AS_0):
        _not_json()
    await asyncio.sleep(0)


# JavaScript writes a number with at most 24 characters. Parsing a number takes quadratic time.
_LONG_NUMBER = b"0" * 26
_DIGITS_AS_0 = bytes.maketrans(b"123456789", b"000000000")  # a regular expression takes ten times as long


async def _parsed(raw: bytes) -> Wire:
    try:
        body: object = json.loads(raw.decode("utf-8"), parse_constant=_not_json)
    except (ValueError, RecursionError):
        _not_json()
    if not is_object(body):
        raise RelayRefusal(400, NO_OBJECT_TEXT)
    await asyncio.sleep(0)  # other tasks run, because making the objects also took time
    return body


def _not_json(text: str = "") -> NoReturn:
    raise RelayRefusal(400, NO_JSON_TEXT) from None
