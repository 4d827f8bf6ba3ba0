"""Relayed answers as the published releases of ai fold them: hundreds of shapes, and none harms a page."""

from __future__ import annotations

import base64
import functools
import json
import shutil
import subprocess
from typing import Any

import pytest
from oracle_data import ORACLE

pytest.importorskip("fastapi")

from relay_browser import RELEASES, installed
from relay_kit import opened_with

SCENARIOS = ORACLE / "scenarios"
FOLD = ORACLE.parent / "support" / "relay_fold.mjs"
OTHER_TEXT = {
    "reset-step",  # newer than what old pages know: they keep the text that it takes back
    "start-twice-different-id",  # the fold begins anew; a page would show both, so it gets one
}


def bodies() -> dict[str, bytes]:
    """Return the oracle's bodies, by name."""
    found = {}
    for path in sorted(SCENARIOS.glob("*.json")):
        versions = json.loads(path.read_text(encoding="utf-8"))
        for version in ("v5", "v6", "v7"):
            body = versions.get(version, {}).get("body", {})
            content = body["text"].encode() if "text" in body else base64.b64decode(body.get("base64", ""))
            if content:
                found[f"{path.stem} {version}"] = content
    return found


FOREIGN = {  # what a modern page gets unchanged, and refuses
    "finish-unknown-from-model",
    "raw-finish-reason-unknown",
    "raw-unknown-type",
    "raw-unknown-type-first",
}


async def relayed(body: bytes, mode: str = "safe") -> tuple[bytes, str, bool]:
    """Return what a page gets, the text it should show, and whether it is told of an error."""
    opened = opened_with(body, mode=mode)
    content = b"".join([frame async for frame in opened.frames()])
    return content, opened.reply.text, b'"type":"error"' in content


@functools.cache
def folded(release: str, cases: str) -> dict[str, Any]:
    """Return what *release* makes of *cases*."""
    folder = installed(release)
    program = folder / FOLD.name
    if not program.exists():
        shutil.copyfile(FOLD, program)
    done = subprocess.run(
        ["node", program.name],
        cwd=folder,
        input=cases,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout)


def shown(message: dict[str, Any] | None) -> str:
    """Return the text of a message, without the room between its parts."""
    parts = message["parts"] if message else []
    return "".join("".join(part["text"].split()) for part in parts if part["type"] == "text")


@pytest.mark.parametrize("release", RELEASES)
async def test_no_answer_harms_a_page(release):
    """Every scenario of the oracle, relayed: the page's own parser and fold take it, and show the text."""
    await check(release, {name: await relayed(body) for name, body in bodies().items()})


async def test_modern_mode_fits_the_newest_release():
    """Everything passes; what the newest release does not know is the service's to leave out."""
    sent = {name: await relayed(body, "modern") for name, body in bodies().items()}
    await check("7", {name: made for name, made in sent.items() if name.split()[0] not in FOREIGN})


async def check(release: str, sent: dict[str, tuple[bytes, str, bool]]) -> None:
    """Fold every answer that was *sent* with *release*, and compare."""
    assert len(sent) > 150
    cases = json.dumps([[name, content.decode("ascii")] for name, (content, _, _) in sent.items()])
    wrong = {}
    for name, made in folded(release, cases).items():
        _, text, failed = sent[name]
        if [error for error in made["errors"] if not error.startswith("Error: ")] or failed != bool(
            made["errors"]
        ):
            wrong[name] = made["errors"]
        elif name.split()[0] not in OTHER_TEXT and shown(made["message"]) != "".join(text.split()):
            wrong[name] = (shown(made["message"]), text)
    assert wrong == {}
