"""The HTML of the Telegram example has only what Telegram's documentation of its HTML style lists."""

from __future__ import annotations

import importlib
import re
from html.parser import HTMLParser
from random import Random

import pytest

from tests.support import markdown_texts

pytestmark = pytest.mark.real
pytest.importorskip("aiogram", reason="aiogram is not installed")
telegram_html = importlib.import_module("telegram_bot").telegram_html

TAGS = {"b", "strong", "i", "em", "u", "ins", "s", "strike", "del", "a", "code", "pre", "blockquote"}
ENTITY = re.compile(r"&(?!(?:lt|gt|amp|quot|#\d+|#x[0-9a-f]+);)")


class Telegram(HTMLParser):
    """Checks that each tag is one of Telegram's, is closed, and stands where it may."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS
        names = {"a": ["href"], "code": ["class"] if self.open[-1:] == ["pre"] else []}.get(tag, [])
        assert [name for name, _ in attrs] == names
        assert tag != "blockquote" or tag not in self.open, "quotes cannot be nested"
        assert tag != "a" or tag not in self.open
        assert not {"code", "pre"} & {*self.open} or (tag == "code" and self.open[-1] == "pre")
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read(html: str) -> str:
    """Check *html*, and return the text that Telegram shows."""
    assert not ENTITY.search(html)
    checker = Telegram()
    checker.feed(html)
    checker.close()
    assert not checker.open
    assert checker.text.strip()
    return checker.text


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("Run curl \\\n  -X POST", "Run curl \n-X POST"),
        ("**Run \\\nit** [now \\\nor](/x)", "Run \nit now \nor"),
        ("two  \nlines", "two\nlines"),
        ("- ```sh\n  npm i\n  ```\n\nThen.", "• npm i\n\n\nThen."),
        ("1. a\n2. b\n   - c\n   - d\n\n10) e", "1. a\n2. b\n  • c\n  • d\n\n10) e"),
        ("-\n- \n- a", "• \n• \n• a"),
        ("> a\n> > b\n>\n> c\n\nd", "a\nb\nc\n\nd"),
        ("# A **b**\n\ntext", "A b\n\ntext"),
        ("Title\n=====\n***\n\n![a `b`](/i.png) [![c](/i)](/d)", "Title\n⎯⎯⎯\n\na `b` c"),
        ("![](/i.png)", "🖼"),
        ("<b>x</b> <br> &nbsp; &copy; <https://a.b?c&d>", "<b>x</b> <br> \xa0 © https://a.b?c&d"),
        ("    code <b>\n\n~~gone~~ `<i>`", "code <b>\n\n\ngone <i>"),
        ('```a"b c\n<x>\n```', "<x>"),
        ('[a](</x"y> "title")', "a"),
        ("[r]\n\n[r]: /x 'title'", "r"),
        ("**", "**"),
        ("[](/x)", "[](/x)"),
    ],
)
def test_every_construct_of_commonmark_is_valid(markdown, text):
    assert read(telegram_html(markdown)).strip() == text


@pytest.mark.parametrize("kind", ["realistic", "document", "hostile"])
def test_any_text_is_valid_wherever_it_is_cut(kind):
    """A growing answer is often incomplete."""
    for seed in range(40):
        text = getattr(markdown_texts, kind)(Random(f"{kind}{seed}"))
        for end in range(1, len(text), 41):
            if text[:end].strip():
                html = telegram_html(text[:end])
                read(html)
                assert "".join(re.sub("<[^>]+>", "", html).split())
