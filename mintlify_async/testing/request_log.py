"""The log of received requests. It can be compared with plain tuples."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field

from ..wrong_names import helpful


@helpful
@define(kw_only=True, eq=False, repr=False)
class RecordedRequest:
    """One request, as the service received it.

    It equals ``(method, path)`` and ``(method, path, json)``::

        request = service.requests[0]
        assert request == ("POST", "/v2/agent/acme/job", {"prompt": "Fix the typos"})
        assert request.headers["user-agent"].startswith("mintlify-async")

    Attributes:
        operation: ``create_job``, ``get_job``, ``send_message``, ``ask``, or ``other``.
        method: The HTTP method.
        path: The path exactly as it was sent, with the query.
        headers: The headers. The names are in lower case.
        body: The body. Empty if a fault happened before it was read.
        at: The time of its arrival, from ``service.now()``.
        wall: The time of its arrival, in seconds since 1970.
        seconds: The duration of the response, by the loop's time, in seconds.
        status: The status of the response. None while there is no response.
        finished: Whether the complete response was sent.
        address: The client's IP address.
        port: The client's port, which differs for each connection.
        params: The decoded parts of the path: ``project`` and ``job``, or ``domain``.
        left: Whether the client disconnected. None while the response is being sent.
        is_client_gone: A function that returns whether the client has disconnected, while ``left`` is None.
    """

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
    address: str = ""
    port: int = 0
    params: Mapping[str, str] = field(factory=dict[str, str])
    left: bool | None = None
    is_client_gone: Callable[[], bool] | None = None

    @property
    def client_left(self) -> bool:
        """Whether the client closed the connection before the end of the response."""
        if self.left is None and self.is_client_gone is not None:
            return self.is_client_gone()
        return bool(self.left)

    @property
    def json(self) -> Any:
        """The body as JSON. None if it is empty, not JSON, or nested too deep."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):  # nested too deep
            return None

    @property
    def key(self) -> str | None:
        """The API key of the request."""
        scheme, _, key = self.headers.get("authorization", "").partition(" ")
        return key if scheme.lower() == "bearer" else None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, tuple):
            return self._as_tuple()[: len(other)] == other  # pyright: ignore[reportUnknownArgumentType] - any tuple
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return repr(self._as_tuple() if self.body else self._as_tuple()[:2])

    def _as_tuple(self) -> tuple[str, str, Any]:
        return self.method, self.path, self.json


class RequestLog(list[RecordedRequest]):
    """``service.requests`` contains all requests that a service received, oldest first.

    It equals a list of tuples::

        assert service.requests == [("POST", "/v2/agent/acme/job"), ("GET", "/v2/agent/acme/job/job_1")]
        assert service.requests.count("create_job") == 1
        assert service.requests.of("ask")[-1].json["messages"][0]["role"] == "user"

    ``clear()`` removes all requests.
    """

    def __eq__(self, other: object) -> bool:  # otherwise type checkers reject a list of tuples
        return super().__eq__(other)

    def of(self, operation: str) -> list[RecordedRequest]:
        """Return the requests of one operation, such as ``create_job``."""
        return [request for request in self if request.operation == operation]

    def count(self, value: object) -> int:
        """Return the number of requests that equal *value*, a tuple or the name of an operation."""
        if isinstance(value, str):
            return len(self.of(value))
        return sum(request == value for request in self)
