"""What holds for every example of one file."""

from __future__ import annotations

import ast

from tests.support.child_process import ROOT


def test_an_example_says_how_to_run_it():
    """Its first lines have the command."""
    sources = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.py")}
    assert not [
        name for name, text in sources.items() if name not in (ast.get_docstring(ast.parse(text)) or "")
    ]
