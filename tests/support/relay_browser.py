"""The relay's page, built with a release of the AI SDK, in a real browser."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parent / "relay_page"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mintlify-async-tests"
RELEASES = {  # ai: the release of @ai-sdk/react that is made for it
    "5.0.0": "2.0.0",
    "6.0.230": "3.0.232",
    "7": "4",
}
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
INSTALL_SECONDS = 240


def chromium() -> str:
    """Return where the browser is; skip without one."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path is not None:
            return path
    pytest.skip("chromium is not installed")


@functools.cache
def installed(release: str) -> Path:
    """Return a folder with the page's source and the packages of *release*; made once, kept over runs."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    sources = sorted(path for path in SOURCE.rglob("*") if path.is_file() and _is_source(path))
    digest = hashlib.sha256()
    for path in sources:
        digest.update(path.relative_to(SOURCE).as_posix().encode() + b"\0" + path.read_bytes())
    folder = CACHE / f"page-{release}-{digest.hexdigest()[:16]}"
    if not folder.exists():
        _install(npm, release, sources, folder)
    return folder


def _is_source(path: Path) -> bool:
    parts = path.relative_to(SOURCE).parts
    return not {"node_modules", "dist"} & set(parts) and path.suffix != ".png"


def _install(npm: str, release: str, sources: list[Path], folder: Path) -> None:
    """Install and build in a folder aside, and put it into place when it is whole."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as aside:
        work = Path(aside) / "page"
        for path in sources:
            target = work / path.relative_to(SOURCE)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
        manifest = json.loads((work / "package.json").read_text())
        manifest["dependencies"] |= {"ai": release, "@ai-sdk/react": RELEASES[release]}
        (work / "package.json").write_text(json.dumps(manifest))
        quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        _run([npm, "install", *quiet], work)
        got = json.loads((work / "node_modules" / "ai" / "package.json").read_text())["version"]
        assert f"{got}.".startswith(f"{release}."), got
        assert not (work / "node_modules" / "@ai-sdk" / "react" / "node_modules" / "ai").exists()
        _run([npm, "run", "build"], work)
        try:
            work.rename(folder)
        except OSError:  # another worker was faster
            assert folder.exists()


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm took more than {INSTALL_SECONDS} s")
    if done.returncode:
        pytest.skip(f"npm failed: {(done.stderr or done.stdout)[-500:]}")


def built(release: str) -> Path:
    """Return the folder with the built page."""
    return installed(release) / "dist"


@asynccontextmanager
async def browser() -> AsyncIterator[Any]:
    """Start a browser; yield Playwright's object for it."""
    api = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    path = chromium()
    async with api.async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        try:
            yield started
        finally:
            await started.close()


class Traffic:
    """An ASGI app around another that remembers every byte between the page and the app."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.seen = bytearray()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self.seen += repr((scope["path"], scope["query_string"], scope["headers"])).encode()

        async def received() -> Any:
            message = await receive()
            self.seen += message.get("body", b"")
            return message

        async def sent(message: Any) -> None:
            self.seen += message.get("body", b"") + repr(message.get("headers")).encode()
            await send(message)

        await self.app(scope, received, sent)
