"""Reads the body of a page's request: JSON, bounded in size and time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .refusals import RelayRefusal

if TYPE_CHECKING:
    from starlette.requests import Request

    from mintlify_async.runtime.clock import Clock

_CLOSE = {"connection": "close"}  # the rest of the body is not read


async def read_body(
    request: Request, what: str, clock: Clock, *, max_bytes: int, seconds: float, advice: str = ""
) -> bytes:
    """Return the body of *request*, not parsed yet.

    Args:
        request: The request of a page.
        what: What it sends, for the refusals: ``question``.
        clock: Measures the time.
        max_bytes: The largest size, counted while the body arrives, whatever its headers say.
        seconds: How long the body may take to arrive.
        advice: What the reader can do when it is too large; begins with a blank.

    Raises:
        RelayRefusal: It is not sent as JSON, too large or too slow.
        ClientDisconnect: The reader left before the whole request had arrived.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":  # browsers send other types across origins without asking first
        raise RelayRefusal(415, f"Send the {what} as application/json.")
    too_large = RelayRefusal(413, f"The {what} is too large.{advice}", _CLOSE)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > max_bytes):
        raise too_large
    pieces: list[bytes] = []
    length = 0
    try:
        async with clock.deadline(clock.now() + seconds):
            async for piece in request.stream():
                length += len(piece)
                if length > max_bytes:
                    raise too_large
                pieces.append(piece)
    except TimeoutError:
        raise RelayRefusal(408, f"The {what} took too long to arrive.", _CLOSE) from None
    return b"".join(pieces)
