"""The guard that lets no test reach another machine."""

from __future__ import annotations

import socket

import pytest

from mintlify_async.testing import network_guard
from mintlify_async.testing.network_guard import BlockedConnection, NetworkGuard, is_local


@pytest.fixture
def guard():
    guard = NetworkGuard()
    guard.on()
    yield guard
    guard.off()


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "::1", "localhost", "127.8.8.8", "", "me.localhost", "LOCALHOST", "localhost."),
        *("0.0.0.0", "::", "::ffff:127.0.0.1", socket.gethostname()),
    ],
)
def test_this_machine_is_local(host):
    """Loopback and unspecified addresses, and this machine's own names."""
    assert is_local(host)


def test_the_addresses_and_names_of_this_machine_are_local(monkeypatch, tmp_path):
    """An interface's address is found by binding to it, its names in the hosts file."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.1.1 desk.example.com desk  # this\n198.51.100.9 other.example.com\n\nbroken\n")
    monkeypatch.setattr(network_guard, "HOSTS_FILE", hosts)
    assert is_local("desk.example.com")
    assert not is_local("other.example.com")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("198.51.100.1", 9))  # sends nothing, and tells which address would be used
        except OSError:
            pytest.skip("this machine has no network")
        assert is_local(sock.getsockname()[0])


@pytest.mark.parametrize(
    "host",
    [
        *("198.51.100.1", "2001:db8::1", "docs.example.com", "localhost.example.com", "::ffff:198.51.100.1"),
        *("224.0.0.1", "255.255.255.255", "ff02::1"),
    ],
)
def test_other_machines_are_not(host):
    """Everything else is not local, names that only look so and groups of machines included."""
    assert not is_local(host)


def test_the_guard_leaves_everything_as_it_was():
    """On and off, and the same functions are in place."""
    names = ("connect", "connect_ex", "send", "sendall", "sendto", "sendmsg")
    before = [*(getattr(socket.socket, name) for name in names), socket.getaddrinfo]
    guard = NetworkGuard()
    guard.on()
    assert socket.getaddrinfo is not before[-1]
    guard.off()
    guard.off()
    assert [*(getattr(socket.socket, name) for name in names), socket.getaddrinfo] == before


def test_a_host_can_be_allowed():
    """A test that needs a host can allow it."""
    guard = NetworkGuard()
    guard.allow("198.51.100.7")
    guard.check("198.51.100.7")
    with pytest.raises(BlockedConnection, match="198"):
        guard.check("198.51.100.8")
    assert guard.attempts == ["198.51.100.8"]


@pytest.mark.parametrize("on_first", [True, False])
@pytest.mark.parametrize("name", ["api.example.com", b"api.example.com"])
def test_an_allowed_name_opens_its_addresses(monkeypatch, name, on_first):
    """A client connects to the address, not to the name; which look-up found it does not matter."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("198.51.100.7", 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_: found)
    guard = NetworkGuard()
    if not on_first:
        guard.allow(name)
    guard.on()
    try:
        if on_first:
            guard.allow(name)
        for spelled in ("api.example.com", b"api.example.com"):
            assert socket.getaddrinfo(spelled, 443) == found
        guard.check("198.51.100.7")
        with pytest.raises(BlockedConnection):
            socket.getaddrinfo("www.example.com", 443)
    finally:
        guard.off()


@pytest.mark.parametrize("connect", ["connect", "connect_ex"])
def test_both_ways_to_connect_are_guarded(guard, connect):
    """``connect_ex`` tells by a number, so a guard that lets it through would go unnoticed."""
    with socket.socket() as sock:
        sock.setblocking(False)
        with pytest.raises(BlockedConnection):
            getattr(sock, connect)(("198.51.100.9", 9))
    assert guard.attempts == ["198.51.100.9"]
    with socket.socket() as local:
        local.bind(("127.0.0.1", 0))
        with socket.socket() as sock:
            assert sock.connect_ex(local.getsockname()) != 0  # refused by this machine: nothing listens
    assert guard.attempts == ["198.51.100.9"]


def test_a_host_as_bytes(guard):
    """It is named as text, and this machine is recognized."""
    socket.getaddrinfo(b"localhost", 80)
    with pytest.raises(BlockedConnection, match=r"tried to reach docs\.example\.com;.*allow\('docs\.example"):
        socket.getaddrinfo(b"docs.example.com", 443)


def test_a_udp_socket_may_be_connected_but_not_send(guard):
    """Connecting one sends nothing: programs find their own address with it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("198.51.100.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        assert not guard.attempts
        for send in (sock.send, sock.sendall, lambda data: sock.sendmsg([data])):
            with pytest.raises(BlockedConnection):
                send(b"x")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        with pytest.raises(BlockedConnection):
            sock.sendto(b"x", ("198.51.100.2", 9))
        sock.sendto(b"x", ("127.0.0.1", 9))
    assert guard.attempts == ["198.51.100.1"] * 3 + ["198.51.100.2"]


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets here")
def test_unix_sockets_pass(guard, tmp_path):
    """They never leave this machine."""
    with socket.socket(socket.AF_UNIX) as sock, pytest.raises(FileNotFoundError):
        sock.connect(str(tmp_path / "none.sock"))
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.send(b"x")
        assert other.recv(1) == b"x"
