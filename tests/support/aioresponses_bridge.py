"""Lets aioresponses 0.7.9 build responses for the aiohttp that is installed.

Two things changed in aiohttp 3.14: ``ClientResponse`` needs a ``stream_writer``,
and a body over the reader's limit pauses a parser, which a made-up response does
not have. The bridge supplies both, and tests see no difference. On an
older aiohttp it only does the second.

aioresponses replaces ``ClientSession._request``. Use it for the shape of requests
and responses. Tests of timing, of the wire and of cancellation need the local service.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any
from unittest.mock import Mock

import aioresponses.core
import pytest
from aiohttp import ClientResponse, StreamReader

_read_from = aioresponses.core.stream_reader_factory
_build = aioresponses.core.RequestMatch._build_response

RESPONSE: Any = ClientResponse
"""Makes a response whose request was "already sent", in the form of the installed aiohttp."""
if "stream_writer" in inspect.signature(ClientResponse.__init__).parameters:
    RESPONSE = functools.partial(ClientResponse, stream_writer=Mock(output_size=0))


def _stream_reader(loop: Any = None) -> StreamReader:
    """Make a reader that has no parser to pause, so that a body may have any size."""
    reader = _read_from(loop)
    reader._protocol._upgraded = True
    return reader


def _build_response(self: Any, *args: Any, **kwargs: Any) -> ClientResponse:
    return _build(self, *args, **kwargs | {"response_class": RESPONSE})


@pytest.fixture(scope="session", autouse=True)
def aioresponses_bridge() -> Any:
    """Fix aioresponses for the complete run. Tests that do not use it see no difference."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aioresponses.core, "stream_reader_factory", _stream_reader)
        patch.setattr(aioresponses.core.RequestMatch, "_build_response", _build_response)
        yield
