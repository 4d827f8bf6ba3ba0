"""The page about the relay: its app answers a browser, by the commands that the page prints."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from page_blocks import blocks_of

import mintlify_async
from tests.support.child_process import run_to_end
from tests.support.relay_kit import events, serving

PAGE = Path(mintlify_async.__file__).parent / "docs" / "how-to" / "relay.md"
PRINTED = "http://127.0.0.1:8000"


@pytest.mark.real
async def test_the_app_answers_a_browser(service, tmp_path, monkeypatch):
    """The first response sets the cookie, and the second command gets a complete answer."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    app, asking = (block.text for block in blocks_of(PAGE) if block.title == "app.py" or "curl" in block.text)
    for name, value in (service.environment | {"RELAY_SECRET": "a secret of the app, " * 2}).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "app.py").write_text(app, encoding="utf-8")
    names = runpy.run_path(str(tmp_path / "app.py"))

    async with serving(names["app"]) as url:
        commands = asking.replace(PRINTED, url)
        first, _, answer = (await run_to_end("bash", "-ec", commands, cwd=tmp_path)).partition("data: ")
        assert first == "Here goes your page with useChat."
        assert events(f"data: {answer}".encode())[-1]["type"] == "finish"
        without = commands.replace("-b cookies ", "").partition("\n")[2]
        assert await run_to_end("bash", "-ec", without, cwd=tmp_path) == "Please sign in first."
