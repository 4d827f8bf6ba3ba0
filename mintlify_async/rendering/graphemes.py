"""Graphemes: where a text may be cut without tearing apart what is read as one character. No I/O.

The rules are those of Unicode's Annex 29, as far as ``unicodedata`` knows the characters. Where it does
not, they join too much rather than too little: a place that is no boundary there is none here.
"""

from __future__ import annotations

import re
from typing import Final
from unicodedata import category, combining

VIRAMA: Final = 9
"""The combining class of the marks that join two consonants into one."""

MARKS_LOOKED_BACK: Final = 30
"""How many marks after a letter are searched for a virama: Unicode's own limit for streams (Annex 15)."""

_UNKNOWN: Final = {"Cn", "Cs"}  # newer than this Python's tables, or half a character
_JOINING: Final = {"Mn", "Mc", "Me", "Cf", *_UNKNOWN}  # marks; joiners, the letters of subdivision flags
_JOINED: Final = re.compile(
    # after Hangul's leading consonants, and the letters that are read before the next one
    "(?<=[\u1100-\u115f\ua960-\ua97c\u0d4e\u1cf5\u1cf6\U000111c2\U000111c3\U000113d1\U0001193f\U00011941"
    "\U00011a3a\U00011a84-\U00011a89\U00011d46\U00011f02])"
    # before Hangul's vowels and final consonants, other letters that extend, and skin tones
    "|(?=[\u1160-\u11ff\ud7b0-\ud7fb\u0e33\u0eb3\uff9e\uff9f\U00016d63\U00016d67-\U00016d6a"
    "\U0001f3fb-\U0001f3ff])"
)
_LINKING_LETTERS: Final = "\u1cf5\u1cf6\U00011a3a"  # they act as a virama, and are no marks
_FLAG_LETTERS: Final = "".join(map(chr, range(0x1F1E6, 0x1F200)))


def is_boundary(text: str, at: int, begin: int = 0) -> bool:
    """Return whether *text* may be cut before the character *at*; *begin* is a boundary before it."""
    before, after = text[at - 1], text[at]
    if before < "\u0300" and after < "\u0300":
        return before + after != "\r\n"
    left, right = category(before), category(after)
    if left in _UNKNOWN or left == "Cf" or right in _JOINING or _JOINED.match(text, at):
        return False
    if before in _FLAG_LETTERS and after in _FLAG_LETTERS:
        return (at - len(text[begin:at].rstrip(_FLAG_LETTERS)) - begin) % 2 == 0
    return right != "Lo" or not _joins_consonants(text[max(begin, at - MARKS_LOOKED_BACK) : at])


def _joins_consonants(text: str) -> bool:
    """Return whether something at the end of *text*, marks aside, joins two consonants into one."""
    for character in reversed(text):
        kind = category(character)
        if combining(character) == VIRAMA or kind in _UNKNOWN or character in _LINKING_LETTERS:
            return True
        if kind not in _JOINING:
            break
    return False
