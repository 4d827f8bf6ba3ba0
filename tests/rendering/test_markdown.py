"""Sources and suggestions as Markdown that any chat surface can show."""

from __future__ import annotations

import pytest

from mintlify_async.messages import Message, SourceDocumentPart, SourceUrlPart, TextPart, ToolPart
from mintlify_async.rendering.markdown import answer_markdown, extras_markdown

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
        "**Sources**\n\n- [Log in](https://docs.acme.com/login)\n  - [#form](https://docs.acme.com/login#form)\n\n"
        "**See also**\n\n- [SSO](https://docs.acme.com/guides/sso)\n- [Roles](https://acme.com/roles)"
    )


def test_nothing_below_is_nothing():
    """No empty lists; a reply's message may be None."""

    class Nothing:
        message = site = None

    assert answer_markdown(Nothing()) == extras_markdown(Nothing()) == ""
    assert extras_markdown(message("Hello.")) == ""
    assert answer_markdown(message("Hello.\n")) == "Hello."
    assert answer_markdown(message("")) == ""


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


def test_an_answer_knows_its_site():
    """The helpers take it from the answer; the argument wins."""

    class Known:
        message = message("```suggestions\n(SSO)[/sso]\n```", url("/a", "A"))
        site = SITE

    assert extras_markdown(Known()) == (
        "**Sources**\n\n- [A](https://docs.acme.com/a)\n\n**See also**\n\n- [SSO](https://docs.acme.com/sso)"
    )
    assert "https://other.com/sso" in answer_markdown(Known(), site="https://other.com")
