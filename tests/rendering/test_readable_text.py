"""The text of an answer as people read it: the same whole and growing, wherever it is cut."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mintlify_async.messages import Message, ReasoningPart, StepStartPart, TextPart
from mintlify_async.rendering.readable_text import ReadableText, text_of
from mintlify_async.rendering.suggestions import Suggestion, split_suggestions, suggestions_of


@pytest.mark.parametrize(
    ("text", "rest", "suggestions"),
    [
        ("no block", "no block", []),
        ("", "", []),
        (
            "a\n\n```suggestions\n(T)[/p]\n(U (x))[https://e.org/]\n```\n",
            "a",
            [("T", "/p"), ("U (x)", "https://e.org/")],
        ),
        ("a\n```suggestions\n(T)[/p]", "a", [("T", "/p")]),
        ("a\n```suggestions\n- (T)[/p]\n[U](/q)\nwords\n\n```\nb", "a\n\nb", [("T", "/p"), ("U", "/q")]),
        ("a\r\n```suggestions\r\n(T)[/p]\r\n```\r\n", "a", [("T", "/p")]),
        ("```suggestions\n(T)[/p]\n```", "", [("T", "/p")]),
        ("````md\n```suggestions\n(T)[/p]\n```\n````", "````md\n```suggestions\n(T)[/p]\n```\n````", []),
        ("```py\n(T)[/p]\n```", "```py\n(T)[/p]\n```", []),
        ("say ```suggestions\n(T)[/p]\n```", "say ```suggestions\n(T)[/p]\n```", []),
        ("``` \t suggestions \t\r\n*\t(T)[/p] \t\r\n``` \t\r\nb", "b", [("T", "/p")]),
        ("~~~suggestions\n(T)[a)[b]\n(T)[/p)[]\n~~~", "", [("T)[a", "b"), ("T", "/p)[")]),
        ("```suggestions\n()[/p]\n(T)[]\n(T)[a b]\n(T)[a]b]\n(T)(a)\n[T](a\u2003)\n-(T)[/p]\n(T", "", []),
        pytest.param(f"```a{' ' * 100_000}b\n(T)[/p]", f"```a{' ' * 100_000}b\n(T)[/p]", [], id="blanks"),
        pytest.param(f"```suggestions\n(T{')[a' * 100_000} ", "", [], id="openings"),
        pytest.param(f"```suggestions\n[T{'](a' * 100_000} ", "", [], id="openings the right way"),
    ],
)
def test_suggestions_are_split_off(text: str, rest: str, suggestions: list[tuple[str, str]]) -> None:
    """The fenced block goes, its links come back the right way round; other blocks stay."""
    assert split_suggestions(text) == (
        rest,
        [Suggestion(title=title, path=path) for title, path in suggestions],
    )


# Independent of the package: line by line, with expressions that may take any time.
SPACE = " \t\r\n"


def expected(parts: list[str]) -> str:
    """Return what people read of these text parts."""
    segments = []
    for part in parts:
        fence, hiding, segment = "", False, ""
        for line in re.findall(r"[^\n]*\n|[^\n]+", part):
            found = re.match(r" {0,3}(`{3,}|~{3,})[ \t]*(.*?)[ \t\r]*\n?\Z", line)
            hidden = hiding
            if fence and found and found[1].startswith(fence) and not found[2]:
                fence, hiding = "", False
            elif not fence and found and not (found[1][0] == "`" and "`" in found[2]):
                fence, hiding = found[1], found[2] == "suggestions"
                hidden = hiding
            if hidden:
                segments.append(segment)
                segment = ""
            else:
                segment += line
        segments.append(segment)
    kept = [segment for segment in segments if segment.strip(SPACE)]
    trimmed = [re.sub(r"\A[ \t\r\n]*\n", "", segment) for segment in kept]
    return "\n\n".join(re.sub(r"[\r\n][ \t\r\n]*\Z", "", segment) for segment in trimmed)


FENCES = ["```suggestions", "  ```suggestions", "```sugg", "```python", "```", "~~~", "``"]
BLANK = ["", "", " ", "\r"]
WORDS = [
    "text",
    "text  ",
    "    code",
    "(A)[/a]",
    "`inline` code",
    "é😀",
    "[a](/b) `[c](/d)`",
    "![x](//cdn) ](/",
]
lines = st.sampled_from([*FENCES, *BLANK, *WORDS])
parts_of_text = st.lists(st.lists(lines, max_size=8).map("\n".join), max_size=4)


@pytest.mark.parametrize("site", [None, "https://docs.example/base"])
@given(parts=parts_of_text, cuts=st.lists(st.integers(0, 120), max_size=12))
@example(parts=["Let me look that up.", "## Log in"], cuts=[])
@example(parts=["Text.\n", "```suggestions\n(A)[/a]\n```"], cuts=[9])
def test_people_read_the_same_wherever_a_text_is_cut(site, parts, cuts):
    """Parts are separated, suggestions are hidden, and no blank line stands at an end: whole and growing.

    With a site, its address is all that is added.
    """
    message = Message(id="m", role="assistant", parts=tuple(TextPart(text=text) for text in parts))
    growing, shown = ReadableText(site), []
    for part in parts:
        places = sorted({0, *(cut for cut in cuts if cut < len(part)), len(part)})
        for a, b in itertools.pairwise(places):
            shown.append(growing.feed(part[a:b]))
        shown.append(growing.end_part())
    assert "".join(shown) == text_of(message, site=site)
    assert "".join(shown).replace(site or "\0", "") == expected(parts)


@pytest.mark.parametrize("site", [None, "https://docs.example/base"])
@given(text=st.lists(lines, max_size=10).map("\n".join))
def test_what_is_held_back_does_not_depend_on_the_cuts(site, text):
    """After each character the same is shown as if the text had come at once up to there."""
    growing, shown = ReadableText(site), ""
    for end, character in enumerate(text, 1):
        shown += growing.feed(character)
        assert shown == ReadableText(site).feed(text[:end])


SITE = "https://docs.example/base"
LINKS = [
    ("See [Log in](/login#sso).", f"See [Log in]({SITE}/login#sso)."),
    ("![A picture](/images/a.png) [b](/b)", f"![A picture]({SITE}/images/a.png) [b]({SITE}/b)"),
    ("[home](/)", f"[home]({SITE}/)"),
    ("[there](https://acme.com/x) [cdn](//cdn.acme.com) [here](#anchor) [near](page)", None),
    ("Write `[Log in](/login)` or ``a ` [b](/c)`` there.", None),
    ("```md\n[Log in](/login)\n```", None),
    ("```md\n[a](/b)\n```\n[c](/d)", f"```md\n[a](/b)\n```\n[c]({SITE}/d)"),
    ("a `b\n[c](/d)", f"a `b\n[c]({SITE}/d)"),
    ("it ends with ](/", f"it ends with ]({SITE}/"),
]


@pytest.mark.parametrize(("text", "whole"), LINKS)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_links_to_paths_are_whole_outside_of_code(text, whole, step):
    """With the documentation's address, however the text is cut; an address that is whole stays."""
    growing = ReadableText(f"{SITE}/")
    shown = [growing.feed(text[at : at + step]) for at in range(0, len(text), step)]
    assert "".join([*shown, growing.end_part()]) == (whole or text)


def test_the_text_of_a_message():
    """Its text parts alone, as they stand in the message; reasoning and steps are no text."""
    parts = (
        StepStartPart(),
        ReasoningPart(text="hm"),
        TextPart(text="Let me look that up."),
        StepStartPart(),
        TextPart(text="## Log in\n\nPress it.\n\n```suggestions\n(SSO)[/sso]\n(Roles)[/roles]\n```\n"),
        TextPart(text="```suggestions\n(SSO again)[/sso]\n(Keys)[https://acme.com/keys]\n"),
    )
    message = Message(id="m", role="assistant", parts=parts)
    assert text_of(message) == "Let me look that up.\n\n## Log in\n\nPress it."
    pages = [("SSO", "/sso"), ("Roles", "/roles"), ("Keys", "https://acme.com/keys")]
    assert [(one.title, one.path) for one in suggestions_of(message)] == pages
    whole = [one.path for one in suggestions_of(message, site="https://docs.acme.com/")]
    assert whole == ["https://docs.acme.com/sso", "https://docs.acme.com/roles", "https://acme.com/keys"]


def filtered(pieces) -> list[str]:
    """Return what is shown after each of *pieces*, and at the end."""
    growing = ReadableText()
    return [*map(growing.feed, pieces), growing.end_part()]


@pytest.mark.parametrize(
    ("pieces", "out"),
    [
        (["  ", "``", "`", "py", " ", "`x", "y\n"], ["", "", "", "  ```py", " ", "`x", "y", ""]),
        (["   ", " ", "```suggestions\n"], ["", "", "    ```suggestions", ""]),
        (["``", " ", "`suggestions"], ["", "`` ", "`suggestions", ""]),
        (
            ["```", "` ", "\r", "\n", "```", "\n", "````", "\nx"],
            ["", "", "", "```` ", "\r\n```", "", "\n````", "\nx", ""],
        ),
        (["~~~ sugg", "estions \t", "\r", "\na\n`", "``\n~~", "~ \r\n", "b"], [""] * 6 + ["b", ""]),
        (["~~~", "suggestions", "`", "\n"], ["", "", "~~~suggestions`", "", ""]),
        (["```", "suggestions"], ["", "", ""]),
        (["```", "suggestion"], ["", "", "```suggestion"]),
    ],
)
def test_a_line_is_held_back_only_while_it_may_open_a_block(pieces, out):
    """Each piece is shown as soon as it is known to belong to the answer."""
    assert filtered(pieces) == out


@pytest.mark.parametrize("before", ["", "```py\n", "```suggestions\n"])
@pytest.mark.parametrize("unit", ["word ", "`", "~~~a ", "``` ", "```x", "~~~a\t \t"])
def test_a_long_line_is_not_held_back(before, unit):
    """Some hundred characters stand for it, however long it is; it goes out whole, or is hidden whole."""
    growing = ReadableText()
    shown = [growing.feed(before), *(growing.feed(unit) for _ in range(1_000))]
    assert sum(len(value) for value in vars(growing).values() if isinstance(value, str)) < 500
    whole = "" if "suggestions" in before else before + unit * 1_000
    assert "".join([*shown, growing.end_part()]) == whole
    assert "".join(filtered([before + unit * 1_000])) == whole
