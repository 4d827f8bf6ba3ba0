"""Lets aioresponses 0.7.9 build responses for the aiohttp that is installed.

Since aiohttp 3.14, ``ClientResponse`` needs a ``stream_writer``. The bridge supplies it.
A body over the reader's limit cannot be read: such tests need the local service.

aioresponses replaces ``ClientSession._request``. Use it for the shape of requests
and responses. Tests of timing, of the wire and of cancellation need the local service.
"""

from __future__ import annotations

import inspect
from typing import Any
from unittest.mock import Mock

import aioresponses.core
import pytest
from aiohttp import ClientResponse

_build = aioresponses.core.RequestMatch._build_response

NEEDS_STREAM_WRITER = "stream_writer" in inspect.signature(ClientResponse.__init__).parameters
"""Whether this aiohttp has the argument: 3.14 and newer do."""


class BridgedResponse(ClientResponse):
    """A response whose request was "already sent", in the form of the installed aiohttp."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if NEEDS_STREAM_WRITER:
            kwargs.setdefault("stream_writer", Mock(output_size=0))
        super().__init__(*args, **kwargs)


def _build_response(self: Any, *args: Any, **kwargs: Any) -> ClientResponse:
    if kwargs.get("response_class") is None:
        kwargs["response_class"] = BridgedResponse
    return _build(self, *args, **kwargs)


@pytest.fixture(scope="session", autouse=True)
def aioresponses_bridge() -> Any:
    """Fix aioresponses for the complete run. Tests that do not use it see no difference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aioresponses.core.RequestMatch, "_build_response", _build_response)
        yield
