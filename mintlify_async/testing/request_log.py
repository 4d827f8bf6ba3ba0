"""Requests as they arrived in; a typed record that compares with plain tuples out."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from attrs import define, field

__all__ = ["RecordedRequest", "RequestLog", "describe_difference"]

Expected = tuple[str, str] | tuple[str, str, Any]
"""What a request is compared with: method and path, and the JSON body where that matters."""


@define(kw_only=True, eq=False)
class RecordedRequest:
    """One request as the service received it.

    Compares equal to ``(method, path)`` and to ``(method, path, json)``.

    Attributes:
        number: Its place among the requests of the service, from 1.
        operation: ``create_job``, ``get_job``, ``send_message``, ``ask``, or ``other``.
        method: The HTTP method.
        path: The path exactly as it was sent, query included.
        headers: The headers, names in lower case.
        body: The body's bytes; empty when a fault was played before it was read.
        at: When it arrived, in seconds of the service's clock.
        wall: The same moment in seconds since 1970.
        seconds: How long the answer took, in seconds of the service's clock.
        status: The status that was answered; None while there is no answer.
        finished: Whether the whole answer went out.
        client_left: Whether the client closed the connection before it had the whole answer.
        address: Where it came from.
        port: The client's port: one for each connection.
        params: The parts of the path, decoded: ``project`` and ``job``, or ``domain``.
    """

    number: int
    operation: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""
    at: float = 0.0
    wall: float = 0.0
    seconds: float = 0.0
    status: int | None = None
    finished: bool = False
    client_left: bool = False
    address: str = ""
    port: int = 0
    params: Mapping[str, str] = field(factory=dict[str, str], repr=False)

    @property
    def json(self) -> Any:
        """The body as JSON; None when it is empty or no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def key(self) -> str | None:
        """The bearer key that came with it."""
        scheme, _, key = self.headers.get("authorization", "").partition(" ")
        return key if scheme.lower() == "bearer" else None

    def __eq__(self, other: object) -> bool:
        """Compare with ``(method, path)``, ``(method, path, json)``, or itself."""
        if isinstance(other, tuple):
            return self.as_tuple(with_json=len(other) == 3) == other  # pyright: ignore[reportUnknownArgumentType]
        return self is other

    __hash__ = object.__hash__

    def as_tuple(self, *, with_json: bool = False) -> Expected:
        """Return ``(method, path)``, or ``(method, path, json)``."""
        return (self.method, self.path, self.json) if with_json else (self.method, self.path)


class RequestLog(Sequence[RecordedRequest]):
    """Everything that a service received, oldest first; equal to a list of plain tuples."""

    def __init__(self) -> None:
        """Start empty."""
        self._requests: list[RecordedRequest] = []

    @overload
    def __getitem__(self, index: int) -> RecordedRequest: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordedRequest]: ...
    def __getitem__(self, index: int | slice) -> RecordedRequest | list[RecordedRequest]:
        """Return one request, or a list of some."""
        return self._requests[index]

    def __len__(self) -> int:
        """Return how many requests arrived."""
        return len(self._requests)

    def __iter__(self) -> Iterator[RecordedRequest]:
        """Go through them, oldest first."""
        return iter(self._requests)

    def __eq__(self, other: object) -> bool:
        """Compare with a list of ``(method, path)`` or ``(method, path, json)``."""
        if isinstance(other, RequestLog):
            return self is other
        if isinstance(other, Sequence):
            return list[object](self._requests) == list[object](other)  # pyright: ignore[reportUnknownArgumentType]
        return NotImplemented

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        """Show method and path of each."""
        return f"RequestLog({[request.as_tuple() for request in self._requests]})"

    def of(self, operation: str) -> list[RecordedRequest]:
        """Return the requests of one operation, such as ``create_job``."""
        return [request for request in self._requests if request.operation == operation]

    def count(self, value: object) -> int:
        """Return how many requests equal *value*, or are of the operation that *value* names."""
        if isinstance(value, str):
            return len(self.of(value))
        return sum(request == value for request in self._requests)

    def clear(self) -> None:
        """Forget everything so far; numbering goes on."""
        self._requests.clear()

    def add(self, request: RecordedRequest) -> None:
        """Append *request*; the service does this."""
        self._requests.append(request)


def describe_difference(seen: RequestLog, expected: Sequence[Expected]) -> str:
    """Return what was expected and what came, line by line; bodies only where one was expected."""
    with_json = any(len(one) == 3 for one in expected)
    came = [_line(request.as_tuple(with_json=with_json)) for request in seen]
    wanted = [_line(one) for one in expected]
    lines = difflib.unified_diff(wanted, came, "expected", "received", lineterm="", n=10)
    return f"{len(wanted)} requests expected, {len(came)} received\n" + "\n".join(lines)


def _line(request: Expected) -> str:
    text = f"{request[0]} {request[1]}"
    return text if len(request) < 3 else f"{text} {json.dumps(request[2], sort_keys=True, default=str)}"
