"""Makes the pictures of README and documentation, and the table of the page about speed.

``tox -e docs`` writes them. A test compares the stored files with new ones, except the pictures of the
relay's page. If the browser, npm or a package is missing, these are not changed.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import tempfile
from functools import partial
from html import escape
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from rich.console import Console
from rich.text import Text

import mintlify_async
from mintlify_async.cli import main
from mintlify_async.testing import LocalService
from tests.support.child_process import child_environment

ROOT = Path(__file__).parents[2]
DOCS = Path(mintlify_async.__file__).parent / "docs"
IMAGES = DOCS / "images"
QUESTION = "How do I send a follow-up to a job?"
WIDTH = 68
"""Columns of the terminal. More could not be read on a telephone."""

PAGES = ("how-to/jobs.md",)
"""What the pictured answer is searched in: not all pages, so that the picture changes less often."""

COLUMNS = {"aiohttp": ("aiohttp",), "httpx": ("httpx", "httpx-sse"), "openai": ("openai",)}
ROWS = {
    "burst": "CPU time per event, 55 KB answer in one piece",
    "live": "instructions per event, each alone in its packet",
    "first": "instructions until the first event",
    "request-get": "instructions of a request that reads a job",
    "request-create": "instructions of a request that creates a job",
    "import": "instructions to import the names that a program uses",
    "import-bare": "instructions of `import mintlify_async` alone, compared with `import aiohttp`",
}


STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#555}.t{font-weight:600;fill:#222}"
    ".peer{fill:#9aa5b1}.ours{fill:#0c8c5e}.floor{fill:#d0d7de}@media(prefers-color-scheme:dark)"
    "{text{fill:#aab}.t{fill:#eee}.peer{fill:#66707c}.floor{fill:#3d444d}}"
)

RELAY_SIZE = {"width": 480, "height": 980}
RELAY_QUESTION = "How do I log in without a browser?"
RELAY_ANSWER = """Create a token under **Settings → Access tokens**, and give it to the CLI in a variable. No
browser is opened, and the token works [until you revoke it](/tokens#revoke).

```python
import os
import subprocess

environment = {**os.environ, "ACME_TOKEN": token}
subprocess.run(["acme", "login"], env=environment, check=True)
```

| A token for | lives | may write |
|---|--:|---|
| a person | 90 days | yes |
| continuous integration | 1 year | only with `--write` |

```suggestions
(Revoke a token)[/tokens#revoke]
(Single sign-on)[/sso]
```
"""
RELAY_SOURCES = [("Access tokens", "/tokens"), ("The CLI in continuous integration", "/cli/ci")]


def terminal_picture() -> str:
    """Return the picture of ``mintlify-async ask`` on a terminal, as SVG."""
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    new_console = partial(Console, width=WIDTH, force_terminal=True, color_system="truecolor")

    async def ask(folder: str) -> int:
        async with LocalService(docs=folder) as service:
            environment = child_environment(service, TERM="xterm")
            with (
                mock.patch.dict(os.environ, environment, clear=True),
                mock.patch("rich.console.Console", new_console),
                mock.patch("rich.live.Live"),  # the finished blocks are printed without it
                mock.patch("sys.stdout", screen),
                mock.patch("sys.stderr", screen),
            ):
                return await asyncio.to_thread(main, ["ask", QUESTION])

    with tempfile.TemporaryDirectory() as folder:
        for page in PAGES:
            (Path(folder) / page).parent.mkdir(exist_ok=True)
            shutil.copy(DOCS / page, Path(folder) / page)
        assert asyncio.run(ask(folder)) == 0
    paper = Console(record=True, width=WIDTH, file=io.StringIO())
    paper.print(f'[bold green]$[/] mintlify-async ask "{QUESTION}"', highlight=False)
    paper.print(Text.from_ansi(screen.getvalue()))
    picture = paper.export_svg(title="mintlify-async", unique_id="terminal")
    # Without the rules that would load fonts from the net.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    picture = picture.replace("Fira Code", "ui-monospace, Menlo, Consolas")
    # Without a width, a page would make the picture as wide as itself.
    picture = picture.replace("<svg ", '<svg width="680" ', 1)
    return re.sub(r"[ \t]+$", "", picture, flags=re.MULTILINE)


def text_of(picture: str) -> str:
    """Return the text of an SVG picture, because its colours and places depend on the version of rich."""
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]+>", " ", picture, flags=re.DOTALL).split())


def speed_table(results: dict[str, Any]) -> str:
    """Return the table of the page about speed, as Markdown."""
    rows = {row["name"]: row for row in results["rows"]}
    lines = [f"| ours ÷ theirs | {' | '.join(COLUMNS)} |", f"|---|{'---:|' * len(COLUMNS)}"]
    for name, title in ROWS.items():
        ratios = rows[name]["ratios"] if name in rows else {}
        figures = [
            next((ratios[one][0] for one in names if one in ratios), None) for names in COLUMNS.values()
        ]
        if ratios:
            lines.append(f"| {title} | {' | '.join('' if n is None else f'{n:.2f}' for n in figures)} |")
    taken = sorted({rows[name]["taken"] for name in ROWS if name in rows})
    days = " to ".join(dict.fromkeys([taken[0], taken[-1]]))
    machine, versions = results["machine"], results["versions"]
    others = ", ".join(f"{name} {versions[name]}" for name in ("aiohttp", "httpx", "openai"))
    control = rows["burst"]["ratios"]["control"][0]
    lines += ["", f"Measured {days} with Python {machine['python']}, {others}, on two shared cores."]
    lines += ["As a control, the benchmark of the first row also compares this package with itself."]
    return "\n".join([*lines, f"The ideal result is 1. The measured result was {control:.2f}.", ""])


def speed_picture(results: dict[str, Any]) -> str:
    """Return the row of the burst as bars, shortest first, in an SVG picture."""
    row = next(row for row in results["rows"] if row["name"] == "burst")
    costs = sorted((cost[0], name) for name, cost in row["costs"].items() if name != "control")
    parts, y = [f'<text class="t" y="16">{row["title"]}</text>'], 48
    parts.append(f'<text y="36">{row["unit"]}, less is better</text>')
    for cost, name in costs:
        length = max(2.0, 230 * cost / costs[-1][0])
        kind = {"mintlify-async": "ours", "aiohttp": "floor"}.get(name, "peer")
        label = f"{name}, no parsing" if name == "aiohttp" else escape(name)
        parts.append(f'<text class="{"t" if kind == "ours" else ""}" y="{y + 15}">{label}</text>')
        parts.append(f'<rect class="{kind}" x="138" y="{y}" width="{length:.0f}" height="18" rx="3"/>')
        parts.append(f'<text x="{length + 146:.0f}" y="{y + 15}">{cost:,.3g}</text>')
        y += 24
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="600" viewBox="0 0 420 {y}" role="img">'
    return f"{opening}<style>{STYLE}</style>{''.join(parts)}</svg>\n"


def with_speed_table(page: str, table: str) -> str:
    """Return the text of the page with *table* in place of its present table."""
    return re.sub(r"^\| ours ÷ theirs .*?(?=^The figures come)", f"{table}\n", page, flags=re.M | re.S)


async def relay_pictures() -> dict[str, bytes]:
    """Return the pictures of the relay's page with a finished answer, by the names of their files.

    Raises:
        pytest.skip.Exception: There is no browser or no npm, or a package is not installed.
    """
    from tests.support.relay_shop import shop  # it is skipped without FastAPI

    pictures: dict[str, bytes] = {}
    async with shop() as here:
        await here.page.set_viewport_size(RELAY_SIZE)
        here.service.script.ask(text=RELAY_ANSWER, sources=RELAY_SOURCES)
        await here.answered(RELAY_QUESTION)
        await here.page.get_by_role("button", name="Copy answer").wait_for()
        await here.page.mouse.move(0, 0)
        devices = await here.page.context.new_cdp_session(here.page)
        metrics = {**RELAY_SIZE, "deviceScaleFactor": 2, "mobile": False}  # sharp on every screen
        await devices.send("Emulation.setDeviceMetricsOverride", metrics)
        for scheme in ("light", "dark"):
            await here.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            pictures[f"relay-{scheme}.png"] = await here.page.screenshot(caret="hide")
    return pictures


def write() -> None:
    """Write the table and every picture that can be made here."""
    (IMAGES / "terminal.svg").write_text(terminal_picture(), encoding="utf-8")
    page = DOCS / "explanation" / "speed.md"
    results = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    (IMAGES / "speed.svg").write_text(speed_picture(results), encoding="utf-8")
    text = with_speed_table(page.read_text(encoding="utf-8"), speed_table(results))
    page.write_text(text, encoding="utf-8")
    try:
        for name, picture in asyncio.run(relay_pictures()).items():
            (IMAGES / name).write_bytes(picture)
    except pytest.skip.Exception as reason:
        print(f"The pictures of the relay's page stay as they are: {reason}")


if __name__ == "__main__":
    write()
