"""Sources and suggestions as Markdown that any chat surface can show."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mintlify_async.errors import ConfigurationError
from mintlify_async.messages import Message, SourceDocumentPart, SourceUrlPart, TextPart, ToolPart
from mintlify_async.rendering.markdown import WithoutSuggestions, answer_markdown, extras_markdown
from mintlify_async.rendering.sources import split_suggestions

SITE = "https://docs.acme.com"


def message(text: str, *parts) -> Message:
    return Message(id="m", role="assistant", parts=(*parts, TextPart(text=text)))


def url(address: str, title: str | None = None) -> SourceUrlPart:
    return SourceUrlPart(source_id="s", url=address, title=title)


def search(*results: dict) -> ToolPart:
    return ToolPart(
        tool_name="search", tool_call_id="c", state="output-available", output={"results": list(results)}
    )


def test_an_answer_with_everything_below():
    """Text, sources, suggestions: three blocks, whole addresses."""
    answer = message(
        "Press *Log in*.\n\n```suggestions\n(SSO)[/guides/sso]\n(Roles)[https://acme.com/roles]\n```",
        search({"path": "/login#form", "metadata": {"title": "Log in"}}),
    )
    assert answer_markdown(answer, site=SITE) == (
        "Press *Log in*.\n\n"
        "**Sources**\n\n- [Log in](https://docs.acme.com/login#form)\n\n"
        "**See also**\n\n- [SSO](https://docs.acme.com/guides/sso)\n- [Roles](https://acme.com/roles)"
    )


def test_nothing_below_is_nothing():
    """No empty lists."""
    assert extras_markdown(message("Hello.")) == ""
    assert answer_markdown(message("Hello.\n")) == "Hello."
    assert answer_markdown(message("")) == ""


def test_an_answer_that_has_not_begun_is_nothing():
    """A reply's message may be None."""

    class Nothing:
        message = None

    assert answer_markdown(Nothing()) == extras_markdown(Nothing()) == ""


def test_each_page_stands_once():
    """The search names a path, the source event its whole address: one page; anchors make no other."""
    answer = message(
        "",
        search(
            {"path": "/login#a"}, {"path": "/login#b"}, {"path": "/only-here", "metadata": {"title": "Here"}}
        ),
        url("https://docs.acme.com/login", "Log in"),
        url("https://docs.acme.com/login/", "Log in again"),
    )
    assert extras_markdown(answer) == (
        "**Sources**\n\n- [Log in](https://docs.acme.com/login)\n- [Here](/only-here)"
    )
    assert extras_markdown(answer, site=SITE) == (
        "**Sources**\n\n- [Log in](https://docs.acme.com/login#a)\n- [Here](https://docs.acme.com/only-here)"
    )


def test_documents_have_no_address():
    """They are named."""
    document = SourceDocumentPart(source_id="d", media_type="application/pdf", title="Terms_2026")
    assert extras_markdown(message("", document)) == "**Sources**\n\n- Terms\\_2026"


def test_the_words_above_can_be_chosen_or_left_out():
    """Another language; one list alone."""
    answer = message("```suggestions\n(SSO)[/sso]\n```", url("https://acme.com/a", "A"))
    assert extras_markdown(answer, sources="Quellen", suggestions=None) == (
        "**Quellen**\n\n- [A](https://acme.com/a)"
    )
    assert extras_markdown(answer, sources=None).startswith("**See also**")


@pytest.mark.parametrize(
    ("title", "address", "link"),
    [
        ("a [b] *c* _d_", "https://x/a", r"[a \[b\] \*c\* \_d\_](https://x/a)"),
        ("two\nlines", "https://x/a b(c)", "[two lines](https://x/a%20b%28c%29)"),
        ("<b>", "https://x/<s>", r"[\<b\>](https://x/%3Cs%3E)"),
        (None, "https://x/y", "[https://x/y](https://x/y)"),
    ],
)
def test_no_title_or_address_breaks_the_link(title, address, link):
    """What the service names is data, not markup."""
    assert extras_markdown(message("", url(address, title))) == f"**Sources**\n\n- {link}"


@pytest.mark.parametrize("site", ["docs.acme.com", "", 7])
def test_a_site_is_an_address(site):
    """A host alone would make relative links."""
    with pytest.raises(ConfigurationError, match="https://") as caught:
        extras_markdown(message(""), site=site)
    assert caught.value.field == "site"


lines = st.sampled_from(
    [
        "text",
        "```suggestions",
        "(A)[/a]",
        "```",
        "~~~",
        "```python",
        "",
        "`inline` code",
        "  ```suggestions",
        "``",
    ]
)


@given(
    text=st.lists(lines, max_size=12).map("\n".join),
    cuts=st.lists(st.integers(0, 120), max_size=8),
)
def test_the_growing_text_loses_what_the_whole_one_does(text, cuts):
    """However a text is cut, the filter keeps what split_suggestions keeps; an empty block goes, too."""
    assume("```suggestions" not in text or split_suggestions(text)[1])
    growing = WithoutSuggestions()
    places = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    kept = "".join(map(growing.feed, pieces)) + growing.close()
    assert kept.rstrip() == split_suggestions(text)[0].rstrip()


def filtered(pieces) -> list[str]:
    """Return what is shown after each of *pieces*, and at the end."""
    growing = WithoutSuggestions()
    return [*map(growing.feed, pieces), growing.close()]


@pytest.mark.parametrize(
    ("pieces", "out"),
    [
        (["  ", "``", "`", "py", " ", "`x", "y\n"], ["", "", "", "", "", "  ```py `x", "y\n", ""]),
        (["   ", " ", "```suggestions\n"], ["", "    ", "```suggestions\n", ""]),
        (["``", " ", "`suggestions"], ["", "`` ", "`suggestions", ""]),
        (
            ["```", "` ", "\r", "\n", "```", "\n", "````", "\nx"],
            ["", "", "", "```` \r\n", "```", "\n", "````", "\nx", ""],
        ),
        (["~~~ sugg", "estions \t", "\r", "\na\n`", "``\n~~", "~ \r\n", "b"], [""] * 6 + ["b", ""]),
        (["~~~", "suggestions", "`", "\n"], ["", "", "", "~~~suggestions`\n", ""]),
        (["```", "suggestions"], ["", "", ""]),
        (["```", "suggestion"], ["", "", "```suggestion"]),
    ],
)
def test_a_line_is_held_back_only_while_it_may_open_a_block(pieces, out):
    """Each piece is shown as soon as it is known to belong to the answer."""
    assert filtered(pieces) == out


LONG = 200_000
TABS = " \t"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"```a{' ' * LONG}b", id="blanks behind a fence"),
        pytest.param(f"~~~a{TABS * LONG}b", id="blanks behind tildes"),
        pytest.param(f"```a{'`' * LONG}b", id="marks behind a fence"),
        pytest.param("`" * LONG, id="marks"),
        pytest.param(f"```{'x' * LONG}", id="a long word"),
        pytest.param("x" * LONG, id="no fence"),
    ],
)
@pytest.mark.parametrize("before", ["", "```py\n"], ids=["", "in a block"])
def test_a_long_line_goes_out_whole(line, before):
    """At once, or one character at a time."""
    text = f"{before}{line}\nand more"
    assert "".join(filtered([text])) == text
    assert "".join(filtered(text)) == text


@pytest.mark.parametrize("before", ["", "```py\n", "```suggestions\n"])
def test_a_line_that_is_no_fence_is_not_kept(before):
    """What is kept of it does not grow with it."""
    growing = WithoutSuggestions()
    for piece in (before, "```", "a", "`", *["word "] * 1_000):
        growing.feed(piece)
    assert growing._line == []


@pytest.mark.parametrize("mark", ["```a", "~~~a", "```", "~~~", "  ```  "])
def test_a_line_held_back_is_not_read_again(mark):
    """Some characters stand for it, however long it is."""
    growing = WithoutSuggestions()
    for piece in (*mark, *[" "] * 1_000):
        growing.feed(piece)
        assert len(growing._beginning or "") < 8
