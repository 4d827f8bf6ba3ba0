"""Lets aioresponses 0.7.9 build responses for aiohttp 3.14.

Two things changed under it: ``ClientResponse`` asks for a ``stream_writer``,
and a body over the reader's limit pauses a parser that is not there. Both are
mended here without a change of what a test sees. It replaces
``ClientSession._request``, so use it for the shape of a request and of an
answer; time, wire and cancellation need the local service.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import aioresponses.core
import pytest
from aiohttp import ClientResponse, StreamReader

_read_from = aioresponses.core.stream_reader_factory
_build = aioresponses.core.RequestMatch._build_response


class BridgedResponse(ClientResponse):
    """A response whose request was "already sent", as aiohttp 3.14 wants it told."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("stream_writer", Mock(output_size=0))
        super().__init__(*args, **kwargs)


def _stream_reader(loop: Any = None) -> StreamReader:
    """Make a reader that has no parser to pause, so that a body may have any size."""
    reader = _read_from(loop)
    reader._protocol._upgraded = True
    return reader


def _build_response(self: Any, *args: Any, **kwargs: Any) -> ClientResponse:
    if kwargs.get("response_class") is None:
        kwargs["response_class"] = BridgedResponse
    return _build(self, *args, **kwargs)


@pytest.fixture(scope="session", autouse=True)
def aioresponses_bridge() -> Any:
    """Mend aioresponses for the whole run; nothing changes for tests that do not use it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aioresponses.core, "stream_reader_factory", _stream_reader)
        patch.setattr(aioresponses.core.RequestMatch, "_build_response", _build_response)
        yield
