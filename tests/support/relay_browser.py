"""The example's page, built with a release of the AI SDK, in a real browser."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.npm_packages import digest, made, packages_of, run_npm

SOURCE = Path(__file__).parents[2] / "examples" / "relay_app" / "page"
RELEASES = {  # ai: the release of @ai-sdk/react that is made for it
    "5.0.0": "2.0.0",
    "6.0.230": "3.0.232",
    "7": "4",
}
NEWEST = "7"
LONGEST_MS = 120_000  # what a step of a page may take on a busy computer
AXE = "4.14.1"  # axe-core, which finds obstacles for people with disabilities


def chromium() -> str:
    """Return the path of the browser. Skip without one."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    found = [path for path in map(shutil.which, names) if path]
    return found[0] if found else pytest.skip("chromium is not installed")


@functools.cache
def installed(release: str) -> Path:
    """Return a folder with the packages of *release*. It is made once and kept over runs."""
    manifest = json.loads((SOURCE / "package.json").read_text("utf-8"))
    manifest["dependencies"] |= {"ai": release, "@ai-sdk/react": RELEASES[release]}
    manifest["devDependencies"]["axe-core"] = AXE
    folder = packages_of(json.dumps(manifest).encode(), f"packages-{release}")
    assert not (folder / "node_modules" / "@ai-sdk" / "react" / "node_modules" / "ai").exists()
    return folder


def page_program(release: str, name: str) -> Path:
    """Return the program *name* of this folder, beside the packages of *release*."""
    folder = installed(release)
    for file in (name, "page_chat.mjs"):
        shutil.copy(Path(__file__).with_name(file), folder)
    return folder / name


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
        run_npm(["npm", "run", "build"], folder)  # it finds the packages in the folder above

    return made(packages / f"page-{digest(repr(sources).encode())}", build) / "dist"


@asynccontextmanager
async def browser() -> AsyncIterator[Any]:
    """Yield Playwright's object for a new browser."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=chromium())
        try:
            yield started
        finally:
            await started.close()


if __name__ == "__main__":  # `.ci/run` does this while it checks the types
    for each in RELEASES:
        installed(each)
