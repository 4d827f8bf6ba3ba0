"""A guard that refuses connections to other machines during a test.

It replaces functions of Python's ``socket`` module, which asyncio and aiohttp use. What uvloop connects with
sockets of its own (``loop.create_connection``) is not guarded.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any


# An OSError, because only for that every client closes what it has opened.
class BlockedConnection(OSError):  # noqa: N818 - it says what happened to the connection
    """A test tried to reach another machine."""


def is_local(host: object) -> bool:
    """Return whether *host* is this machine."""
    if host is None or host in ("", b"", "localhost", b"localhost"):
        return True
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    address = _address(text)
    return text.endswith(".localhost") if address is None else address.is_loopback


class NetworkGuard:
    """Refuses every connection to another machine while it is on.

    The fixture ``mintlify_guard`` is one that is on; ``mintlify_service`` uses it, too::

        def test_it(mintlify_guard):
            mintlify_guard.allow("api.example.com")

    Attributes:
        attempts: The refused hosts, in order.
    """

    def __init__(self) -> None:
        self.attempts: list[str] = []
        self._allowed: set[str] = set()
        self._originals: tuple[Any, Any, Any] | None = None

    def allow(self, host: str) -> None:
        """Allow connections to *host*, a name or an address."""
        self._allowed.add(host)

    def check(self, host: object) -> None:
        """Refuse *host* unless it is this machine or allowed.

        Raises:
            BlockedConnection: It is another machine.
        """
        if is_local(host) or str(host) in self._allowed:
            return
        self.attempts.append(str(host))
        raise BlockedConnection(
            f"this test tried to reach {host}; give the session base_url=service.base_url, "
            f"or allow it: mintlify_guard.allow({str(host)!r})"
        )

    def on(self) -> None:
        """Start guarding."""
        connect, connect_ex, look_up = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo
        self._originals = connect, connect_ex, look_up

        def guarded_connect(sock: socket.socket, address: Any) -> None:
            self._check_address(sock, address)
            connect(sock, address)

        def guarded_connect_ex(sock: socket.socket, address: Any) -> int:
            self._check_address(sock, address)
            return connect_ex(sock, address)

        def guarded_look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
            if _address(str(host)) is None:  # an address needs no look-up; connecting to it is checked
                self.check(host)
            return look_up(host, *args, **kwargs)

        _install(guarded_connect, guarded_connect_ex, guarded_look_up)

    def off(self) -> None:
        """Stop guarding and restore the original functions."""
        if self._originals is not None:
            _install(*self._originals)
            self._originals = None

    def _check_address(self, sock: socket.socket, address: Any) -> None:
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            self.check(address[0])


def _install(connect: Any, connect_ex: Any, look_up: Any) -> None:
    socket.socket.connect = connect  # type: ignore[method-assign]  # the purpose of a guard
    socket.socket.connect_ex = connect_ex  # type: ignore[method-assign]  # as above
    socket.getaddrinfo = look_up


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])  # what follows "%" is an IPv6 zone
    except ValueError:
        return None
