"""Finds out which requests come from the same place, so that no place can use up the capacity of all.

An IPv4 address is the same in every form in which a server or a proxy writes it. Of an IPv6 address, the
first 64 bits count, because one customer has all addresses with the same first 64 bits. Requests without an
IP address count as one address.
"""

from __future__ import annotations

import logging
import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request

log = logging.getLogger("mintlify_async.relay")

ADDRESS_SHARE = 4  # one IP address may use 1 / ADDRESS_SHARE of all places, and of all arriving bytes

# IPv6 addresses that end with an IPv4 address: mapped, translated and compatible addresses, NAT64 (RFC 6052).
_WITH_IPV4 = (IPv6Network("::/64"), IPv6Network("64:ff9b::/96"))
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")  # RFC 8215: with an IPv4 address at different positions

# The forms of proxies: [2001:db8::1], [2001:db8::1]:443 and 192.0.2.1:443
_FORWARDED = re.compile(r'"?(?:\[(?P<v6>[^\]]*)\]|(?P<v4>[0-9.]+))(?::[0-9]*)?"?')


class ClientAddresses:
    """Reads the addresses of one relay's clients. If a request has no address, one line is logged."""

    def __init__(self) -> None:
        self._warned = False

    def of(self, request: Request) -> str:
        """Return the address of *request*. Without an IP address, return ""."""
        host = request.client.host if request.client else ""
        try:
            return _place(host)
        except ValueError:
            self._warn()
            return ""

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "a request has no IP address of its client, as behind a proxy on a Unix socket: all such "
                "requests together get the share of one IP address. Let your server read the proxy's header."
            )


def _place(host: str) -> str:
    """Return the place of *host*. If *host* is not an IP address, raise ValueError."""
    match = _FORWARDED.fullmatch(host.strip())
    address = ip_address(host.strip() if match is None else match["v6"] or match["v4"])
    if isinstance(address, IPv4Address):
        return str(address)
    if any(address in network for network in _WITH_IPV4):
        return str(IPv4Address(int(address) & 0xFFFFFFFF))
    if address in _LOCAL_NAT64:
        return str(address)
    if address.teredo:
        return str(address.teredo[1])
    return str(IPv6Address(int(address) >> 64 << 64))
