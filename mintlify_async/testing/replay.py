"""Plays back the recorded responses of a real service, with their bytes and pauses.

``Recorder`` writes the recordings. Its module describes the file.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from attrs import frozen
from cattrs import BaseValidationError

from ..errors import ConfigurationError
from ..model.json_text import as_object
from .faults import Fault
from .http_answer import Answer, Pause, Piece
from .operations import find_operation
from .raw_connection import Ending, RawWire, framed, head
from .recorder import CONVERTER, RECORDING_VERSION, Exchange
from .script import Rule


@frozen
class Played(Fault):
    """Writes each piece of a recorded response separately, after its pause.

    Args:
        exchange: The recorded request and response.
    """

    exchange: Exchange

    async def play(self, wire: RawWire, answer: Answer) -> None:
        """Write the response and end it as in the recording."""
        exchange, pieces = self.exchange, list[Piece]()
        for pause, data in exchange.body:
            pieces += [Pause(pause), data] if pause else [data]
        if exchange.status is not None:
            headers, chunked = _framing(exchange)
            await wire.send(head(answer, headers))
            await wire.send_all(framed(pieces, chunked=chunked))
            await wire.pause(exchange.ended_after)
            if exchange.how == "whole" and chunked:
                await wire.send_all(framed((), chunked=True, ended=True))
        await wire.end(_ending(exchange))


def _framing(exchange: Exchange) -> tuple[dict[str, str], bool]:
    """Return the header that frames the body, and whether that is chunked."""
    unpacked = "content-encoding" in exchange.headers  # the recorded body is unpacked
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
    """Return the scripted responses that play the recording, for each operation in the recorded order.

    Raises:
        ConfigurationError: The file is not a recording, or one of a newer version. The error names the line.
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
    for number, line in enumerate(lines[1:], 2):
        try:
            rules.append(_rule(CONVERTER.structure(as_object(json.loads(line)) or {}, Exchange)))
        except (BaseValidationError, ValueError, RecursionError):
            raise ConfigurationError(
                f"replay: line {number} of {os.fspath(path)} is not an exchange; record it again",
                field="replay",
            ) from None
    return rules


def _rule(exchange: Exchange) -> Rule:
    known, _ = find_operation(exchange.method, exchange.path)
    headers = {name: value for name, value in exchange.headers.items() if name not in _NOT_PLAYED}
    answer = Answer(status=exchange.status or 503, headers=headers)
    return Rule(operation=known, answer=answer, delay=exchange.after, fault=Played(exchange))
