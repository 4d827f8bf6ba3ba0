"""The example's page, built with a release of the AI SDK, in a real browser."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.child_process import LONGEST_SECONDS

SOURCE = Path(__file__).parents[2] / "examples" / "relay_app" / "page"
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
PLAYWRIGHT_FLAGS = [  # those of Playwright's own start that the tests see
    "--hide-scrollbars",
    "--disable-back-forward-cache",  # a page that was left ends its requests
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-ipc-flooding-protection",
    "--disable-hang-monitor",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--mute-audio",
]
INSTALL_SECONDS = 240
LONGEST_MS = 1000 * LONGEST_SECONDS  # what a page may take on a busy computer, in Playwright's unit
AXE = "4.14.1"  # axe-core, which finds obstacles for people with disabilities


def chromium() -> str:
    """Return the path of the browser. Skip without one."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path is not None:
            return path
    pytest.skip("chromium is not installed")


@functools.cache
def installed(release: str) -> Path:
    """Return a folder with the packages of *release*. It is made once and kept over runs."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    manifest = json.loads((SOURCE / "package.json").read_text("utf-8"))
    manifest["dependencies"] |= {"ai": release, "@ai-sdk/react": RELEASES[release]}
    manifest["devDependencies"]["axe-core"] = AXE
    content = json.dumps(manifest).encode()

    def install(folder: Path) -> None:
        (folder / "package.json").write_bytes(content)
        quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        _run([npm, "install", *quiet], folder)
        got = json.loads((folder / "node_modules" / "ai" / "package.json").read_text())["version"]
        assert f"{got}.".startswith(f"{release}."), got
        assert not (folder / "node_modules" / "@ai-sdk" / "react" / "node_modules" / "ai").exists()

    return _made(CACHE / f"packages-{release}-{_digest(content)}", install)


@functools.cache
def built(release: str) -> Path:
    """Return the folder with the built page of the example."""
    return build_page(
        release,
        {
            path.relative_to(SOURCE): path.read_bytes()
            for path in sorted(SOURCE.rglob("*"))
            if path.is_file() and not {"node_modules", "dist"} & set(path.relative_to(SOURCE).parts)
        },
    )


def build_page(release: str, sources: dict[Path, bytes]) -> Path:
    """Return the folder with the page that is built from *sources*."""
    packages = installed(release)

    def build(folder: Path) -> None:
        for path, content in sources.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        _run(["npm", "run", "build"], folder)  # it finds the packages in the folder above

    return _made(packages / f"page-{_digest(repr(sources).encode())}", build) / "dist"


def axe(release: str) -> str:
    """Return the script of axe-core."""
    return (installed(release) / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _made(folder: Path, make: Callable[[Path], None]) -> Path:
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


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm took more than {INSTALL_SECONDS} s")
    if done.returncode:
        pytest.skip(f"npm failed: {(done.stderr or done.stdout)[-500:]}")


_addresses: list[str] = []  # of running browsers


@contextmanager
def running_browser() -> Iterator[None]:
    """Start a browser that each :func:`browser` uses while the block runs."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless", "--remote-debugging-port=0", f"--user-data-dir={profile}"]
        command = [chromium(), *options, *PLAYWRIGHT_FLAGS, *CHROMIUM_FLAGS]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            line = ""
            while "DevTools listening on" not in line:
                line = process.stderr.readline()
                assert line, "the browser did not start"
            _addresses.append(line.split()[-1])
            try:
                yield
            finally:
                _addresses.clear()
                process.terminate()


@asynccontextmanager
async def browser() -> AsyncIterator[Any]:
    """Yield Playwright's object for the running browser, or else for a new one."""
    api = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    path = chromium()
    async with api.async_playwright() as playwright:
        if _addresses:
            started = await playwright.chromium.connect_over_cdp(_addresses[0])
        else:
            started = await playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        try:
            yield started
        finally:
            await started.close()


class Traffic:
    """An ASGI app around another that records every byte between the page and the app."""

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
