"""``docs`` prints the folder of the documentation pages, and the pages that contain a text."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Final

from .exit_status import DONE, TROUBLE
from .terminal import Terminal

PACKAGE: Final = Path(__file__).parents[1]
LINE: Final = re.compile(r"^- \[(?P<title>.+?)\]\((?P<path>[^)]+)\): (?P<words>.+)$", re.MULTILINE)
"""The line of a page in ``llms.txt``."""


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    """Print the folder and all pages. With a word, print each page that contains it, and how often."""
    pages = list(LINE.finditer((PACKAGE / "llms.txt").read_text(encoding="utf-8")))
    if options.word is None:
        terminal.write(f"{PACKAGE / 'docs'}\n{PACKAGE / 'llms.txt'}")
        for page in pages:
            terminal.write(f"{PACKAGE / page['path']}  {page['title']}: {page['words']}")
        return DONE
    word = options.word.lower()
    counts = [
        ((PACKAGE / page["path"]).read_text(encoding="utf-8").lower().count(word), page) for page in pages
    ]
    matches = [(count, page) for count, page in counts if count]
    for count, page in sorted(matches, key=lambda pair: (word not in pair[1]["title"].lower(), -pair[0])):
        terminal.write(f"{PACKAGE / page['path']}  {page['title']} ({count})")
    if not matches:
        terminal.note(f"no page contains {options.word!r}; the pages are in {PACKAGE / 'docs'}")
    return DONE if matches else TROUBLE
