"""A guard that refuses connections to other machines during a test.

It replaces functions of Python's ``socket`` module, which asyncio and aiohttp use. What uvloop connects with
sockets of its own (``loop.create_connection``) is not guarded.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from pathlib import Path
from typing import Any

HOSTS_FILE = Path("/etc/hosts")

_GUARDED = ("connect", "connect_ex", "send", "sendall", "sendto", "sendmsg")
_INTERNET = (socket.AF_INET, socket.AF_INET6)


# An OSError, because only for that every client closes what it has opened.
class BlockedConnection(OSError):  # noqa: N818 - it says what happened to the connection
    """A test tried to reach another machine."""


def is_local(host: str) -> bool:
    """Return whether *host*, a name or an address, is this machine."""
    address = _address(host)
    if address is None:
        name = host.rstrip(".").lower()
        return name in (
            "",
            "localhost",
            socket.gethostname().lower(),
            *_names_in_hosts_file(),
        ) or name.endswith(".localhost")
    if address.is_loopback or address.is_unspecified:
        return True
    # The system binds a socket to this machine's own addresses only, and to those of groups.
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((str(address), 0))
        return not (address.is_multicast or address.is_reserved)
    return False


def _names_in_hosts_file() -> set[str]:
    """Return the names of this machine that need no name server."""
    names = set[str]()
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in HOSTS_FILE.read_text(encoding="utf-8").splitlines():
            address, *aliases = line.partition("#")[0].split() or [""]
            if aliases and _address(address) is not None and is_local(address):
                names.update(alias.lower() for alias in aliases)
    return names


class NetworkGuard:
    """Refuses every connection to another machine while it is on.

    The fixture ``mintlify_guard`` is one that is on; ``mintlify_service`` uses it, too::

        def test_it(mintlify_guard):
            mintlify_guard.allow("api.example.com")

    Connecting a UDP socket to another machine is allowed, because it sends nothing; sending is refused.

    Attributes:
        attempts: The refused hosts, in order.
    """

    def __init__(self) -> None:
        self.attempts: list[str] = []
        self._told = 0
        self._allowed: set[str] = set()
        self._originals: dict[str, Any] | None = None
        self._look_up: Any = None

    def allow(self, host: str | bytes) -> None:
        """Allow connections to *host*, an address, or a name and the addresses that it resolves to."""
        self._allowed.add(_to_text(host))
        with contextlib.suppress(OSError):  # event loops with a resolver of their own need the addresses now
            self._resolve(self._look_up or socket.getaddrinfo, host, None)

    def check(self, host: object) -> None:
        """Refuse *host* unless it is this machine or allowed.

        Raises:
            BlockedConnection: It is another machine.
        """
        text = _to_text(host)
        if text in self._allowed or is_local(text):
            return
        self.attempts.append(text)
        raise BlockedConnection(
            f"this test tried to reach {text}; give the session base_url=service.base_url, "
            f"or allow it: mintlify_guard.allow({text!r})"
        )

    def untold(self) -> str | None:
        """Return what was refused since the last call, as a sentence; None if nothing was."""
        hosts, self._told = self.attempts[self._told :], len(self.attempts)
        return f"the test tried to reach {', '.join(dict.fromkeys(hosts))}" if hosts else None

    def on(self) -> None:
        """Start guarding."""
        self._originals = {name: getattr(socket.socket, name) for name in _GUARDED}
        look_up = self._look_up = socket.getaddrinfo

        def guarded_look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
            if _address(_to_text(host)) is None:  # an address needs no look-up; connecting to it is checked
                self.check(host)
            return self._resolve(look_up, host, *args, **kwargs)

        socket.getaddrinfo = guarded_look_up
        for name, original in self._originals.items():
            setattr(socket.socket, name, self._guarded(name, original))

    def off(self) -> None:
        """Stop guarding and restore the original functions."""
        if self._originals is not None:
            socket.getaddrinfo = self._look_up
            for name, original in self._originals.items():
                setattr(socket.socket, name, original)
            self._originals = self._look_up = None

    def _guarded(self, name: str, original: Any) -> Any:
        connects = name.startswith("connect")

        def guarded(sock: socket.socket, *args: Any) -> Any:
            # TCP needs a connection before it sends, and UDP sends nothing when it connects.
            if sock.family in _INTERNET and connects != (sock.type == socket.SOCK_DGRAM):
                with_address = name in ("connect", "connect_ex", "sendto")
                to: Any = args[-1] if with_address or len(args) == 4 else sock.getpeername()
                self.check(to[0])
            return original(sock, *args)

        return guarded

    def _resolve(self, look_up: Any, host: Any, *args: Any, **kwargs: Any) -> Any:
        found = look_up(host, *args, **kwargs)
        if _to_text(host) in self._allowed:
            self._allowed.update(str(entry[4][0]) for entry in found)
        return found


def _to_text(host: object) -> str:
    if host is None:
        return ""
    return bytes(host).decode("ascii", "replace") if isinstance(host, bytes | bytearray) else str(host)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])  # what follows "%" is an IPv6 zone
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
