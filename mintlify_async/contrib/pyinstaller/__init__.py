"""Hooks for PyInstaller, which finds neither modules that are loaded by name nor data files.

PyInstaller finds this folder through the entry point ``pyinstaller40``. For each package that a program
imports, it runs the hook with the package's name. So only programs that use the testing kit include it. The
modules of ``contrib`` need no hook, because a program imports them itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[2]
OUTER: Final = frozenset({"__main__", "cli", "contrib", "testing"})


def hook_dirs() -> list[str]:
    """Return the folder of the hooks."""
    return [str(Path(__file__).parent)]


def module_names(wing: str | None = None) -> list[str]:
    """Return the names of the modules of *wing*, or of the modules that every program may load."""
    paths = [path.relative_to(PACKAGE).with_suffix("") for path in sorted(PACKAGE.rglob("*.py"))]
    return [
        ".".join([PACKAGE.name, *path.parts])
        for path in paths
        if path.name != "__init__" and (path.parts[0] == wing or not (wing or path.parts[0] in OUTER))
    ]


def pages() -> list[tuple[str, str]]:
    """Return each page of the documentation and its folder. The local service answers from these pages."""
    return [
        (str(page), page.parent.relative_to(PACKAGE.parent).as_posix())
        for page in sorted(PACKAGE.glob("docs/**/*.md"))
    ]
