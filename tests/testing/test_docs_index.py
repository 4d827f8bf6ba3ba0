"""The sections of a documentation folder, and the search over their headings."""

from __future__ import annotations

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

    ```python skip="it is an example"
    # not a heading
    if a < b and c > d:
        print("<Note>")
    ```
  </Step>
</Steps>

## Keys

Next.
"""


def search(folder, question, limit=5):
    return DocsIndex.load(folder).search(question, limit)


def paths(folder, question):
    return [section.path for section in search(folder, question)]


def test_sections_have_text_without_components(tmp_path):
    """No tag, import or comment stays. The titles of components stay, and code stays as it is."""
    (tmp_path / "how-to").mkdir()
    (tmp_path / "how-to" / "index.mdx").write_text(COMPONENTS, encoding="utf-8")
    second, first = search(tmp_path, "set up install keys")
    assert (first.path, second.path) == ("/how-to#keys", "/how-to")
    assert (first.content, second.heading) == ("Next.", "Set up")
    assert second.content == (
        "You need `Mapping<str>` and a key {of yours}.\n\nKeys stay on the server.\n\n"
        "import them never.\n\n**Install**\n\nInstall the package:\n\n"
        '```python\n# not a heading\nif a < b and c > d:\n    print("<Note>")\n```'
    )


PLAIN = """\
# Set up

Install it and set the keys.

See [how to log in](../login.md#by-sso---and-keys), [here](#keys), [the start](../index.md), [x](https://a.b/c.md).
Write `[x](../login.md)`. ![A picture](../images/a.png)

## Keys

Next.
"""


def test_links_to_files_become_paths_on_the_site(tmp_path):
    """Those in code stay. The sentence below the title is the description, and is found."""
    (tmp_path / "how-to").mkdir()
    (tmp_path / "how-to" / "setup.md").write_text(PLAIN, encoding="utf-8")
    (first,) = search(tmp_path, "set up install", 1)
    assert (first.path, first.title) == ("/how-to/setup", "Set up")
    assert first.description.strip() == "Install it and set the keys."
    assert first.content == (
        "Install it and set the keys.\n\n"
        "See [how to log in](/login#by-sso---and-keys), [here](/how-to/setup#keys),"
        " [the start](/), [x](https://a.b/c.md).\nWrite `[x](../login.md)`. ![A picture](/images/a.png)"
    )


async def test_sections_are_shown_by_their_headings(tmp_path):
    """The text and the sources have them. The page's first section has the page's name once."""
    (tmp_path / "login.mdx").write_text("---\ntitle: Log in\n---\nLog in.\n## 2. By SSO\nLog in.\n", "utf-8")
    async with LocalService(docs=tmp_path) as service, service.session() as session:
        answer = await session.ask("How do I log in?")
    assert "**[Log in](/login)**\n\nLog in." in answer.text
    assert "**2. By SSO** — [Log in](/login#2-by-sso)\n\nLog in." in answer.text
    (page,) = answer.sources
    assert (page.title, page.url) == ("Log in", "https://docs.example/login")
    assert [section.title for section in page.sections] == ["2. By SSO"]


def test_headings_titles_and_descriptions_are_found(tmp_path):
    """A heading counts most. The text below it does not count. A rare word counts more."""
    (tmp_path / "a.mdx").write_text("---\ntitle: All calls\n---\nlimits\n## Quota\nlimits limits\n", "utf-8")
    about = '---\ntitle: "Quotas"\ndescription: "Stay below the rate limits."\n---\nUse a quota.\n'
    (tmp_path / "z.mdx").write_text(about, encoding="utf-8")
    assert paths(tmp_path, "How do I stay below the rate limits?") == ["/z"]
    assert paths(tmp_path, "What is a quota?") == ["/z", "/a#quota"]


def test_a_word_of_the_title_counts_more_than_one_of_the_description(tmp_path):
    """The sections of a page about quotas come before those of a page that mentions them."""
    (tmp_path / "a.mdx").write_text("---\ntitle: Calls\ndescription: A quota.\n---\n## One\nText.\n", "utf-8")
    (tmp_path / "z.mdx").write_text("---\ntitle: Quota\ndescription: Calls.\n---\n## Two\nText.\n", "utf-8")
    assert paths(tmp_path, "quota") == ["/z#two", "/a#one"]
    assert paths(tmp_path, "calls") == ["/a#one", "/z#two"]


def test_to_log_in_is_not_about_logs(tmp_path):
    """It takes a key. A page about logs is found by its own name."""
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
        ("How do I continue a thread?", "/explanation/threads-and-keys#continue-a-thread"),
        ("How do I wait for a job?", "/how-to/jobs#create-an-agent-job-and-wait-for-it"),
        ("How do I create an agent job?", "/how-to/jobs#create-an-agent-job-and-wait-for-it"),
        ("How do I install it?", "/#install"),
    ],
)
def test_the_questions_of_our_pages_find_theirs(question, path):
    """The questions of the README, the first page, the tutorial and the command line."""
    assert paths(DOCS, question)[0] == path


def test_one_page_does_not_fill_an_answer(tmp_path):
    """At most three sections of a page are found."""
    (tmp_path / "long.md").write_text("".join(f"# Key {n}\nkey\n" for n in range(9)), encoding="utf-8")
    (tmp_path / "short.md").write_text("# Other keys\nThe key is elsewhere.\n", encoding="utf-8")
    assert sorted(one.page for one in search(tmp_path, "key")) == ["/long"] * 3 + ["/short"]


def test_a_folder_without_pages_is_refused(tmp_path):
    """The error names the argument."""
    with pytest.raises(ConfigurationError) as caught:
        LocalService(docs=tmp_path)
    assert caught.value.field == "docs"
