"""``python write_blocks.py FOLDER`` writes the Python of README and pages as modules, for type checkers."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from page_blocks import ROOT, Block, blocks_of

import mintlify_async

CHECKED = ("fragment", "script")
"""Tests are not: people write them without annotations. Examples are checked where they are."""

NAMES = ", ".join(name for name in mintlify_async.__all__ if name != "__version__")
FRAGMENT = f"""\
import asyncio
import os

from mintlify_async import {NAMES}


async def fragment(session: MintlifySession) -> None:
"""


def module_of(block: Block) -> str:
    """Return the block as a module that declares the type of each name that the page explains."""
    if block.kind == "script":
        return block.text
    return FRAGMENT + textwrap.indent(block.text, "    ")


def main(folder: Path) -> None:
    """Write a module for each block, named after its page and line."""
    docs = Path(mintlify_async.__file__).parent / "docs"
    folder.mkdir(parents=True, exist_ok=True)
    for file in [ROOT / "README.md", *sorted(docs.rglob("*.md"))]:
        for block in blocks_of(file):
            if block.kind in CHECKED:
                name = f"{file.parent.name}_{file.stem}_{block.line}.py".replace("-", "_")
                (folder / name).write_text(module_of(block), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
