"""The headers of a request, with the key and the name of this client."""

from __future__ import annotations

import platform
from typing import Final

import aiohttp
from aiohttp import hdrs
from multidict import CIMultiDict

from ..model.secret import Secret
from ..protocol.calls import Call
from ..version import __version__

USER_AGENT: Final = (
    f"mintlify-async/{__version__} Python/{platform.python_version()} aiohttp/{aiohttp.__version__}"
)
COMMON_HEADERS: Final = {
    hdrs.ACCEPT_ENCODING: "identity",  # compressed answers arrive late and can be bombs
    hdrs.USER_AGENT: USER_AGENT,
}


def request_headers(call: Call, key: Secret) -> CIMultiDict[str]:
    """Return the headers of *call*. Those that users set replace the common ones."""
    headers = CIMultiDict(COMMON_HEADERS)
    headers[hdrs.ACCEPT] = call.operation.accept
    headers.update(call.headers)
    if call.body is not None:
        headers[hdrs.CONTENT_TYPE] = "application/json"
    headers[hdrs.AUTHORIZATION] = Secret(f"Bearer {key}")
    return headers
