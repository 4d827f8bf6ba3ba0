"""Packages of npm, installed once per list of exact versions and kept over runs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mintlify-async-tests"
INSTALL_SECONDS = 900


def packages_of(manifest: bytes, name: str) -> Path:
    """Return a folder with the packages that *manifest*, a ``package.json``, lists. Skip without npm.

    Args:
        manifest: The contents of the file.
        name: The beginning of the folder's name.
    """
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")

    def install(folder: Path) -> None:
        (folder / "package.json").write_bytes(manifest)
        quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        run_npm([npm, "install", "--prefer-offline", *quiet], folder)  # the lists share packages

    return made(CACHE / f"{name}-{digest(manifest)}", install)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def made(folder: Path, make: Callable[[Path], None]) -> Path:
    """If *folder* is missing, make it under another name, and move it into place when it is complete."""
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as aside:
        work = Path(aside) / "work"
        work.mkdir()
        make(work)
        try:
            work.rename(folder)
        except OSError:  # another worker was faster
            assert folder.exists()
    return folder


_failures: list[str] = []


def run_npm(command: list[str], folder: Path) -> None:
    """Run npm. After a failure, each test that needs npm is skipped at once."""
    options: Any = {"cwd": folder, "capture_output": True, "text": True, "timeout": INSTALL_SECONDS}
    if not _failures:
        try:
            subprocess.run(command, check=True, **options)
        except subprocess.SubprocessError as error:
            _failures.append(f"npm failed: {error}\n{error.stdout}\n{error.stderr}")
    if _failures:
        pytest.skip(_failures[0])
