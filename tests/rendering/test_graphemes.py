"""Graphemes as Unicode defines them, by the judgement of ``regex``, which has tables of its own."""

from __future__ import annotations

import random
from functools import cache
from unicodedata import category

import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from mintlify_async.rendering.graphemes import is_boundary

KINDS = [
    *(
        f"GCB={kind}"
        for kind in [
            "CR",
            "LF",
            "Control",
            "Extend",
            "ZWJ",
            "RI",
            "Prepend",
            "SpacingMark",
            "L",
            "V",
            "T",
            "LV",
            "LVT",
        ]
    ),
    *("InCB=Linker", "InCB=Consonant", "InCB=Extend", "Extended_Pictographic", "Lu", "Nd", "Zs"),
]
"""The properties that the rules name, and some ordinary characters."""


@cache
def characters(kind: str) -> list[str]:
    everything = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE1000))))
    return regex.findall(rf"\p{{{kind}}}", everything)


def boundaries(text: str) -> set[int]:
    return {found.start() for found in regex.finditer(r"\X", text)} - {0}


def ours(text: str) -> set[int]:
    return {at for at in range(1, len(text)) if is_boundary(text, at)}


def test_no_boundary_is_inside_a_grapheme():
    """Of any characters, also of those that this Python does not know: it joins them."""
    pick = random.Random(1)
    for _ in range(20_000):
        kinds = (characters(pick.choice(KINDS)) for _ in range(pick.randint(2, 7)))
        text = "".join(map(pick.choice, kinds))
        assert ours(text) <= boundaries(text), ascii(text)


def test_each_character_that_joins_is_known():
    """None is left out, neither after a letter nor before one. Most do not join on both sides."""
    for kind in KINDS:
        for character in characters(kind):
            assert ours(f"a{character}b") <= boundaries(f"a{character}b"), ascii(character)


ordinary = st.characters(exclude_categories=["Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"]).filter(
    lambda character: not "\u1100" <= character <= "\u11ff" and not "\ua960" <= character <= "\ud7ff"
)


@settings(max_examples=150, deadline=None)
@given(text=st.text(ordinary | st.sampled_from("🇦🇹👍🏽❤\ufe0f\u0301"), min_size=2, max_size=20))
def test_boundaries_of_ordinary_text_are_found(text):
    """It may join too much around format characters, old Hangul letters and a virama; not elsewhere.

    Characters that one of the two tables does not know are left out.
    """
    if not regex.search(r"[\p{InCB=Linker}\p{GCB=Prepend}\p{Cn}]", text):
        assert ours(text) == boundaries(text), [category(character) for character in text]


def test_flags_are_pairs_from_the_beginning_on():
    """However many there are: which half a letter is depends on all before it."""
    flags = "🇦🇹" * 500
    assert ours(flags) == boundaries(flags)
    assert not is_boundary(flags, 11, begin=2)
