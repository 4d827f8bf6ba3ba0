"""One report: a table as text, ``results.json`` with versions and machine, and the chart for the README."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from .measuring import CONTROL, OURS, Row
from .subjects import AIOHTTP

#: By row and subject: a most that is to be reached, and what the figure was when that was set, if it was
#: measured. Where the row has our cost ÷ the subject's, that is meant; else the cost.
TARGETS: dict[str, dict[str, tuple[float, float | None]]] = {
    "burst": {AIOHTTP: (2.6, 2.4), "httpx-sse": (0.28, 0.22), "openai": (0.11, 0.075)},
    "shapes": {
        "unknown field": (2, 6),
        "providerMetadata": (2, 4.9),
        "event lines": (2, 2),
        "two texts in turn": (2, 2.6),
        "reasoning": (2, 2.9),
    },
    "live": {AIOHTTP: (1.45, 1.39), "httpx-sse": (0.33, 0.30), "openai": (0.18, 0.178)},
    "first": {AIOHTTP: (1.35, 1.33)},
    "request-get": {AIOHTTP: (1.3, 1.13)},
    "request-create": {AIOHTTP: (1.3, None)},
    "import": {AIOHTTP: (1.25, 1.18)},
    "import-bare": {AIOHTTP: (0.15, 0.04)},
    "streams-memory": {OURS: (16, 12.7)},
    "streams-silent": {OURS: (0.3, 6)},
    "streams-event": {AIOHTTP: (1.35, 1.79)},
    "streams-opening": {AIOHTTP: (1.3, 1.17)},
    "jobs-memory": {OURS: (2500, 2400)},
    "jobs-lag": {"idle loop": (3, 0.8)},
    "jobs-look": {OURS: (1, None)},
    "relay-burst": {"pass-through": (5, 20)},
    "relay-live": {"pass-through": (1.4, 2.2)},
    "conversation": {OURS: (1.5, 18)},
    "conversation-stop": {OURS: (3, 32)},
    "message-4096": {
        "prose": (2, 2),
        "code": (2, 14),
        "short lines": (2, 72),
        "list": (2, 23),
        "table": (2, None),
    },
    "message-10000": {
        "list": (5, 417),
        **dict.fromkeys(("prose", "code", "short lines", "table"), (5, None)),
    },
    "growth": {"worst": (1.2, 1.06)},
}


def table(row: Row) -> str:
    """Return *row* as text: costs, our cost ÷ each, what is to be reached, and whether it is."""
    lines = [f"{row.name}: {row.title} ({row.unit})"]
    for subject, cost in row.costs.items():
        ratio = row.ratios.get(subject)
        line = f"  {subject:<33}{spread(cost):<32}{f'ours ÷ it {spread(ratio)}' if ratio else '':<36}"
        if target := TARGETS.get(row.name, {}).get(subject):
            reach, was = target
            line += f"reach ≤ {reach:g}{'' if was is None else f', was {was:g}'}: "
            line += "yes" if (ratio or cost)[0] <= reach else "NO"
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def spread(figure: list[float]) -> str:
    """Return a median and, where they differ from it, its quartiles."""
    middle, low, high = figure
    return f"{middle:,.4g}" + (f" ({low:,.3g} to {high:,.3g})" if low < high else "")


def processor() -> str:
    """Return the processor's name, where the system says it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")


def save(rows: list[Row], path: Path) -> list[dict[str, Any]]:
    """Write *rows* to *path*, where rows of other names stay; return all of them."""
    day = datetime.now(UTC).date().isoformat()
    every = {row["name"]: row for row in (json.loads(path.read_text())["rows"] if path.exists() else [])}
    for row in rows:
        figures = {
            key: {name: [float(f"{x:.5g}") for x in each] for name, each in found.items()}
            for key, found in (("costs", row.costs), ("ratios", row.ratios))
        }
        targets = {
            name: {"reach": reach, "was": was} for name, (reach, was) in TARGETS.get(row.name, {}).items()
        }
        about = {"targets": targets, "taken": day, "processor": processor()}
        every[row.name] = {**row._asdict(), **figures, **about}
    system = f"{platform.system()} {platform.machine()}"
    machine = {"python": sys.version.split()[0], "system": system, "cores": os.cpu_count()}
    versions = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    document = {"machine": machine, "versions": dict(sorted(versions.items())), "rows": list(every.values())}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return list(every.values())


CHARTED = ("burst", "live", "import")
WIDTH, LABEL, BAR, GAP = 720, 170, 18, 6
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#555}.t{font-weight:600;fill:#222}"
    ".peer{fill:#9aa5b1}.ours{fill:#0c8c5e}.floor{fill:#d0d7de}@media(prefers-color-scheme:dark)"
    "{text{fill:#aab}.t{fill:#eee}.peer{fill:#66707c}.floor{fill:#3d444d}}"
)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw a group of bars for each row that has a place in the chart, as an SVG picture."""
    parts, y = [], 10
    for row in (row for row in rows if row["name"] in CHARTED):
        costs = {name: cost[0] for name, cost in row["costs"].items() if name != CONTROL}
        parts.append(text(0, y + 14, f"{row['title']} ({row['unit']}, less is better)", "t"))
        y += 26
        for name, cost in sorted(costs.items(), key=lambda item: item[1]):
            kind = {OURS: "ours", AIOHTTP: "floor"}.get(name, "peer")
            length = max(2.0, (WIDTH - LABEL - 90) * cost / max(costs.values()))
            label = "aiohttp, no parsing" if name == AIOHTTP and row["name"] != "import" else name
            bar = f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3"/>'
            size = f"{cost:,.3g}" if cost < 1e4 else f"{cost / 1e3:,.0f} thousand"
            parts += [text(0, y + 15, label, "t" if name == OURS else ""), bar]
            parts.append(text(LABEL + length + 8, y + 15, size, ""))
            y += BAR + GAP
        y += 22
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img">'
    path.write_text(f"{opening}<style>{STYLE}</style>{''.join(parts)}</svg>\n")


def text(x: float, y: float, content: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}">{escape(content)}</text>'
