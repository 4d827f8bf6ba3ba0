"""Bounds the bytes of the bodies that are arriving: for one IP address, and in all.

An IP address may have a quarter. If several IP addresses fill the relay, the one with the most bytes gives
way. So half-sent bodies keep nobody else out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager

from attrs import define, field

from mintlify_async.runtime.time_limits import TimeLimit

from .client_address import ADDRESS_SHARE

ARRIVING_BYTES = 16 * 1024 * 1024  # the server also buffers, up to 256 KiB for each connection
PIECE_BYTES = 64 * 1024


@define(eq=False)
class ArrivingBody:
    """A body that is arriving.

    Attributes:
        address: Who sends it, as :class:`.ClientAddresses` names it.
        limit: Ends the wait for its other bytes.
        pieces: Its bytes so far. One growing array would leave gaps in the memory of the process.
        size: The number of bytes.
    """

    address: str
    limit: TimeLimit
    pieces: list[bytearray] = field(factory=list[bytearray], init=False)
    size: int = field(default=0, init=False)

    def append(self, piece: bytes) -> None:
        """Append *piece*. Small pieces become one, because each needs memory of its own."""
        self.size += len(piece)
        if self.pieces and len(self.pieces[-1]) + len(piece) <= PIECE_BYTES:
            self.pieces[-1] += piece
        else:
            self.pieces.append(bytearray(piece))


class ArrivingBodies:
    """The bodies that are arriving at one relay.

    Args:
        largest: The largest size of one body, in bytes. An IP address may always have one such body.
    """

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._share = max(largest, ARRIVING_BYTES // ADDRESS_SHARE)
        self._bodies: dict[ArrivingBody, None] = {}  # the oldest first
        self._sizes: defaultdict[str, int] = defaultdict(int)  # by address
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
        """Append *piece* to *body*. Return False if *body* is too large, or there is no room for it."""
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
        """End the largest body of the address that has the most bytes. Its bytes are gone at once."""
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
