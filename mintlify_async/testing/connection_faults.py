"""Faults: the ways in which a connection delivers a response badly, or not at all.

:mod:`.scripted_responses` sends an error status, such as 429.

::

    service.script.ask(fault=Cut(at=100, how="rst"))    # the answer to the next question
    service.script.connect(Reset())                     # the next new connection
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import field, frozen

from ..wrong_names import helpful
from .http_response import Answer, Pause, Piece, join_bytes, to_pieces
from .raw_connection import Ending, first_pieces, framed, head


@helpful
class Fault:
    """One way in which a response fails. Derive your own fault from this class.

    Attributes:
        how: The end of the connection: ``fin`` (closed), ``rst`` (reset) or ``hang`` (open and silent).
        unread: Whether the fault happens before the request's body is read.
    """

    how: Ending = "fin"
    unread: bool = False

    def pieces(self, answer: Answer) -> Iterable[Piece]:
        """Return the pieces to send before the end. Without a fault, the service would send *answer*."""
        return ()


@frozen
class Reset(Fault):
    """The connection is reset.

    Args:
        unread: Whether this happens before the request's body is read. By default, the service first reads
            and handles the complete request.
    """

    unread: bool = False
    how = "rst"


@frozen
class Close(Fault):
    """The connection is closed without a response.

    Args:
        unread: As for :class:`Reset`.
    """

    unread: bool = False


@frozen
class NoAnswer(Fault):
    """The service reads and handles the request, but sends no response.

    Args:
        seconds: Close the connection after this many seconds. None leaves it open.
    """

    seconds: float | None = None

    @property
    def how(self) -> Ending:  # type: ignore[override]
        """The end of the connection."""
        return "hang" if self.seconds is None else "fin"

    def pieces(self, answer: Answer) -> Iterable[Piece]:
        """Return only a pause."""
        return () if self.seconds is None else (Pause(self.seconds),)


@frozen
class Cut(Fault):
    """The response ends inside its body.

    Args:
        at: The number of bytes of the body before the fault. A negative number counts from the end.
        how: The end of the connection, one of ``fin``, ``rst`` and ``hang``.
        clean: Whether to end the body correctly. Then only its content shows that something is missing. Use
            *clean* with ``fin``.
    """

    at: int
    how: Ending = "fin"
    clean: bool = field(default=False, kw_only=True)

    def pieces(self, answer: Answer) -> Iterable[Piece]:
        """Yield the head and the first part of the body."""
        pieces = first_pieces(answer, self.at)
        shorter = self.clean and not answer.chunked
        yield head(answer, {"Content-Length": str(len(join_bytes(pieces)))} if shorter else None)
        yield from framed(pieces, chunked=answer.chunked, ended=self.clean)


@helpful
@frozen
class Raw(Fault):
    r"""Sends exactly these bytes, from the status line on. They need not be HTTP.

    ::

        Raw([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", 7.0, b"b"])

    Args:
        parts: Bytes, texts, events or dicts, each sent with its own write. A number is a pause, in seconds.
        how: The end of the connection, one of ``fin``, ``rst`` and ``hang``.
    """

    parts: tuple[Piece, ...] = field(converter=to_pieces)
    how: Ending = "fin"

    def pieces(self, answer: Answer) -> Iterable[Piece]:
        """Return the bytes."""
        return self.parts
