"""A text of any shape, cut into messages of any length."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mintlify_async.errors import ConfigurationError
from mintlify_async.rendering.splitting import Edit, MarkdownSplitter, split_markdown, utf16_units

words = st.sampled_from(
    [
        "a",
        "word",
        "café",
        "😀",
        "👩‍👩‍👧",
        "longer-word",
        "x" * 30,
        "y" * 250,
        "`code`",
        "日本語のとても長い文",
        "-",
        "``",
    ]
)
spaces = st.sampled_from([" ", " ", " ", "\n", "\n\n", "  \n", "\n    "])
blocks = st.sampled_from(
    [
        "\n```python\nprint(1)\nprint(2)\n```\n",
        "\n```\n" + "line of code\n" * 20 + "```\n",
        "\n~~~~ sh title=x\n" + "$ run --it\n" * 19 + "~~~~\n",
        "\n  ```js\n  let a = 1\n  ```\n",
        "\n```\nnever closed\n",
        "\n```a-language-with-a-very-very-long-name\n1\n\n2\n```\n",
    ]
)
texts = st.lists(st.one_of(words, spaces, words, spaces, blocks), max_size=60).map("".join)


def open_fence(text: str) -> bool:
    """Return whether a code block is left open, judged line by line."""
    mark = ""
    for line in text.split("\n"):
        line = line.strip(" \t>")
        found = re.match(r"(`{3,}|~{3,})(.*)", line)
        if mark:
            if found and line.startswith(mark) and not line.strip(mark[0]):
                mark = ""
        elif found and not ("`" in found[2] and found[1][0] == "`"):
            mark = found[1]
    return bool(mark)


def content(text: str) -> str:
    """Return what may not be lost: everything but white space and the lines of fences."""
    lines = [line for line in text.split("\n") if not re.match(r"\s*(```|~~~)", line)]
    return "".join("".join(lines).split())


def follow(edits: list[Edit], limit: int) -> list[str]:
    """Check what every surface relies on, and return the final messages."""
    seen: dict[int, str] = {}
    appended: dict[int, str] = {}
    done: set[int] = set()
    for edit in edits:
        assert edit.text.strip(), "never empty"
        assert utf16_units(edit.text) <= limit
        assert edit.text == edit.text.rstrip()
        assert edit.text != seen.get(edit.index), "every edit changes what is seen"
        assert edit.index not in done, "a final message is not touched again"
        assert not open_fence(edit.text)
        if edit.index not in seen:
            assert edit.index == len(seen), "messages come in order"
            assert edit.index == 0 or edit.index - 1 in done
        seen[edit.index] = edit.text
        appended[edit.index] = appended.get(edit.index, "") + edit.delta
        assert edit.text.startswith(appended[edit.index])
        if edit.final:
            done.add(edit.index)
            assert appended[edit.index] == edit.text, "the deltas together are the message"
    assert done == set(seen), "each message ends with a final edit"
    return [seen[index] for index in sorted(seen)]


def grow(text: str, limit: int, pieces: list[int], looks: list[bool]) -> list[Edit]:
    """Feed *text* in pieces; look at some times, as a slow consumer does."""
    splitter = MarkdownSplitter(limit)
    edits: list[Edit] = []
    at = 0
    turn = 0
    while at < len(text):
        size = pieces[turn % len(pieces)]
        splitter.feed(text[at : at + size])
        at += size
        if looks[turn % len(looks)]:
            edit = splitter.complete() or splitter.growing()
            edits += [edit] if edit else []
        turn += 1
    edits += iter(splitter.complete, None)
    last = splitter.finish()
    return [*edits, last] if last else edits


@settings(max_examples=250, deadline=None)
@given(
    text=texts,
    limit=st.integers(200, 500),
    pieces=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    looks=st.lists(st.booleans(), min_size=1, max_size=8),
)
def test_any_text_arrives_whole(text, limit, pieces, looks):
    """Whatever the text, the pieces and the moments: nothing lost, no fence broken, no edit in vain."""
    messages = follow(grow(text, limit, pieces, looks), limit)
    assert content("\n".join(messages)) == content(text)


@settings(max_examples=200, deadline=None)
@given(text=texts, limit=st.integers(200, 500))
def test_split_at_once_arrives_whole(text, limit):
    """The same for a text that is there from the beginning."""
    messages = split_markdown(text, limit)
    for message in messages:
        assert utf16_units(message) <= limit
        assert not open_fence(message)
    assert content("\n".join(messages)) == content(text)


def test_a_short_text_is_one_message():
    """Only space around it goes."""
    assert split_markdown("\n\nHello *you*.\n", 200) == ["Hello *you*."]
    assert split_markdown(" \n ", 200) == []


def test_it_cuts_between_paragraphs_when_it_can():
    """A message ends where a thought ends, unless that would leave it too short."""
    text = ("one " * 24).strip() + "\n\n" + ("two " * 18).strip() + "\n" + ("three " * 18).strip()
    assert split_markdown(text, 210) == [
        ("one " * 24).strip(),
        ("two " * 18).strip() + "\n" + ("three " * 18).strip(),
    ]


def test_it_cuts_before_a_code_block_that_does_not_fit():
    """A block that fits in a message of its own stays whole."""
    code = "```python\n" + "print('hello')\n" * 10 + "```"
    assert split_markdown("word " * 24 + "\n" + code, 210) == [("word " * 24).strip(), code]


def test_a_long_code_block_is_closed_and_opened_again():
    """With its language, and its indentation."""
    messages = split_markdown("```python title=x\n" + "print('hello')\n" * 20 + "```\nDone.", 200)
    assert messages == [
        "```python title=x\n" + "print('hello')\n" * 11 + "```",
        "```python\n" + "print('hello')\n" * 9 + "```\nDone.",
    ]


def test_no_empty_block_is_left():
    """When a block's end is all that remains of it, it is left out."""
    code = "```\n" + ("x" * 47 + "\n") * 4
    messages = split_markdown(code + "```\nThe rest of the answer.", 200)
    assert messages[-1] == "The rest of the answer."
    assert all("```\n```" not in message for message in messages)


def test_a_word_longer_than_a_message_is_cut_in_it():
    """Never inside a character; an accent and a skin tone stay with what they belong to."""
    text = "👍🏽" * 180
    messages = split_markdown(text, 201)
    assert "".join(messages) == text
    assert all(not message.startswith("🏽") for message in messages)


def test_the_limit_counts_utf16_units():
    """As Telegram does: an emoji counts two."""
    assert utf16_units("a😀é") == 4
    assert [len(message) for message in split_markdown("😀" * 220, 200)] == [100, 100, 20]


def test_growing_shows_whole_words_and_holds_the_last():
    """The last word may go on; the final edit always has something to add."""
    splitter = MarkdownSplitter(200)
    splitter.feed("Open the set")
    assert splitter.growing() == Edit(index=0, text="Open the", delta="Open the", final=False)
    assert splitter.growing() is None
    splitter.feed("tings page")
    assert splitter.growing() == Edit(index=0, text="Open the settings", delta=" settings", final=False)
    assert splitter.finish() == Edit(index=0, text="Open the settings page", delta=" page", final=True)
    assert splitter.growing() is None


def test_a_growing_code_block_is_closed_for_now():
    """So that a surface that formats shows a block; the deltas do not hold that closing."""
    splitter = MarkdownSplitter(200)
    splitter.feed("```py\nprint(1)\nprint(2)")
    assert splitter.growing() == Edit(
        index=0, text="```py\nprint(1)\n```", delta="```py\nprint(1)", final=False
    )
    splitter.feed("\n```")
    edit = splitter.finish()
    assert edit == Edit(index=0, text="```py\nprint(1)\nprint(2)\n```", delta="\nprint(2)\n```", final=True)


@pytest.mark.parametrize("limit", [199, 0, -1, 1900.0, True, None, "1900"])
def test_a_limit_is_a_whole_number(limit):
    """Too small a message has no room for a code block's two lines."""
    with pytest.raises(ConfigurationError, match="at least 200") as caught:
        split_markdown("", limit)
    assert caught.value.field == "limit"


def test_cutting_is_linear():
    """A long text costs in proportion: each character is looked at a bounded number of times."""
    looked = 0

    class Counting(MarkdownSplitter):
        def _window(self, *, ending: bool = False) -> str:
            nonlocal looked
            text = super()._window(ending=ending)
            looked += len(text)
            return text

    text = "some words of an answer, and more of them\n" * 5000
    splitter = Counting(1900)
    splitter.feed(text)
    count = sum(1 for _ in iter(splitter.complete, None))
    assert count > 100
    assert looked < 3 * len(text)


def test_a_thousand_messages_of_blanks_are_passed_over():
    """Blanks before the first word make no message, however many there are."""
    assert split_markdown(" " * 1_000_000 + "word", 200) == ["word"]


@pytest.mark.parametrize("unit", ["x", "word ", "` ", "é"])
def test_a_long_line_of_a_code_block_is_cut_in_it(unit):
    """Each message opens the block again, and the line is whole in them together."""
    line = unit * 100_000
    messages = split_markdown(f"```\n{line}\n```", 500)
    assert all(message.startswith("```\n") and message.endswith("\n```") for message in messages)
    assert content("".join(message[4:-4] for message in messages)) == content(line)


@pytest.mark.parametrize(
    ("end", "rest"),
    [
        ("```", ["Done."]),
        (" > ```` \r", ["Done."]),
        ("``", ["```\n``\nDone.\n```"]),
        ("~~~", ["```\n~~~\nDone.\n```"]),
        ("```x", ["```\n```x\nDone.\n```"]),
    ],
)
def test_a_block_that_was_cut_before_its_end_is_not_opened_again(end, rest):
    """What ends it is left out; what only looks like an end is code."""
    text = f"```\n{'x' * 192}\n{end}\nDone."
    assert split_markdown(text, 200) == [f"```\n{'x' * 192}\n```", *rest]
