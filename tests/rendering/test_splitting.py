"""A text of any shape, cut into messages of any length."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mintlify_async.errors import ConfigurationError
from mintlify_async.rendering.growing_messages import Edit, MarkdownSplitter, split_markdown
from mintlify_async.rendering.message_splitting import utf16_units
from tests.support.markdown_judges import kinds

words = st.sampled_from(
    [
        *("a", "word", "café", "longer-word", "`code`", "``", "`", "-", "|", "~~gone~~", ">", "[a](/b)"),
        *("x" * 30, "y" * 250, "日本語のとても長い文", "```in line```", "x" * 22 + "```" + "~" * 9),
        "https://docs.acme.com/guides/sign-in",
        *("😀", "👩‍👩‍👧", "🇦🇹", "🇦🇹🇩🇪" * 40, "👍🏽" * 30, "1️⃣", "e\u0301", "o" + "\u0302" * 90, "\u0301"),
        *("한국어", "\u1112\u1161\u11ab" * 20, "क्ष" * 20, "ก\u0e33", "\u0600\u0661"),
    ]
)
spaces = st.sampled_from(
    [" ", " ", " ", "\n", "\n\n", "  \n", "\n    ", "\r\n", "\r\n\r\n", "\t", " " * 90, "\n" * 90, "\n> "]
)
blocks = st.sampled_from(
    [
        "\n```python\nprint(1)\nprint(2)\n```\n",
        "\n```\n" + "line of code\n" * 20 + "```\n",
        "\r\n```py\r\n" + "a = 'é'\r\n\r\n" * 20 + "```\r\n",
        "\n~~~~ sh title=x\n" + "$ run --it\n" * 19 + "~~~~\n",
        "\n  ```js\n  let a = 1\n  ```\n",
        "\n> ```\n> quoted\n> ```\n",
        "\n```\n```\n",
        "\n```\nnever closed\n",
        "\n```a-language-with-a-very-very-long-name\n1\n\n2\n```\n",
        "\n| A | B |\n|---|---|\n" + "| one | `two` |\n" * 15,
        "\n" + "- an item with [a link](/page)\n" * 12,
    ]
)
texts = st.lists(st.one_of(words, spaces, words, spaces, blocks), max_size=60).map("".join)


def without_fences(text: str) -> tuple[str, bool]:
    """Return the text outside of lines that open and close a code block, and whether one is left open.

    Of a long line that opens a block, what comes after 100 characters counts as text of the block.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    line_kinds = kinds("\n".join(lines))
    outside = [
        line[100:] if kind in ("mark", "open") else line for line, kind in zip(lines, line_kinds, strict=True)
    ]
    return "\n".join(outside).replace(">", ""), "open" in line_kinds


def content(text: str) -> list[str]:
    """Return what may neither be lost nor torn: letters with their marks; blanks and fences may."""
    outside = without_fences(text)[0]
    marked = (mark if unicodedata.category(mark)[0] == "M" else f"\n{mark}" for mark in outside)
    return "".join(marked).split()


def follow(edits: list[Edit], limit: int, *, pauses: bool = False) -> list[str]:
    """Check what every surface relies on, and return the complete messages.

    With *pauses*, a message that was shown in full has no final edit.
    """
    seen: dict[int, str] = {}
    appended: dict[int, str] = {}
    done: set[int] = set()
    for edit in edits:
        assert edit.text.strip(), "never empty"
        assert edit.delta
        assert utf16_units(edit.text) <= limit
        assert edit.text == edit.text.rstrip()
        assert pauses or edit.text != seen.get(edit.index), "every edit changes what is seen"
        assert edit.index not in done, "a final message is not touched again"
        assert not without_fences(edit.text)[1], "no code block is left open"
        if edit.index not in seen:
            assert edit.index == len(seen), "messages come in order"
            assert pauses or edit.index == 0 or edit.index - 1 in done
        else:
            assert edit.index == len(seen) - 1
        seen[edit.index] = edit.text
        appended[edit.index] = appended.get(edit.index, "") + edit.delta
        assert edit.text.startswith(appended[edit.index]), "what was shown is not taken back"
        if edit.final:
            done.add(edit.index)
            assert appended[edit.index] == edit.text, "the deltas together are the message"
    assert pauses or done == set(seen), "each message ends with a final edit"
    return [seen[index] for index in sorted(seen)]


def grow(text: str, limit: int, pieces: list[int], looks: list[str]) -> Iterator[Edit]:
    """Feed *text* in pieces; look at some times, as a slow consumer does, at others when nothing has come."""
    splitter = MarkdownSplitter(limit)
    at = turn = 0
    while at < len(text):
        size = pieces[turn % len(pieces)]
        splitter.feed(text[at : at + size])
        at += size
        look = looks[turn % len(looks)]
        if look == "pause":
            yield from iter(partial(splitter.next_edit, pause=True), None)
            assert not text[splitter.shown_length : at].strip("`~> \t\r\n"), "all is shown in a pause"
        elif look and (edit := splitter.next_edit()):
            yield edit
        turn += 1
    splitter.close()
    yield from iter(splitter.next_edit, None)
    assert not splitter.next_edit()


GROWING = {
    "text": texts,
    "limit": st.integers(200, 500),
    "pieces": st.lists(st.integers(1, 40) | st.integers(1, 400), min_size=1, max_size=8),
}


@settings(max_examples=250)
@given(**GROWING, looks=st.lists(st.sampled_from(["", "look"]), min_size=1, max_size=8))
def test_any_text_arrives_whole_and_in_the_same_messages(text, limit, pieces, looks):
    """Whatever the text, the pieces and the moments: nothing lost or torn, no fence broken, no edit in vain.

    A text that grows ends up in the same messages as one that is there from the beginning.
    """
    messages = follow([*grow(text, limit, pieces, looks)], limit)
    assert content("\n".join(messages)) == content(text)
    assert messages == split_markdown(text, limit)


@settings(max_examples=250)
@given(**GROWING, looks=st.lists(st.sampled_from(["", "look", "pause"]), min_size=1, max_size=8))
def test_a_pause_shows_everything(text, limit, pieces, looks):
    """Also half a word or half a fence; what follows adds to it, and nothing is lost or torn."""
    messages = follow([*grow(text, limit, pieces, looks)], limit, pauses=True)
    shown = "".join(content("\n".join(messages)))
    if "`" not in text and "~" not in text:
        assert shown == "".join(content(text))


@pytest.mark.parametrize("between", ["\n\n", "\r\n\r\n", "\n \n", "\n"])
def test_it_cuts_in_the_last_third_between_paragraphs_else_lines(between):
    """A message ends where a thought ends, unless that would leave it too short."""
    one, two, three = ("one " * 36).strip(), ("two " * 10).strip(), ("three " * 18).strip()
    assert len(one) == 143
    assert split_markdown(f"{one}{between}{two}\n{three}", 210) == (
        [one, f"{two}\n{three}"] if between != "\n" else [f"{one}\n{two}", three]
    )
    short = one[:135]  # ends before the last third
    assert split_markdown(f"{short}{between}{two}\n{three}", 210) == [f"{short}{between}{two}", three]


def test_it_cuts_before_a_code_block_that_does_not_fit():
    """A block that begins in the last third and fits in a message of its own stays whole."""
    code = "```python\n" + "print('hello')\n" * 10 + "```"
    assert split_markdown("word " * 30 + "\n" + code, 210) == [("word " * 30).strip(), code]


def test_a_long_code_block_is_closed_and_opened_again():
    """With its language, and its indentation."""
    messages = split_markdown("```python title=x\n" + "print('hello')\n" * 20 + "```\nDone.", 200)
    assert messages == [
        "```python title=x\n" + "print('hello')\n" * 11 + "```",
        "```python\n" + "print('hello')\n" * 9 + "```\nDone.",
    ]


def test_a_run_of_marks_longer_than_a_message_fills_messages():
    """Thousands of marks on one letter are cut where the limit is, and nothing else is."""
    marks = "e" + "\u0301" * 5000
    assert split_markdown(f"word {marks} word", 4096) == ["word", marks[:4096], f"{marks[4096:]} word"]
    fits = "e" + "\u0301" * 199
    assert split_markdown(f"{'x' * 150}{fits}x", 200) == ["x" * 150, fits, "x"]


def test_a_message_of_emoji_in_a_link_ends_with_a_word():
    """An emoji is one character of the text and two units of the limit."""
    words, short_words = " ".join(["\U0001f600" * 30] * 68), " a" * 140
    first, rest = split_markdown(f"[{words}{short_words}", 4096)
    assert (len(first), rest) == (67 * 31, "\U0001f600" * 30 + short_words)


def test_growing_shows_whole_words_and_holds_the_last_two():
    """The last may go on; the one before is held so that the final edit always has something to add."""
    splitter = MarkdownSplitter(200)
    splitter.feed("Open the set")
    assert splitter.next_edit() == Edit(index=0, text="Open", delta="Open", final=False)
    assert splitter.next_edit() is None
    splitter.feed("tings page")
    assert splitter.next_edit() == Edit(index=0, text="Open the", delta=" the", final=False)
    splitter.close()
    assert splitter.next_edit() == Edit(
        index=0, text="Open the settings page", delta=" settings page", final=True
    )
    assert splitter.next_edit() is None


def test_a_growing_code_block_is_closed_for_now():
    """So that a surface that formats shows a block; the deltas do not hold that closing."""
    splitter = MarkdownSplitter(200)
    splitter.feed("```py\nprint(1)\nprint(2)\npri")
    assert splitter.next_edit() == Edit(
        index=0, text="```py\nprint(1)\n```", delta="```py\nprint(1)", final=False
    )
    splitter.feed("nt(3)\n```")
    assert splitter.next_edit() is None, "what is arriving may be the end of the block"
    splitter.close()
    edit = splitter.next_edit()
    delta = "\nprint(2)\nprint(3)\n```"
    assert edit == Edit(index=0, text=f"```py\nprint(1){delta}", delta=delta, final=True)


def test_a_long_word_is_shown_while_it_grows():
    """Some languages put no space between words."""
    splitter = MarkdownSplitter(200)
    seen = []
    for at in range(0, 60, 5):
        splitter.feed("日本語のとても長い文"[at % 10 : at % 10 + 5])
        seen.append(len(edit.text) if (edit := splitter.next_edit()) else 0)
    assert seen == [0, 0, 0, 0, 23, 28, 33, 38, 43, 48, 53, 58]


@pytest.mark.parametrize("limit", [199, 0, -1, 1900.0, True, None, "1900"])
def test_a_limit_is_a_whole_number(limit):
    """Too small a message has no room for a code block's two lines."""
    with pytest.raises(ConfigurationError, match="200 or more") as caught:
        split_markdown("", limit)
    assert caught.value.field == "limit"


@pytest.mark.parametrize(
    "blanks", [" ", "\n", "\r\n", " \n", " " * 150, "\n" * 150, " " * 5000, "\n \t\n" * 1000]
)
def test_blanks_at_a_messages_end_do_not_count(blanks):
    """A message may be full to the last unit: neither blanks after it nor the next word change that."""
    for length in (198, 199, 200):
        full = "ab " * 60 + "x" * (length - 180)
        assert split_markdown(full + blanks, 200) == [full]
        assert split_markdown(f"{full}{blanks}word", 200) == [full, "word"]
    assert len(split_markdown("ab " * 60 + "x" * 21 + blanks, 200)) == 2


@pytest.mark.parametrize(("spaces", "kept"), [(49, 49), (50, 50), (51, 0)])
def test_the_indentation_of_a_messages_first_line_is_kept(spaces, kept):
    """Up to a quarter of a message; blank lines before it are left out."""
    assert split_markdown("\n \n" + " " * spaces + "word", 200) == [" " * kept + "word"]
    code = "x" * 190
    first, second = split_markdown(f"```\n{code}\n\n" + " " * spaces + "word\n```", 200)
    assert (first, second) == (f"```\n{code}\n```", "```\n" + " " * kept + "word\n```")


@pytest.mark.parametrize("unit", ["x", "word ", "` ", "é"])
def test_a_long_line_of_a_code_block_is_cut_in_it(unit):
    """Each message opens the block again, and the line is whole in them together."""
    line = unit * 20_000
    messages = split_markdown(f"```\n{line}\n```", 500)
    assert all(message.startswith("```\n") and message.endswith("\n```") for message in messages)
    assert content("".join(message[4:-4] for message in messages)) == content(line)


@pytest.mark.parametrize(
    ("end", "rest"),
    [
        ("```", ["Done."]),
        ("  ```` \r", ["Done."]),
        (" > ```` \r", ["```\n > ```` \r\nDone.\n```"]),
        ("``", ["```\n``\nDone.\n```"]),
        ("~~~", ["```\n~~~\nDone.\n```"]),
        ("```x", ["```\n```x\nDone.\n```"]),
    ],
)
def test_a_block_that_was_cut_before_its_end_is_not_opened_again(end, rest):
    """What ends it is left out; what only looks like an end is code."""
    text = f"```\n{'x' * 192}\n{end}\nDone."
    assert split_markdown(text, 200) == [f"```\n{'x' * 192}\n```", *rest]
