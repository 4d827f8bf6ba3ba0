"""Reads the body of a page's request: a JSON object, bounded in size, time and structure."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import TYPE_CHECKING, NoReturn

from attrs import define

from mintlify_async.runtime.cancellation import Deadline

from .json_structure import JSONStructure
from .json_values import Wire, is_object
from .refusals import BUSY, RelayRefusal, retry_after

if TYPE_CHECKING:
    from starlette.requests import Request

    from mintlify_async.runtime.clock import Clock

    from .limits import RelayLimits
    from .uploads import Uploads

PIECE_BYTES = 64 * 1024  # looked at in one turn of the event loop
NUMBER_CHARACTERS = 25  # JavaScript writes 24 at most; one of 4,300 digits takes 0.1 ms
_CLOSE = {"connection": "close"}  # the rest of the body is not read


@define(frozen=True)
class BodyReader:
    """Reads the bodies of pages' requests.

    Args:
        limits: How much a page may send.
        uploads: Counts the bodies that are arriving.
        clock: Measures the time.
    """

    limits: RelayLimits
    uploads: Uploads
    clock: Clock

    async def read(self, request: Request, what: str, *, most: int | None = None, advice: str = "") -> Wire:
        """Return the JSON object in the body of *request*.

        Args:
            request: The request of a page.
            what: The name of the body in refusals, such as ``question``.
            most: The largest size in bytes; that of the limits by default.
            advice: What the reader can do if the body is too large; begins with a blank.

        Raises:
            RelayRefusal: It is not sent as JSON, too large or too slow, or not a JSON object.
            ClientDisconnect: The reader left before the whole request had arrived.
        """
        content_type = request.headers.get("content-type", "").partition(";")[0]
        # Browsers send other types across origins without asking first.
        if content_type.strip().lower() != "application/json":
            raise RelayRefusal(415, f"Send the {what} as application/json.")
        most = self.limits.body_bytes if most is None else most
        too_large = RelayRefusal(413, f"The {what} is too large.{advice}", _CLOSE)
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and (len(declared) > 18 or int(declared) > most):
            raise too_large
        raw = await self._arrived(request, what, most, too_large)
        body = _parsed(raw, what)
        if len(raw) > PIECE_BYTES:
            await asyncio.sleep(0)  # what is made of it takes its time, too
        return body

    async def _arrived(self, request: Request, what: str, most: int, too_large: RelayRefusal) -> bytes:
        """Return the whole body, whose structure is within the limits."""
        structure, pieces = JSONStructure(), list[bytes]()
        deadline = Deadline(self.clock, self.clock.now() + self.limits.body_seconds)
        with self.uploads.counted(request, deadline) as upload:
            try:
                with deadline:
                    async for chunk in request.stream():
                        upload.grow(len(chunk))
                        if upload.gave_way:
                            break
                        if upload.length > most:
                            raise too_large
                        pieces.append(chunk)
                        for start in range(0, len(chunk), PIECE_BYTES):
                            if start or len(pieces) > 1:
                                await asyncio.sleep(0)
                            if not structure.feed(chunk[start : start + PIECE_BYTES], self.limits.values):
                                raise too_large
            except TimeoutError:
                if not upload.gave_way:
                    raise RelayRefusal(408, f"The {what} took too long to arrive.", _CLOSE) from None
            if upload.gave_way:
                raise RelayRefusal(503, BUSY, {**retry_after(1), **_CLOSE})
            if structure.deepest > self.limits.nesting:
                raise RelayRefusal(400, f"The {what} is nested too deeply.")
            return b"".join(pieces)


def _parsed(raw: bytes, what: str) -> Wire:
    collects = gc.isenabled()
    gc.disable()  # thousands of new lists, none in a cycle, would make it look at all objects of the app
    try:
        body: object = json.loads(
            raw.decode("utf-8"), parse_constant=_refuse, parse_int=_whole, parse_float=_fraction
        )
    except (ValueError, RecursionError):
        raise RelayRefusal(400, f"The {what} is not valid JSON.") from None
    finally:
        if collects:
            gc.enable()
    if not is_object(body):
        raise RelayRefusal(400, f"The {what} must be a JSON object.")
    return body


def _refuse(text: str) -> NoReturn:
    raise ValueError(text[:NUMBER_CHARACTERS])


def _whole(text: str) -> int:
    return int(text) if len(text) <= NUMBER_CHARACTERS else _refuse(text)


def _fraction(text: str) -> float:
    return float(text) if len(text) <= NUMBER_CHARACTERS else _refuse(text)
