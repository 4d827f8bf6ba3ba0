"""The guard that lets no test reach another machine."""

from __future__ import annotations

import socket
import sys

import pytest

from mintlify_async.testing.network_guard import BlockedConnection, NetworkGuard, is_local


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "::1", "localhost", "127.8.8.8", "", None, "me.localhost", b"localhost"]
)
def test_this_machine_is_local(host):
    """Loopback addresses and names."""
    assert is_local(host)


@pytest.mark.parametrize(
    "host", ["192.0.2.1", "::", "2001:db8::1", "docs.example.com", "localhost.example.com"]
)
def test_other_machines_are_not(host):
    """Everything else is not local, names that only look so included."""
    assert not is_local(host)


def test_the_guard_leaves_everything_as_it_was():
    """On and off, and the same functions are in place."""
    before = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo
    guard = NetworkGuard()
    guard.on()
    assert socket.getaddrinfo is not before[2]
    guard.off()
    assert (socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo) == before


def test_a_host_can_be_allowed():
    """A test that needs a host can allow it."""
    guard = NetworkGuard()
    guard.allow("192.0.2.7")
    guard.check("192.0.2.7")
    with pytest.raises(BlockedConnection, match="192"):
        guard.check("192.0.2.8")
    assert guard.attempts == ["192.0.2.8"]


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets here")
def test_unix_sockets_pass(tmp_path):
    """They never leave this machine."""
    guard = NetworkGuard()
    guard.on()
    try:
        with socket.socket(socket.AF_UNIX) as sock, pytest.raises(FileNotFoundError):
            sock.connect(str(tmp_path / "none.sock"))
    finally:
        guard.off()
    assert sys.platform
