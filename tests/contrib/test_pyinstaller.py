"""The hooks for PyInstaller name every module that is loaded by its name, and the data files."""

from __future__ import annotations

import ast
import pkgutil
import re
import runpy
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

import mintlify_async
from mintlify_async import testing
from mintlify_async.cli.argument_parser import make_parser

PACKAGE = Path(mintlify_async.__file__).parent
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HOOKED = ("mintlify_async", "mintlify_async.cli", "mintlify_async.testing")

LOADED_BY_NAME = {"__init__.py", "errors.py", "cli/__init__.py", "cli/chat.py", "testing/__init__.py"}
"""The files that import a module by a string, which PyInstaller does not see."""


def hook(package: str) -> dict[str, object]:
    """Return the variables of the hook for *package*, which PyInstaller would find and read."""
    [folder] = pkgutil.resolve_name(PROJECT["entry-points"]["pyinstaller40"]["hook-dirs"])()
    return runpy.run_path(str(Path(folder) / f"hook-{package}.py"))


def modules_of_names(package) -> set[str]:
    """Return the modules that a package's stub takes its names from."""
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    named = [node.module for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {f"{package.__name__}.{module}" for module in named if module}


@pytest.mark.parametrize("package", [mintlify_async, testing], ids=["package", "testing"])
def test_each_public_name_is_in_a_frozen_program(package):
    """A new name of the package, or of the kit, is there without a change of the hook."""
    assert modules_of_names(package) - {"mintlify_async.version"} <= set(
        hook(package.__name__)["hiddenimports"]
    )


def test_each_command_is_in_a_frozen_program():
    """So are what runs them, and what edits the lines of `chat`."""
    commands = next(action.choices for action in make_parser()._actions if action.dest == "command")
    modules = {f"mintlify_async.cli.{command}" for command in [*commands, "run_command"]}
    assert modules | {"readline"} <= set(hook("mintlify_async.cli")["hiddenimports"])


def test_no_other_file_loads_a_module_by_its_name():
    """One that does needs a hook, too."""
    texts = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    found = [path for path, text in texts.items() if re.search(r"import_module|__import__|runpy", text)]
    assert {path.relative_to(PACKAGE).as_posix() for path in found} == LOADED_BY_NAME


@pytest.mark.parametrize("package", HOOKED)
def test_a_frozen_program_has_nothing_more(package):
    """Each named module exists. None of them needs pytest or an extra, and the core needs no outer wing."""
    named = [name for name in hook(package)["hiddenimports"] if name != "readline"]
    assert all(find_spec(name) for name in named)
    unwanted = ("mintlify_async.contrib", "mintlify_async.testing.pytest_plugin")
    if package == "mintlify_async":
        unwanted = ("mintlify_async.cli", "mintlify_async.contrib", "mintlify_async.testing")
    assert not [name for name in named if name.startswith(unwanted)]


def test_the_pages_are_in_a_frozen_program():
    """The local service answers from them, so each is copied to its place in the package."""
    copies = {Path(source): Path(folder) for source, folder in hook("mintlify_async.testing")["datas"]}
    files = set(PACKAGE.glob("docs/**/*.md"))
    assert files
    assert copies == {file: file.parent.relative_to(PACKAGE.parent) for file in files}
