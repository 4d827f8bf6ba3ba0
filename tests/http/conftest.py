"""A server that never says a word, for the tests of connecting."""

from __future__ import annotations

import socket

import pytest


@pytest.fixture
def silent_url():
    """The https URL of a server whose kernel takes connections: a TLS handshake with it never ends."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"https://127.0.0.1:{server.getsockname()[1]}"
