"""Counts the values in a page's JSON while it arrives, before it is parsed.

The time of ``json.loads`` depends on the number of values, not of bytes: 4 MiB of empty lists take a second,
in which the interpreter does nothing else, not even in another thread. So the values are counted first.
"""

from __future__ import annotations

from attrs import define

ESCAPES_PER_VALUE = 10  # as many escaped characters take as long as one value
_FRACTIONS = (b".", b"e", b"E")  # a number with one of them takes as long as two other values
_OPENING, _CLOSING = b"[{", b"]}"
_NOT_BRACKETS = bytes(set(range(256)) - set(_OPENING + _CLOSING))


@define
class JSONStructure:
    """Counts the values of a JSON document that arrives in pieces, and the depth to which they are nested.

    The counts are right up to the first place where the document is not valid JSON, where every parser stops.

    Attributes:
        marks: The commas, colons and opening brackets outside of strings: one for each value and each name.
        fractions: The points and exponents of numbers, and the e of each ``true`` and ``false``.
        escapes: The backslashes.
        deepest: The greatest number of brackets that were open at once.
    """

    marks: int = 0
    fractions: int = 0
    escapes: int = 0
    deepest: int = 0
    _strings: int = 0
    _depth: int = 0
    _inside: bool = False  # a string
    _rest: bytes = b""  # a backslash whose second character has not arrived

    @property
    def values(self) -> int:
        """The number of plain values that take as long to parse."""
        return self.marks + self.fractions + self.escapes // ESCAPES_PER_VALUE

    def feed(self, piece: bytes, most: int) -> bool:
        """Count *piece*; return whether there are at most *most* values. If not, the count is incomplete."""
        piece = self._rest + piece
        cut = len(piece) - (len(piece) - len(piece.rstrip(b"\\"))) % 2
        piece, self._rest = piece[:cut], piece[cut:]
        self.escapes += piece.count(b"\\")
        plain = piece.replace(rb"\\", b"").replace(rb"\"", b"")
        quotes = plain.count(b'"')
        self._strings += (quotes + (not self._inside)) // 2
        if self._strings > most + 1:  # more than marks can stand between
            return False
        outside = b"".join(plain.split(b'"')[self._inside :: 2])
        self._inside ^= quotes % 2 == 1
        self.marks += sum(map(outside.count, (b",", b":", b"[", b"{")))
        self.fractions += sum(map(outside.count, _FRACTIONS))
        if self.values > most:
            return False
        depth, deepest = self._depth, self.deepest
        for bracket in outside.translate(None, _NOT_BRACKETS):
            depth += 1 if bracket in _OPENING else -1
            if depth > deepest:
                deepest = depth
        self._depth, self.deepest = depth, deepest
        return True
