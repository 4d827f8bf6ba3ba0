"""Plays back the recorded responses of a real service, with their bytes and pauses.

``Recorder`` writes the recordings. Its module describes the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from attrs import frozen
from cattrs import BaseValidationError

from ..errors import ConfigurationError
from ..model.strict_json import as_object
from .connection_faults import Fault
from .http_response import Answer, Pause, Piece
from .local_responses import find_operation
from .raw_connection import Ending, framed, head
from .recorder import CONVERTER, RECORDING_VERSION, Exchange
from .scripted_responses import Rule


@frozen
class Played(Fault):
    """Sends each piece of a recorded response separately, after its pause, and ends as in the recording.

    Args:
        exchange: The recorded request and response.
    """

    exchange: Exchange

    @property
    def how(self) -> Ending:  # type: ignore[override]
        """The end of the connection."""
        return _ending(self.exchange)

    def pieces(self, answer: Answer) -> Iterable[Piece]:
        """Yield the response with its pauses."""
        exchange = self.exchange
        if exchange.status is None:
            return
        framing, chunked = _framing(exchange)
        yield head(answer, framing)
        for pause, data in exchange.body:
            yield Pause(pause)
            yield from framed([data], chunked=chunked)
        yield Pause(exchange.ended_after)
        yield from framed((), chunked=chunked, ended=exchange.how == "whole")


def _framing(exchange: Exchange) -> tuple[dict[str, str], bool]:
    """Return the header that frames the body, and whether the body is chunked."""
    unpacked = "content-encoding" in exchange.headers  # the recorded body is decompressed
    length = exchange.headers.get("content-length")
    if "chunked" in exchange.headers.get("transfer-encoding", "").lower() or (unpacked and length):
        return {"Transfer-Encoding": "chunked"}, True
    return ({} if length is None else {"Content-Length": length}), False


def _ending(exchange: Exchange) -> Ending:
    if exchange.how == "left" or any(word in (exchange.error or "") for word in ("Timeout", "Cancelled")):
        return "hang"  # until the client disconnects, as in the recording
    return "rst" if exchange.how == "lost" and "Payload" not in (exchange.error or "") else "fin"


_NOT_PLAYED = {"transfer-encoding", "content-length", "content-encoding", "connection"}


def replay_rules(path: str | os.PathLike[str]) -> list[Rule]:
    """Return scripted responses that play the recording, in the recorded order of each operation.

    Raises:
        ConfigurationError: The file is not a recording, or has a newer version. The error names the line.
        OSError: The file cannot be read.
    """
    lines = Path(path).read_bytes().splitlines()
    version: object = None
    with suppress(ValueError, RecursionError):
        version = (as_object(json.loads(lines[0] if lines else b"")) or {}).get("recording")
    if version != RECORDING_VERSION:
        newer = isinstance(version, int) and version > RECORDING_VERSION
        why = f"has version {version}: a newer mintlify-async plays it" if newer else "is not a recording"
        raise ConfigurationError(f"replay: {os.fspath(path)} {why}", field="replay")
    rules = list[Rule]()
    for number, json_bytes in enumerate(lines[1:], 2):
        try:
            rules.append(_rule(CONVERTER.structure(as_object(json.loads(json_bytes)) or {}, Exchange)))
        except (BaseValidationError, ValueError, RecursionError):
            raise ConfigurationError(
                f"replay: line {number} of {os.fspath(path)} is not an exchange; record it again",
                field="replay",
            ) from None
    return rules


def _rule(exchange: Exchange) -> Rule:
    known, _ = find_operation(exchange.method, exchange.path)
    headers = {name: value for name, value in exchange.headers.items() if name not in _NOT_PLAYED}
    return Rule(
        operation=known,
        status=exchange.status or 503,
        headers=headers,
        body=b"",
        delay=exchange.after,
        fault=Played(exchange),
    )
