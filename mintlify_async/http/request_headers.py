"""The headers of a request, with the key and the name of this client."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Final

import aiohttp
from aiohttp import hdrs
from multidict import CIMultiDict

from ..model.operation import OPERATIONS, Operation
from ..model.secret import Secret
from ..protocol.requests import Call
from ..version import __version__

USER_AGENT: Final = (
    f"mintlify-async/{__version__} Python/{platform.python_version()} aiohttp/{aiohttp.__version__}"
)
OWN_HEADERS: Final[Mapping[Operation, CIMultiDict[str]]] = {
    operation: CIMultiDict(
        {
            hdrs.ACCEPT_ENCODING: "identity",  # compressed answers arrive late, and small ones can get huge
            hdrs.USER_AGENT: USER_AGENT,
            hdrs.ACCEPT: operation.accept,
            **({} if operation.method == "GET" else {hdrs.CONTENT_TYPE: "application/json"}),
        }
    )
    for operation in OPERATIONS.values()
}
"""The headers of each operation that are the same in every request."""


def request_headers(call: Call, key: Secret) -> CIMultiDict[str]:
    """Return the headers of *call*. The user's headers replace the package's headers."""
    headers = OWN_HEADERS[call.operation].copy()
    headers.update(call.headers)
    headers[hdrs.AUTHORIZATION] = Secret(f"Bearer {key}")
    return headers
