"""The pages of a documentation folder, read as the service reads them, and the search over them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mintlify_async
from mintlify_async.errors import ConfigurationError
from mintlify_async.testing import DocsIndex, LocalService

DOCS = Path(mintlify_async.__file__).parent / "docs"

COMPONENTS = """\
---
title: "Set up"
description: "Install it and set the keys."
---
import { Snippet } from "/snippets/one.mdx"

{/* a comment */}
You need `Mapping<str>` and a <Tooltip tip="a secret">key</Tooltip> \\{of yours\\}.

<Note>Keys stay on the server.</Note>

import them never.

<Steps>
  <Step title="Install">
    Install the package:

    ```python
    if a < b and c > d:
        print("<Note>")
    ```
  </Step>
</Steps>

<CardGroup cols={2}>
  <Card title="Next" href="/how-to/next" />
</CardGroup>

## Keys

# not a heading of the page's first level
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with an order of its own, a page that its navigation does not name, and a quote in a title."""
    for name, text in {
        "index.mdx": "---\ntitle: Home\n---\nWelcome home.",
        "how-to/next.mdx": "---\ntitle: Next\n---\nWhat to do next.",
        "how-to/index.mdx": "---\ntitle: How to\n---\nAll of them.",
        "set-up.mdx": COMPONENTS,
        "aside.md": "# Aside\nNot in the navigation.",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    nested = {"group": '5" screens', "pages": ["set-up", {"group": "Deep", "pages": ["/how-to/next"]}]}
    navigation = {"tabs": [{"tab": "Guide", "groups": [{"group": "First", "pages": ["index"]}, nested]}]}
    (tmp_path / "docs.json").write_text(json.dumps({"navigation": navigation}), encoding="utf-8")
    return tmp_path


def test_pages_come_in_the_order_of_the_navigation(folder):
    """Pages that it does not name come after the others; an index page has its folder's path."""
    assert list(DocsIndex.load(folder).pages) == ["/", "/set-up", "/how-to/next", "/aside", "/how-to"]


@pytest.mark.parametrize(
    "settings", [None, "{", "[]", '"text"', "{}", '{"navigation": {"pages": [1, null]}}']
)
def test_settings_that_say_nothing_do_no_harm(folder, settings):
    """The pages are then in the order of their names."""
    if settings is None:
        (folder / "docs.json").unlink()
    else:
        (folder / "docs.json").write_text(settings, encoding="utf-8")
    assert list(DocsIndex.load(folder).pages) == ["/aside", "/how-to", "/how-to/next", "/", "/set-up"]


def test_components_leave_their_words(folder):
    """No tag, import or comment is in a section; titles stay, and code stays as it is."""
    index = DocsIndex.load(folder)
    first = index.search("set up install keys", 5)[0]
    assert first.path == "/set-up"
    assert first.content == (
        "You need `Mapping<str>` and a key {of yours}.\n\nKeys stay on the server.\n\n"
        "import them never.\n\n**Install**\n\n"
        'Install the package:\n\n```python\nif a < b and c > d:\n    print("<Note>")\n```\n\n'
        "[Next](/how-to/next)"
    )
    assert index.pages["/set-up"].description == "Install it and set the keys."


async def test_answer_shows_no_tag(folder):
    """Its sources are whole addresses: the site's and the path."""
    async with LocalService(docs=folder) as service, service.session() as session:
        answer = await session.ask("How do I install it?")
    assert "<Step" not in answer.text
    assert "**Install**" in answer.text
    assert [source.url for source in answer.sources] == ["https://docs.example/set-up"]


async def test_sections_are_shown_by_their_headings(tmp_path):
    """In the text and in the sources; a section that begins its page is named once."""
    (tmp_path / "login.mdx").write_text("---\ntitle: Log in\n---\nLog in.\n## 2. By SSO\nLog in.\n", "utf-8")
    async with LocalService(docs=tmp_path) as service, service.session() as session:
        answer = await session.ask("How do I log in?")
    assert "**[Log in](/login)**\n\nLog in." in answer.text
    assert "**2. By SSO** — [Log in](/login#2-by-sso)\n\nLog in." in answer.text
    (page,) = answer.sources
    assert (page.title, [section.title for section in page.sections]) == ("Log in", ["2. By SSO"])


def paths(folder, question, limit=5):
    return [section.path for section in DocsIndex.load(folder).search(question, limit)]


def test_headings_titles_and_descriptions_are_found(tmp_path):
    """A heading counts most; what stands below it counts nothing; a rare word tells more."""
    (tmp_path / "a.mdx").write_text("---\ntitle: All calls\n---\nlimits\n## Quota\nlimits limits\n", "utf-8")
    about = '---\ntitle: "Quotas"\ndescription: "Stay below the rate limits."\n---\nUse a quota.\n'
    (tmp_path / "z.mdx").write_text(about, encoding="utf-8")
    assert paths(tmp_path, "How do I stay below the rate limits?") == ["/z"]
    assert paths(tmp_path, "What is a quota?") == ["/z", "/a#quota"]


def test_to_log_in_is_not_about_logs(tmp_path):
    """It takes a key; and a page about logs is found by its own name."""
    (tmp_path / "a.md").write_text("# Logs\nWhat is logged.\n", encoding="utf-8")
    (tmp_path / "b.md").write_text("# Keys and settings\nWhere keys go.\n", encoding="utf-8")
    assert paths(tmp_path, "How do I log in?") == paths(tmp_path, "Signing in") == ["/b"]
    assert paths(tmp_path, "Which logs are there in it?") == paths(tmp_path, "logging") == ["/a"]


@pytest.mark.parametrize(
    ("question", "path"),
    [
        ("How do I log in?", "/#how-to-log-in"),
        ("What is a follow-up?", "/explanation/follow-up-turns"),
        ("How do I send a follow-up to a job?", "/how-to/jobs#send-a-follow-up-to-a-job"),
        (
            "And then? How do I send a follow-up to a job?",
            "/how-to/jobs#send-a-follow-up-to-a-job",
        ),
        ("How do I continue a thread?", "/explanation/threads-and-keys#continue-a-thread"),
        ("How do I wait for a job?", "/how-to/jobs#create-an-agent-job-and-wait-for-it"),
        ("How do I install it?", "/#install"),
    ],
)
def test_the_questions_of_our_pages_find_theirs(question, path):
    """Those of the README, the first page and the tutorial."""
    assert paths(DOCS, question)[0] == path


def test_one_page_does_not_fill_an_answer(tmp_path):
    """At most three sections of a page are found."""
    (tmp_path / "long.md").write_text("".join(f"# Key {n}\nkey\n" for n in range(9)), encoding="utf-8")
    (tmp_path / "short.md").write_text("# Other keys\nThe key is elsewhere.\n", encoding="utf-8")
    found = [one.page.path for one in DocsIndex.load(tmp_path).search("key", 5)]
    assert sorted(found) == ["/long"] * 3 + ["/short"]


def test_nothing_is_read_before_it_is_needed(folder, monkeypatch):
    """Thousands of tests start a service, and most of them never ask."""
    read = []
    monkeypatch.setattr("mintlify_async.testing.docs_index.read_page", lambda *place: read.append(place))
    LocalService(docs=folder)
    assert not read


@pytest.mark.parametrize("make", [DocsIndex.load, lambda folder: LocalService(docs=folder)])
def test_a_folder_without_pages_is_said_at_once(tmp_path, make):
    """The argument is named."""
    with pytest.raises(ConfigurationError) as caught:
        make(tmp_path)
    assert caught.value.field == "docs"
