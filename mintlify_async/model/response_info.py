"""What is known of a response besides its body: status, headers, request id, attempts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from sys import intern
from typing import Any, Final

import attrs
from attrs import frozen

from .json_text import MASK
from .wire_value import WireValue

__all__ = ["Headers", "ResponseInfo"]

_HIDDEN_HEADERS: Final = frozenset({"x-thread-key", "set-cookie", "authorization", "proxy-authorization"})


class Headers(Mapping[str, str]):
    """The headers of a response: read-only, looked up in any case, secrets masked."""

    __slots__ = ("_values",)

    def __init__(self, headers: Mapping[str, str] | None = None, *, hidden: str = "") -> None:
        """Copy the headers, names in lower case; of a repeated one, the first is kept.

        ``X-Thread-Key``, the header named *hidden* and cookies are masked.
        """
        values: dict[str, str] = {}
        for name, content in headers.items() if headers is not None else ():
            name = intern(name.lower())  # thousands of jobs have headers of the same names
            if name in values:
                continue
            values[name] = MASK if name in _HIDDEN_HEADERS or name == hidden else content
        self._values = values

    def __getitem__(self, name: str) -> str:
        """Return the header *name*, in any case."""
        return self._values[name.lower()]

    def __iter__(self) -> Iterator[str]:
        """Yield the names, in lower case."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return how many headers there are."""
        return len(self._values)

    def __repr__(self) -> str:
        """Show them as a dict."""
        return f"Headers({self._values!r})"


def _as_headers(given: Mapping[str, str]) -> Headers:
    return given if isinstance(given, Headers) else Headers(given)


@frozen(kw_only=True, eq=False, repr=False, match_args=False)
class ResponseInfo(WireValue):
    """What is known of a response besides its body.

    Args:
        status: The HTTP status.
        headers: The headers, names in lower case; read-only.
        request_id: The service's id of the request, or None.
        attempts: How often the request was sent until this response.
    """

    status: int
    headers: Headers = attrs.field(factory=Headers, converter=_as_headers)
    request_id: str | None = None
    attempts: int = 1

    def to_wire(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "status": self.status,
            "headers": dict(self.headers),
            "requestId": self.request_id,
            "attempts": self.attempts,
        }
