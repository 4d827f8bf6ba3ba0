"""What holds for every example of one file."""

from __future__ import annotations

import ast

import pytest

from tests.examples.program_kit import EXAMPLES

LONGEST = 80


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_says_how_to_run_it(path):
    """One that needs more lines shows what the package lacks."""
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= LONGEST
    assert path.stem in (ast.get_docstring(ast.parse(source)) or "")
