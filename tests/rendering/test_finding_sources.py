"""The sources of an answer, each page once, and what stands below it as Markdown."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mintlify_async.errors import ConfigurationError
from mintlify_async.messages import Message, SourceDocumentPart, SourceUrlPart, TextPart, ToolPart
from mintlify_async.rendering.answer_as_markdown import answer_markdown, extras_markdown
from mintlify_async.rendering.finding_sources import AnswerSource, sources_of, whole_address

SITE = "https://docs.acme.com"


def message(*parts, text: str = "") -> Message:
    return Message(id="m", role="assistant", parts=(*parts, TextPart(text=text)))


def url(address: str, title: str | None = None, id: str = "s") -> SourceUrlPart:
    return SourceUrlPart(source_id=id, url=address, title=title)


def tool(output: object, name: str = "search") -> ToolPart:
    return ToolPart(tool_name=name, tool_call_id="c", state="output-available", output=output)


def search(*results: object) -> ToolPart:
    return tool({"results": list(results)})


def test_sources_in_order_each_once():
    """They come from parts and from the search tool; a title that comes late is kept."""
    found = search(
        {"path": "/a", "metadata": {"title": "A"}, "content": "…"},
        {"path": "/b"},
        {"path": "/a"},
        {"path": ""},
        "noise",
        {"path": 5},
        {"metadata": {"title": "no path"}},
    )
    document = SourceDocumentPart(source_id="s3", media_type="text/plain", title="D", filename="d.txt")
    other = tool({"results": [{"path": "/other"}]}, name="other")
    answer = message(found, url("/b", "B"), url("https://example.com", id="s2"), document, document, other)
    assert sources_of(answer) == [
        AnswerSource(type="page", url="/a", title="A"),
        AnswerSource(type="page", url="/b", title="B"),
        AnswerSource(type="url", url="https://example.com", id="s2"),
        AnswerSource(type="document", title="D", id="s3", filename="d.txt", media_type="text/plain"),
    ]


@pytest.mark.parametrize("output", [None, "text", [], {"results": None}, {"results": {"path": "/a"}}])
def test_a_search_without_results_has_no_sources(output):
    """Whatever a tool gives, looking for sources does not fail."""
    assert sources_of(message(tool(output))) == []


FORMS = ["/login", "login", "/login/", f"{SITE}/login", f"{SITE}/login/", "http://DOCS.acme.com/login"]


@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize("second", FORMS)
@pytest.mark.parametrize("site", [None, SITE, SITE + "/"])
def test_a_page_is_one_source_in_whatever_form_it_came(first, second, site):
    """A path, or a whole address: one page, with its title, and its whole address where one is known."""
    found = sources_of(message(search({"path": first}), url(second, "Log in")), site=site)
    assert [source.title for source in found] == ["Log in"]
    if site is not None or "://" in first + second:
        assert found[0].url.lower().rstrip("/").partition("://")[2] == "docs.acme.com/login"


def test_the_sections_of_a_page_stand_under_it():
    """Each once, with its title or else its anchor; the page has no anchor."""
    answer = message(
        search(
            {"path": "/login#sso", "metadata": {"title": "By SSO"}},
            {"path": "/login#form", "metadata": {"title": "Log in"}},
            {"path": "/keys#new"},
        ),
        url("https://docs.acme.com/login", "Log in"),
        url("https://docs.acme.com/login#sso", "SSO"),
    )
    login, keys = sources_of(answer)
    assert (login.title, login.url) == ("Log in", "https://docs.acme.com/login")
    assert [(one.title, one.url) for one in login.sections] == [
        ("By SSO", "https://docs.acme.com/login#sso"),
        ("#form", "https://docs.acme.com/login#form"),
    ]
    assert (keys.title, keys.url) == (None, "/keys")
    assert [(one.title, one.url) for one in keys.sections] == [("#new", "/keys#new")]
    assert pickle.loads(pickle.dumps(login)) == login
    assert json.loads(json.dumps(login.to_wire()))["sections"][1]["title"] == "#form"


def test_pages_of_other_sites_stay_apart_when_the_site_is_known():
    """The same path on two hosts is two pages; without the site, a path is the first of them."""
    answer = message(search({"path": "/a"}), url("https://other.com/a", "Other"), url("https://third.com/a"))
    assert [source.url for source in sources_of(answer)] == ["https://other.com/a", "https://third.com/a"]
    assert [source.url for source in sources_of(answer, site=SITE)] == [
        "https://docs.acme.com/a",
        "https://other.com/a",
        "https://third.com/a",
    ]


@given(st.lists(st.text("/#?:.ahtps[]@ ", max_size=12), max_size=5), st.sampled_from([None, SITE]))
def test_no_address_is_an_error(addresses, site):
    """What the service sends is data; a second look changes nothing."""
    parts = [*map(url, addresses), search(*({"path": address} for address in addresses))]
    found = sources_of(message(*parts), site=site)
    assert len(found) <= len(addresses)


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        ("/a", "https://docs.acme.com/v2/a"),
        ("a#b", "https://docs.acme.com/v2/a#b"),
        ("/a:b", "https://docs.acme.com/v2/a:b"),
        ("//evil.com/a", "https://docs.acme.com/v2/evil.com/a"),
        ("https://other.com/a", "https://other.com/a"),
        ("mailto:a@b", "mailto:a@b"),
    ],
)
def test_a_path_is_joined_to_the_site(path, whole):
    """Below the site's own path; nothing that begins with a scheme is changed."""
    assert whole_address(path, "https://docs.acme.com/v2/") == whole
    assert whole_address(path, None) == path


NO_SITE = [
    "",
    "docs.acme.com",
    "https://",
    "//a.b",
    "ftp://a.b",
    "https://a b",
    "https://a.b?x",
    "https://a.b#x",
    7,
]


@pytest.mark.parametrize("site", [*NO_SITE, "https://user:password@a.b"])
def test_what_is_no_whole_address_is_refused(site):
    """The error names the field and an example, and repeats no password."""
    with pytest.raises(ConfigurationError, match=r"such as https://docs\.acme\.com") as caught:
        sources_of(message(), site=site)
    assert caught.value.field == "site"
    assert "password" not in str(caught.value)


# As Markdown --------------------------------------------------------------------------------------


def test_an_answer_with_everything_below():
    """Text, sources, suggestions: three blocks, whole addresses."""
    answer = message(
        search({"path": "/login#form", "metadata": {"title": "Log in"}}),
        text="Press *Log in*.\n\n```suggestions\n(SSO)[/guides/sso]\n(Roles)[https://acme.com/roles]\n```",
    )
    assert answer_markdown(answer, site=SITE) == (
        "Press *Log in*.\n\n"
        "**Sources**\n\n- [Log in](https://docs.acme.com/login)\n  - [#form](https://docs.acme.com/login#form)\n\n"
        "**See also**\n\n- [SSO](https://docs.acme.com/guides/sso)\n- [Roles](https://acme.com/roles)"
    )


def test_nothing_below_is_nothing():
    """No empty lists; a reply's message may be None."""
    nothing = SimpleNamespace(message=None, site=None)
    assert answer_markdown(nothing) == extras_markdown(nothing) == ""
    assert extras_markdown(message(text="Hello.")) == ""
    assert answer_markdown(message(text="Hello.\n")) == "Hello."
    assert answer_markdown(message()) == ""


def test_documents_have_no_address():
    """They are named."""
    document = SourceDocumentPart(source_id="d", media_type="application/pdf", title="Terms_2026")
    assert extras_markdown(message(document)) == "**Sources**\n\n- Terms\\_2026"


def test_the_words_above_can_be_chosen_or_left_out():
    """Another language; one list alone."""
    answer = message(url("https://acme.com/a", "A"), text="```suggestions\n(SSO)[/sso]\n```")
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
    assert extras_markdown(message(url(address, title))) == f"**Sources**\n\n- {link}"


def test_an_answer_knows_its_site():
    """The helpers take it from the answer; the argument wins."""
    linked = message(url("/a", "A"), text="```suggestions\n(SSO)[/sso]\n```")
    known = SimpleNamespace(message=linked, site=SITE)
    assert extras_markdown(known) == (
        "**Sources**\n\n- [A](https://docs.acme.com/a)\n\n**See also**\n\n- [SSO](https://docs.acme.com/sso)"
    )
    assert "https://other.com/sso" in answer_markdown(known, site="https://other.com")
