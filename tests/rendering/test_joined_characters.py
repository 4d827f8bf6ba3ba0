"""What people see as one character is not cut where a message is full."""

from __future__ import annotations

import unicodedata

import pytest

from mintlify_async import split_markdown


@pytest.mark.parametrize("character", ["👨‍👩‍👧‍👦", "👩🏽‍💻", "שָׁ", "e\u0301", "❤\ufe0f"])
@pytest.mark.parametrize("shift", range(12))
def test_no_message_begins_inside_a_character(character, shift):
    """Joiners, skin tones and accents stay with the character before them, and nothing is lost."""
    text = "x" * shift + character * 120
    pieces = [piece.strip() for piece in split_markdown(text, 200)]
    assert "".join(pieces) == text
    for piece in pieces[1:]:
        assert piece.startswith(character), ascii(piece[:4])
    assert not any(unicodedata.category(piece[0])[0] == "M" for piece in pieces)
