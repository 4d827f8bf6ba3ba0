"""Gives questions to the published JavaScript client, and returns its history."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parent / "js"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mintlify-async-tests"
INSTALL_SECONDS = 180
QUIET = ("--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error")


@functools.cache
def installed() -> Path:
    """Return a folder with the script and its packages. It is made once and kept, without a lock file."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    sources = ("package.json", "client.mjs")
    digest = hashlib.sha256(b"\0".join((SOURCE / name).read_bytes() for name in sources)).hexdigest()
    folder = CACHE / f"js-{digest[:16]}"
    if not folder.exists():
        _install(npm, sources, folder)
    return folder


def _install(npm: str, sources: tuple[str, ...], folder: Path) -> None:
    """Install in a temporary folder, and move it into place when it is complete."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as aside:
        work = Path(aside) / "js"
        work.mkdir()
        for name in sources:
            shutil.copy(SOURCE / name, work / name)
        try:
            done = subprocess.run(
                [npm, "install", *QUIET], cwd=work, capture_output=True, text=True, timeout=INSTALL_SECONDS
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm took more than {INSTALL_SECONDS} s")
        if done.returncode:
            pytest.skip(f"npm failed: {(done.stderr or done.stdout)[-500:]}")
        try:
            work.rename(folder)
        except OSError:  # another worker was faster
            assert folder.exists()


async def chat(base_url: str, domain: str, assistant_key: str, *questions: str) -> dict[str, Any]:
    """Ask *questions* one after the other. Return the client's complete history, and the thread."""
    settings = {
        "BASE_URL": base_url,
        "DOMAIN": domain,
        "ASSISTANT_KEY": assistant_key,
        "QUESTIONS": json.dumps(questions),
    }
    process = await asyncio.create_subprocess_exec(
        "node",
        "client.mjs",
        cwd=installed(),
        env=os.environ | settings,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    answer: dict[str, Any] = json.loads(out)
    return answer
