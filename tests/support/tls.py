"""The TLS contexts of a loopback server and of its client, by an authority of this process."""

from __future__ import annotations

import ssl
from functools import cache

import trustme


@cache
def authority() -> trustme.CA:
    """Return the authority of this process. Another program trusts its file by ``SSL_CERT_FILE``."""
    return trustme.CA()


@cache
def tls_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the context of a server at 127.0.0.1 or service.test, and its client's."""
    served, trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority().issue_cert("127.0.0.1", "service.test").configure_cert(served)
    authority().configure_trust(trust)
    return served, trust
