"""Limits the request bodies that are arriving, so that slow ones do not shut others out.

Any client can open a thousand connections and send one byte per second on each. So when there are too many,
the oldest is ended: a reader's own request, which arrives within a second, is always among the newest.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

from attrs import define, field

from .limits import PER_ADDRESS, RelayLimits

if TYPE_CHECKING:
    from starlette.requests import Request

    from mintlify_async.runtime.cancellation import Deadline


@define(eq=False)
class _Group:
    """Uploads that share two limits, the oldest first."""

    most_uploads: float
    most_bytes: int
    uploads: dict[Upload, None] = field(factory=dict["Upload", None])
    length: int = 0

    def over(self) -> bool:
        return self.length > self.most_bytes or len(self.uploads) > self.most_uploads


@define(eq=False)
class Upload:
    """A body that is arriving.

    Attributes:
        length: The size so far, in bytes.
        gave_way: Whether the body was ended in favour of another one, or is too large itself.
    """

    groups: tuple[_Group, ...]
    deadline: Deadline
    length: int = 0
    gave_way: bool = False

    def begin(self) -> None:
        """Count the body, and end older ones if there are too many."""
        for group in self.groups:
            group.uploads[self] = None
        self.grow(0)

    def grow(self, length: int) -> None:
        """Count *length* further bytes, and end older uploads, or this one, if there are too many bytes."""
        if self.gave_way:  # the piece arrived before it was told
            return
        self.length += length
        for group in self.groups:
            group.length += length
        for group in self.groups:
            while self in group.uploads and group.over():
                oldest = next(iter(group.uploads))
                oldest.leave()
                oldest.gave_way = True
                oldest.deadline.end()

    def leave(self) -> None:
        """Stop counting the body. Leaving twice is harmless."""
        for group in self.groups:
            if self in group.uploads:
                del group.uploads[self]
                group.length -= self.length


class Uploads:
    """The bodies that are arriving, by the network address that sends them."""

    def __init__(self, limits: RelayLimits) -> None:
        """Begin with none."""
        self._limits = limits
        self._all = _Group(math.inf, limits.upload_bytes)
        self._addresses: dict[str, _Group] = {}

    @property
    def bytes(self) -> int:
        """The size of all of them, in bytes."""
        return self._all.length

    @contextmanager
    def counted(self, request: Request, deadline: Deadline) -> Generator[Upload]:
        """Count the body of *request* while the block runs; *deadline* is ended when it must give way."""
        address, limits = _address(request), self._limits
        group = self._addresses.setdefault(
            address, _Group(limits.uploads_per_address, limits.upload_bytes // PER_ADDRESS)
        )
        upload = Upload((group, self._all), deadline)
        upload.begin()
        try:
            yield upload
        finally:
            upload.leave()
            if not group.uploads and self._addresses.get(address) is group:
                del self._addresses[address]


def _address(request: Request) -> str:
    """Return the network address of a request; in IPv6, the part of it that is one customer's."""
    host = request.client.host if request.client else ""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    return str(int(address) >> 64) if isinstance(address, IPv6Address) else host
