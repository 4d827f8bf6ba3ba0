"""The data of a response: status, headers, request id, attempts, and the JSON of a job's record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import attrs
from attrs import frozen
from multidict import CIMultiDictProxy

from .secret import MASK
from .strict_json import decode_json, whole_characters
from .wire_value import EMPTY, UNCOMPARED, WireValue

_HIDDEN_HEADERS: Final = frozenset({"x-thread-key", "set-cookie", "authorization", "proxy-authorization"})


def lower_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return *headers* with names in lower case. Of repeated headers, the first is used."""
    lowered: dict[str, str] = {}
    for name, value in headers.items():
        lowered.setdefault(name.lower(), value)
    return lowered


class Headers(Mapping[str, str]):
    """The headers of a response. They are read-only, and names are found in upper and lower case.

    Of repeated headers, the first is used. The thread's key, the header *hidden* and cookies are masked.
    """

    __slots__ = ("_fields", "_hidden")

    def __init__(self, headers: Mapping[str, str] = EMPTY, hidden: str = "") -> None:
        # aiohttp's headers ignore case. They are kept without a copy, because few are ever read.
        self._fields = headers if isinstance(headers, CIMultiDictProxy) else lower_headers(headers)
        self._hidden = hidden

    def __getitem__(self, name: str) -> str:
        text = self.get(name)
        if text is None:
            raise KeyError(name)
        return cast("str", text)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the header, or *default*."""
        name = name.lower()
        text = self._fields.get(name)
        if text is None:
            return default
        return MASK if name in _HIDDEN_HEADERS or name == self._hidden else whole_characters(text)

    def __iter__(self) -> Iterator[str]:
        return iter(lower_headers(self._fields))

    def __len__(self) -> int:
        return len(lower_headers(self._fields))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)

    def __repr__(self) -> str:
        return f"Headers({dict(self)!r})"


def _as_headers(headers: Mapping[str, str]) -> Headers:
    return headers if isinstance(headers, Headers) else Headers(headers)


@frozen(kw_only=True, eq=False, repr=False, match_args=False, slots=False)
class ResponseInfo(WireValue):
    """The data of a response.

    Args:
        status: The HTTP status.
        headers: The headers, with names in lower case; read-only.
        request_id: The request id that the service sent, or None.
        attempts: How many times the request was sent, up to this response.
        body: The JSON text of a job's record, in UTF-8, else empty. Equality and the repr ignore it.
    """

    status: int
    headers: Headers = attrs.field(default=Headers(), converter=_as_headers)
    request_id: str | None = None
    attempts: int = 1
    body: bytes = attrs.field(default=b"", metadata=UNCOMPARED)

    @property
    def json(self) -> Any:
        """The JSON value of :attr:`body`, parsed again each time. None if the body is empty."""
        return decode_json(self.body.decode()) if self.body else None

    def to_wire(self) -> dict[str, Any]:
        """Return status, headers, request id and attempts as a JSON object."""
        return {
            "status": self.status,
            "headers": dict(self.headers),
            "requestId": self.request_id,
            "attempts": self.attempts,
        }
