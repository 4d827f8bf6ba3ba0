"""Nothing in; out: an environment with this package, its peers and what the rows need.

Standard library only, as it runs before any of that is there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["enter", "inside"]

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".bench-env"
REQUIREMENTS = Path(__file__).resolve().parent / "requirements.txt"


def interpreter() -> Path:
    """Return where the environment's Python is."""
    return FOLDER / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def inside() -> bool:
    """Tell whether this process runs in the environment already."""
    return Path(sys.prefix) == FOLDER


def build() -> None:
    """Make the environment, or bring it up to date."""
    if not interpreter().exists():
        venv.create(FOLDER, with_pip=True)
    install = [str(interpreter()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-r", str(REQUIREMENTS), "-e", str(ROOT)], check=True)


def enter(arguments: list[str]) -> int:
    """Build the environment and run the benchmarks in it with *arguments*; return the exit status."""
    build()
    return subprocess.run(
        [str(interpreter()), "-m", "benchmarks", *arguments], cwd=ROOT, check=False
    ).returncode
