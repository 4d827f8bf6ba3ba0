"""Relayed answers as the published releases of ai fold them: hundreds of shapes, and none harms a page."""

from __future__ import annotations

import base64
import functools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from relay_browser import RELEASES, installed
from relay_kit import SECRET

from mintlify_async.clock import SystemClock
from mintlify_async.contrib.relay import OpenReply, Question, ThreadSeal
from mintlify_async.contrib.relay.answer import Teller
from mintlify_async.errors import MintlifyError
from mintlify_async.stream import MessageStream

SCENARIOS = Path(__file__).parent / "oracle" / "scenarios"
FOLD = Path(__file__).parent / "relay_fold.mjs"
DISCARDS = {"reset-step"}  # newer than what old pages know: they keep the text that it takes back


class Replay:
    """A reply whose bytes are all there: the stream's own logic, and no connection."""

    def __init__(self, body: bytes) -> None:
        self._stream = MessageStream()
        self._stream.feed(body)
        self._stream.feed_eof()
        self._error: MintlifyError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> Replay:
        return self

    async def __anext__(self) -> Any:
        event = self._stream.next_event()
        if event is None:
            raise StopAsyncIteration
        return event

    async def run(self) -> None:
        pass

    async def close(self) -> None:
        pass


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


async def relayed(body: bytes) -> tuple[bytes, str, bool]:
    """Return what a page gets, the text it should show, and whether it is told of an error."""
    reply = Replay(body)
    teller = Teller(
        mode="safe",
        clock=SystemClock(),
        keep_alive=None,
        stall=None,
        seal=ThreadSeal([SECRET]),
        on_finish=None,
        on_unfinished=None,
        error_text=None,
    )
    question = Question(messages=[])
    opened = OpenReply(reply, question=question, thread=None, user="u", teller=teller, leave=lambda: None)  # type: ignore[arg-type]  # it stands for a Reply
    content = b"".join([frame async for frame in opened.frames()])
    return content, reply.text, b'"type":"error"' in content


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
    """Every scenario of the oracle, relayed: the page's own parser and fold take all of it, and show the text."""
    sent = {name: await relayed(body) for name, body in bodies().items()}
    assert len(sent) > 150
    cases = json.dumps([[name, content.decode("ascii")] for name, (content, _, _) in sent.items()])
    wrong = {}
    for name, made in folded(release, cases).items():
        _, text, failed = sent[name]
        if [error for error in made["errors"] if "Please try again" not in error] or failed != bool(
            made["errors"]
        ):
            wrong[name] = made["errors"]
        elif name.split()[0] not in DISCARDS and shown(made["message"]) != "".join(text.split()):
            wrong[name] = (shown(made["message"]), text)
    assert wrong == {}
