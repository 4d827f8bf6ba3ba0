"""Framing: the same data for every split, the oracle's cases, bounds on memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mintlify_async.assistant import sse
from mintlify_async.assistant.sse import SSEDecoder
from tests.support.oracle_data import framing

CASES = framing()


def decode(*pieces: bytes) -> tuple[list[str], str | None]:
    decoder = SSEDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events, decoder.close()


def in_reads_of(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


@pytest.mark.parametrize(("body", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_oracle_framing(body: bytes, expected: list[str]) -> None:
    """The data that the standard asks for, split in two anywhere or in reads of 1, 3 or 17 bytes, too."""
    whole = decode(body)
    assert whole[0] == expected
    for at in range(len(body) + 1):
        assert decode(body[:at], body[at:]) == whole
    for size in (1, 3, 17):
        assert decode(*in_reads_of(body, size)) == whole


FIELDS = [b"data", b":", b" ", b"id: 1", b"event:", b"retry", b"{}"]
LINE_ENDS = [b"\n", b"\r", b"\r\n"]
ODD_BYTES = [b"\xef\xbb\xbf", b"\xff", b"\xe2\x82", b"\xac"]


@given(st.lists(st.sampled_from(FIELDS + LINE_ENDS + ODD_BYTES), max_size=30), st.data())
@example([b"data", b":", b"\r", b"\n", b"\r"], None)
def test_random_bytes_split_alike(pieces: list[bytes], data: st.DataObject | None) -> None:
    """Fields, line ends, marks and broken UTF-8 in any order read the same in any pieces."""
    body = b"".join(pieces)
    whole = decode(body)
    assert decode(*in_reads_of(body, 1)) == whole
    if data is not None:
        at = data.draw(st.integers(0, len(body)))
        assert decode(body[:at], body[at:]) == whole


def test_a_bare_cr_ends_a_line_at_once() -> None:
    """An event that ends with CR CR is handed out before anything follows."""
    decoder = SSEDecoder()
    assert decoder.feed(b"data: 1\r\r") == ["1"]
    assert decoder.feed(b"\ndata: 2\r\n\r\n") == ["2"]


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets the largest size of an event."""
    return lambda size: monkeypatch.setattr(sse, "MAX_EVENT_BYTES", size)


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("line", [b"data: " + b"x" * 200, b"data: " + "é".encode() * 60])
def test_a_line_over_the_bound_is_too_large(bound: Callable[[int], None], size: int, line: bytes) -> None:
    """What came before is still handed out; then the decoder reads nothing more, whatever the reads."""
    bound(100)
    decoder = SSEDecoder()
    body = b"data: 1\n\n" + line + b"\n\ndata: 2\n\n"
    assert [event for piece in in_reads_of(body, size) for event in decoder.feed(piece)] == ["1"]
    assert decoder.too_large
    assert decoder.feed(b"\n\ndata: 3\n\n") == []
    assert decoder.close() is None


@pytest.mark.parametrize("last", [b"", b"\n"])
def test_a_last_line_over_the_bound_is_too_large(bound: Callable[[int], None], last: bytes) -> None:
    """Bytes that are not UTF-8 become characters of three bytes each, the last ones at the end only."""
    bound(10)
    decoder = SSEDecoder()
    assert decoder.feed(b"data: 12\xe2\x82" + last) == []
    assert decoder.close() is None
    assert decoder.too_large


def test_an_event_of_exactly_the_bound_passes(bound: Callable[[int], None]) -> None:
    """The bound is the largest size that is accepted: a line, its field name included."""
    bound(10)
    assert decode(b"data: 1234\n\n") == (["1234"], None)
    assert decode(b"data: 12345\n\n") == ([], None)
    assert decode(b"data\ndata\n\n") == (["\n"], None)
    assert decode(b"data\ndata:\ndata\n\n") == ([], None)
    assert decode(b"data\n: 345\n\n") == ([""], None)
    assert decode(b"data\n: 3456\n\n") == ([], None)


@pytest.mark.parametrize("size", [1, 2, 3, 11, 12])
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_an_event_of_exactly_the_bound_passes_however_it_is_split(
    bound: Callable[[int], None], end: bytes, size: int
) -> None:
    """A read may hold nothing but the second half of a line end."""
    bound(10)
    assert decode(*in_reads_of(b"data: 1234" + end + end, size)) == (["1234"], None)


def test_comments_and_empty_lines_take_no_memory(bound: Callable[[int], None]) -> None:
    """Ten megabytes of comments and a million empty lines leave nothing behind."""
    bound(1000)
    decoder = SSEDecoder()
    for _ in range(100):
        assert decoder.feed(b": keep-alive\n" * 8000) == []
        assert decoder.feed(b"\n" * 10_000) == []
        assert decoder.feed(b":\r\r" * 1000) == []
    assert decoder.feed(b"data: 1\n\n") == ["1"]
    assert decoder.close() is None
