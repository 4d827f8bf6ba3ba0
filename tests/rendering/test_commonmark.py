"""Markdown is read as CommonMark reads it.

Two foreign parsers judge. A text on which they differ does not count.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from mintlify_async.cli.terminal import Blocks
from mintlify_async.messages import Message, SourceDocumentPart, SourceUrlPart, TextPart
from mintlify_async.rendering import sources_of, split_markdown, split_suggestions, suggestions_of, text_of
from mintlify_async.rendering.answer_as_markdown import extras_markdown
from mintlify_async.rendering.blocks import START, read_line
from mintlify_async.rendering.growing_messages import MarkdownSplitter
from mintlify_async.rendering.message_splitting import utf16_units
from mintlify_async.rendering.readable_text import ReadableText
from tests.support import markdown_texts
from tests.support.markdown_judges import agree, characters, code, kinds, links, suggestion_lines

JUDGE = MarkdownIt("commonmark").enable("strikethrough")
SITE = "https://acme.com/docs"
seeds = st.integers(0, 10**9).map(Random)
as_models_write = seeds.map(markdown_texts.realistic).filter(agree)
nested = seeds.map(markdown_texts.document).filter(agree)
hostile = seeds.map(markdown_texts.hostile).filter(agree)
texts = as_models_write | nested | hostile
limits = st.sampled_from([200, 260, 333, 500])


def readable(text: str, site: str | None = None) -> str:
    return text_of(Message(id="m", role="assistant", parts=(TextPart(text=text),)), site=site)


def squeezed(text: str) -> str:
    return "".join(text.split())


@settings(max_examples=60)
@given(texts)
def test_each_line_is_what_the_judges_see(text):
    """Quotes, items, code blocks with marks and by indentation, and the lines that continue a paragraph."""
    state, is_code = START, []
    for line in text.split("\n"):
        read = read_line(line, state)
        state = read.after
        is_code.append(read.is_code)
    pairs = [
        pair for *pair, line in zip(is_code, kinds(text), text.split("\n"), strict=True) if line.strip(" \t>")
    ]
    assert [ours for ours, _ in pairs] == [kind != "prose" for _, kind in pairs]


@pytest.mark.parametrize("text", ["\u0662. a\n\n      b", "> \u0662) a\n>\n>       b"])
def test_only_ascii_digits_number_an_item(text):
    """Another digit is text, so what is indented below it is code, as the judges see it."""
    first, blank, last = text.split("\n")
    before = read_line(blank, read_line(first).after).after
    assert read_line(last, before).is_code
    assert kinds(text)[-1] == "code"


@settings(max_examples=50)
@given(texts)
def test_suggestions_are_hidden_where_the_judges_see_a_block(text):
    """In no quote, in no list item and in no other code block; all other text is shown."""
    hidden = suggestion_lines(text)
    kept = [line for number, line in enumerate(text.split("\n")) if number not in hidden]
    assert squeezed(readable(text)) == squeezed("".join(kept))


@settings(max_examples=60)
@given(texts.filter(lambda text: "suggestions" not in text))
def test_links_are_completed_outside_of_code(text):
    """Code is unchanged, in quotes and items too, and no link to a path is left."""
    completed = readable(text, SITE)
    assert code(completed) == code(readable(text))
    assert not [link for link in links(completed) if link.startswith("/") and not link.startswith("//")]
    assert completed.replace(SITE, "") == readable(text)


@settings(max_examples=50)
@given(as_models_write, limits)
def test_each_message_shows_what_the_text_shows(text, limit):
    """Code stays code, prose stays prose, nothing is lost, no block is left open."""
    messages = split_markdown(text, limit)
    assert [shown for message in messages for shown in characters(message)] == characters(text)
    assert all(0 < utf16_units(message) <= limit for message in messages)
    assert "open" in kinds(text) or not any("open" in kinds(message) for message in messages)


@settings(max_examples=60)
@given(texts, limits)
def test_nothing_is_lost_however_blocks_are_nested(text, limit):
    messages = split_markdown(text, limit)
    shown = [character for message in messages for character, _ in characters(message)]
    assert shown == [character for character, _ in characters(text)]
    assert all(0 < utf16_units(message) <= limit for message in messages)


@settings(max_examples=50)
@given(texts, limits, st.integers(1, 60))
def test_a_text_that_grows_is_split_as_a_complete_one(text, limit, size):
    """What was shown is not taken back, and the deltas of a message are its text."""
    splitter, shown, deltas = MarkdownSplitter(limit), {}, {}
    for at in range(0, len(text) + size, size):
        splitter.feed(text[at : at + size]) if at < len(text) else splitter.close()
        while edit := splitter.next_edit():
            deltas[edit.index] = deltas.get(edit.index, "") + edit.delta
            assert edit.text.startswith(deltas[edit.index])
            shown[edit.index] = edit.text
    assert [*deltas.values()] == [*shown.values()] == split_markdown(text, limit)


PAUSES = st.lists(st.booleans(), min_size=1, max_size=8)


@settings(max_examples=50)
@given(texts, limits, st.integers(1, 60), PAUSES)
def test_what_was_shown_is_never_taken_back(text, limit, size, pauses):
    """A pause shows a line before it is certain what the line is."""
    splitter, deltas = MarkdownSplitter(limit), {}
    for turn, at in enumerate(range(0, len(text) + size, size)):
        splitter.feed(text[at : at + size]) if at < len(text) else splitter.close()
        while edit := splitter.next_edit(pause=pauses[turn % len(pauses)]):
            deltas[edit.index] = deltas.get(edit.index, "") + edit.delta
            assert edit.text.startswith(deltas[edit.index])
            assert edit.text == deltas[edit.index] or not edit.final
            assert utf16_units(edit.text) <= limit


@settings(max_examples=50)
@given(texts, st.integers(1, 60), st.sampled_from([None, SITE]))
def test_a_stream_of_text_is_the_text(text, size, site):
    """However it is cut, with links completed or not."""
    growing = ReadableText(site)
    pieces = [growing.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join([*pieces, growing.end_part()]) == readable(text, site)


@settings(max_examples=50)
@given(texts)
def test_the_terminal_prints_complete_blocks(text):
    """Each block alone shows what it shows in the text."""
    blocks = Blocks()
    printed = [*blocks.feed(f"{text}\n"), blocks.tail]
    assert [shown for block in printed for shown in characters(block)] == characters(text)


PROSE = "Then the service reads the settings of the page. " * 40
FENCES = [
    "- ```sh\n  npm i\n  ```",
    "1. ```sh\n   npm i\n   ```",
    "- - ~~~\n    npm i\n    ~~~",
    "> - ```\n>   npm i\n>   ```",
]


@pytest.mark.parametrize(
    "block",
    [*FENCES, "10) ````\n    npm i\n    ````", "1. Run\n   ```sh\n   x\n    ```", "+\t```\n\tnpm i\n\t```"],
)
def test_a_code_block_on_a_markers_line_turns_nothing_around(block):
    """The text after it is prose, its suggestions are hidden, and its links are completed."""
    text = f"{block}\n\n{PROSE}\n\n[Log in](/login)\n\n```suggestions\n(A)[/a]\n```"
    shown, suggestions = split_suggestions(text)
    assert [one.path for one in suggestions] == ["/a"]
    assert [x for message in split_markdown(shown, 500) for x in characters(message)] == characters(shown)
    assert readable(text, SITE).endswith(f"[Log in]({SITE}/login)")


@pytest.mark.parametrize(
    "text",
    [
        "1. Write:\n\n    ```md\n    [Login](/login)\n    ```",
        "- Write:\n\n\t```md\n\t[Login](/login)\n\t```",
        "> ```md\n> [Login](/login)\n> ```",
        "Write:\n\n    [Login](/login)",
        "1. a\n\n       [Login](/login)",
        "Write `[Login]\n(/login)` and `two\nlines [Login](/login)`.",
        "``` [Login](/login)",
        "\\](/login)",
    ],
)
def test_links_in_code_are_untouched(text):
    assert readable(text, SITE) == text


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("[a](/docs/x)", "[a](https://acme.com/docs/x)"),
        ("[a](/docs)", "[a](https://acme.com/docs)"),
        ("[a](/docs#b) ![c](/docs?d)", "[a](https://acme.com/docs#b) ![c](https://acme.com/docs?d)"),
        ("[a](/docsearch/x)", "[a](https://acme.com/docs/docsearch/x)"),
        ("[a](/x) [b](</y z>)", "[a](https://acme.com/docs/x) [b](<https://acme.com/docs/y z>)"),
        ("[a](/docs`b`)", "[a](https://acme.com/docs/docs`b`)"),
        ("Press ` and [a](/b)\n\nc", "Press ` and [a](https://acme.com/docs/b)\n\nc"),
        ("\\` [a](/b) `", "\\` [a](https://acme.com/docs/b) `"),
        ("](/`x`", "](https://acme.com/docs/`x`"),
        ("](/](/b)", "](https://acme.com/docs/](https://acme.com/docs/b)"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_the_sites_path_stands_once_and_pieces_do_not_matter(text, completed, size):
    growing = ReadableText(SITE)
    pieces = [growing.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join([*pieces, growing.end_part()]) == completed


def test_sources_have_the_sites_path_once():
    """A path with the site's path, one without it, and the full URL are one page."""
    urls = ["/docs/login", "/login", "https://acme.com/docs/login", "login", "/docsearch"]
    parts = tuple(SourceUrlPart(source_id=url, url=url) for url in urls)
    found = sources_of(Message(id="m", role="assistant", parts=parts), site=SITE)
    assert [source.url for source in found] == [f"{SITE}/login", f"{SITE}/docsearch"]


@pytest.mark.parametrize(
    "word",
    [
        "[how to set it up](https://acme.com/a)",
        "**these bold words here**",
        "`some code in it`",
        "![a nice picture](/i.png)",
    ],
)
@pytest.mark.parametrize("before", range(150, 200, 3))
def test_a_cut_spares_links_bold_words_and_code(word, before):
    """A blank outside of them is taken where the last third of a message has one."""
    messages = split_markdown(f"{('word ' * 40)[:before]} {word} {'more ' * 40}", 200)
    assert any(word in message for message in messages)


@pytest.mark.parametrize("info", ["🐍" * 20, "\U0001d518" * 10, "🐍" * 21])
@pytest.mark.parametrize("limit", [200, 2000])
def test_the_limit_counts_utf16_units(info, limit):
    messages = split_markdown(f"```{info}\n" + "x = 1; " * 2000 + "\n```", limit)
    assert max(map(utf16_units, messages)) <= limit


@pytest.mark.parametrize(
    "mark", ["> ", ">", "- ", "1234567890) ", "123456789.    ", "> 123456789.    ", "-\t"]
)
@pytest.mark.parametrize("fence", ["```sh", "~" * 90, "`" * 40, "x"])
def test_deep_nesting_ends_and_loses_nothing(mark, fence):
    """20 quotes have room in the smallest message; of more, some marks are left out."""
    for depth in (5, 20, 24, 60):
        start = mark * depth
        inside = start if ">" in mark else " " * len(start.expandtabs(4))
        text = f"{start}{fence}\n" + "\n".join(inside + "code_word " * 30 for _ in range(5))
        messages = split_markdown(text, 200)
        assert max(map(utf16_units, messages)) <= 200
        assert squeezed("".join(messages)).replace(">", "").count("d") >= 300


def test_a_line_that_a_pause_showed_stays_as_it_was():
    """The start of a marker was shown as text, and the line is not taken back when it becomes an item."""
    text = "2. " + "word " * 36 + "\n   more words of the item\n1.  another item"
    for end in range(len(text) - 20, len(text)):
        splitter, deltas = MarkdownSplitter(200), {}
        for piece in (text[:end], text[end:], None):
            splitter.feed(piece) if piece else splitter.close()
            while edit := splitter.next_edit(pause=True):
                deltas[edit.index] = deltas.get(edit.index, "") + edit.delta
                assert edit.text == deltas[edit.index]


def test_a_long_word_before_marks_is_not_shown_twice():
    one, two = "word " * 12 + "a" * 100, "a" * 29 + " ```inline****"
    splitter, shown, deltas = MarkdownSplitter(200), {}, {}
    for piece in (one, two, None):
        splitter.feed(piece) if piece else splitter.close()
        while edit := splitter.next_edit():
            shown[edit.index] = edit.text
            deltas[edit.index] = deltas.get(edit.index, "") + edit.delta
    assert [*shown.values()] == [*deltas.values()] == split_markdown(one + two, 200)
    assert "".join(shown.values()).count("a") == 129


UNITS = (
    *"`~>*_#-+[]()!|<\\&7x \n\t本😀",
    *("](/", "`[", "[a](/b", "\\[", "`a``b```", "**a** ", "`a` ", "a b ", "- ", "> ", "1. ", "> - "),
    *("~~~\n", "```\n", "a\n\n", "- a\n", "> - 1. `a` [b](/c)\n", "\r\n"),
)


def lines_run(work: Callable[[], object]) -> int:
    """Return how many lines of Python *work* runs: a cost that is the same on every computer."""
    count = 0

    def note(frame: object, event: str, arg: object) -> object:
        nonlocal count
        count += event == "line"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def every_view(text: str, size: int, limit: int) -> None:
    """Make every view of a text that arrives in pieces of this size."""
    growing, links, splitter = ReadableText(), ReadableText(SITE), MarkdownSplitter(limit)
    for at in range(0, len(text), size):
        piece = text[at : at + size]
        growing.feed(piece)
        links.feed(piece)
        splitter.feed(piece)
        while splitter.next_edit():
            pass
    growing.end_part()
    links.end_part()
    split_markdown(text, limit)
    suggestions_of(Message(id="m", role="assistant", parts=(TextPart(text=text),)))


@pytest.mark.parametrize("unit", UNITS)
def test_a_character_costs_the_same_however_long_the_text(unit):
    """Eight times the text runs at most 8 x 1.2 as many lines."""
    small, large = (
        lines_run(lambda size=size: every_view((unit * size)[:size] + "x", 100, 200))
        for size in (1_000, 8_000)
    )
    assert large <= 8 * 1.2 * small


@pytest.mark.parametrize("unit", ["a word ", "**two words** and ", "[a link](/b) ", "`code` ", "本文 "])
def test_a_step_reads_what_is_new(unit):
    """The last steps of a paragraph that grows cost no more than earlier ones."""
    splitter, costs = MarkdownSplitter(10_000), []

    def steps(pieces: int) -> None:
        for _ in range(pieces):
            splitter.feed(unit)
            splitter.next_edit()

    for _ in range(6):
        costs.append(lines_run(lambda: steps(1_200 // len(unit))))
    assert max(costs[3:]) <= 1.2 * costs[2]


def test_a_look_without_new_text_costs_nothing():
    """The consumer of edits looks again after each edit."""
    splitter = MarkdownSplitter(4_100)
    splitter.feed("some words of a list\n- an item\n" * 50 + "the last line grows")
    assert splitter.next_edit()
    assert lines_run(splitter.next_edit) <= 30


@pytest.mark.parametrize("unit", ["`", "~", ">", "*", "[", "](/", "\\", "`[", "[a](/b", "- ", " "])
def test_the_cost_of_a_run_of_marks_is_linear(unit):
    """Eight times the text costs eight times as much. The bound leaves room for a busy computer."""

    def cost(size: int) -> float:
        text, start = (unit * size)[:size] + "x", time.process_time()
        readable(text, SITE)
        growing = ReadableText(SITE)
        for at in range(0, size, 50):
            growing.feed(text[at : at + 50])
        split_markdown(text, 1900)
        return time.process_time() - start

    cost(1000)
    assert min(cost(32_000) for _ in range(2)) <= 8 * 3 * min(cost(4_000) for _ in range(3)) + 0.05


TITLES = [
    "1. Intro.pdf",
    "2) b",
    "# a",
    "- a",
    "+ a",
    "---",
    "~~~ a",
    "a ~~b~~",
    "&copy; a",
    "&lt;b>",
    "AT&T",
    "&#65;",
]


@pytest.mark.parametrize("title", TITLES)
@pytest.mark.parametrize("kind", ["page", "document"])
def test_a_title_is_text(title, kind):
    """A title is one item of the list and shows the characters that the service sent."""
    page = SourceUrlPart(source_id="s", url="https://acme.com/a", title=title)
    document = SourceDocumentPart(source_id="d", media_type="application/pdf", title=title)
    answer = Message(id="m", role="assistant", parts=(page if kind == "page" else document,))
    _, _, items = extras_markdown(answer).partition("\n\n")
    tokens = JUDGE.parse(items)
    assert [token.type for token in tokens if token.nesting == 1] == [
        "bullet_list_open",
        "list_item_open",
        "paragraph_open",
    ]
    [line] = [token for token in tokens if token.type == "inline"]
    assert "".join(child.content for child in line.children) == title
    assert not any(child.type.startswith("s_") for child in line.children)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://x.y/?a=1&copy;=2", "https://x.y/?a=1&copy;=2"),
        ("https://x.y/?a=1&amp;b=2", "https://x.y/?a=1&amp;b=2"),
        ("https://x.y/?a=1&copy=2", "https://x.y/?a=1&copy=2"),
        (r"https://x.y/a\_b", "https://x.y/a%5C_b"),
    ],
)
def test_the_address_of_a_source_stays_the_same(url, target):
    """Markdown decodes no entity in the URL, and takes no backslash away."""
    page = SourceUrlPart(source_id="s", url=url, title="A page")
    _, _, items = extras_markdown(Message(id="m", role="assistant", parts=(page,))).partition("\n\n")
    assert [
        token.attrs["href"] for line in JUDGE.parse(items) for token in line.children or [] if token.attrs
    ] == [target]
