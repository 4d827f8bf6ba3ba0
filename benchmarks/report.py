"""One report: a table as text, ``results.json`` with versions and machine, and the chart for the README."""

import importlib.metadata
import json
import platform
import tomllib
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from .measuring import CONTROL, OURS, Row
from .subjects import AIOHTTP

PACKAGES = {"mintlify-async", "aiohttp", "attrs", "cattrs", "httpx", "httpx-sse", "openai", "uvicorn"}
TARGETS = tomllib.loads(Path(__file__).with_name("targets.toml").read_text())
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#555}.t{font-weight:600;fill:#222}"
    ".peer{fill:#9aa5b1}.ours{fill:#0c8c5e}.floor{fill:#d0d7de}@media(prefers-color-scheme:dark)"
    "{text{fill:#aab}.t{fill:#eee}.peer{fill:#66707c}.floor{fill:#3d444d}}"
)


def table(row: Row) -> str:
    """Return *row* as text: costs, our cost ÷ each, what is to be reached, and whether it is."""
    lines = [f"{row.name}: {row.title} ({row.unit})"]
    for subject, cost in row.costs.items():
        ratio = row.ratios.get(subject)
        line = f"  {subject:<33}{spread(cost):<32}{f'ours ÷ it {spread(ratio)}' if ratio else '':<36}"
        if target := TARGETS.get(row.name, {}).get(subject):
            was = f", was {target[1]:g}" if target[1:] else ""
            within = "yes" if (ratio or cost)[0] <= target[0] else "NO"
            line += f"reach ≤ {target[0]:g}{was}: {within}"
        lines.append(line.rstrip())
    return "\n".join(lines) + "\n"


def spread(figure: list[float]) -> str:
    """Return a median and, where they differ from it, its quartiles."""
    middle, low, high = figure
    return f"{middle:,.4g}" + (f" ({low:,.3g} to {high:,.3g})" if low < high else "")


def save(rows: list[Row], path: Path) -> list[dict[str, Any]]:
    """Write *rows* to *path*, where rows of other names stay; return all of them."""
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    about = {
        "taken": datetime.now(UTC).date().isoformat(),
        "processor": cpu[0].partition(": ")[2] if cpu else "",
    }
    every = {row["name"]: row for row in (json.loads(path.read_text())["rows"] if path.exists() else [])}
    for row in rows:
        every[row.name] = {**row._asdict(), "targets": TARGETS.get(row.name, {}), **about}
        for key in ("costs", "ratios"):
            figures = every[row.name][key].items()
            every[row.name][key] = {name: [float(f"{x:.5g}") for x in figure] for name, figure in figures}
    machine = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    there = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    versions = {name: there[name] for name in sorted(PACKAGES & there.keys())}
    document = {"machine": machine, "versions": versions, "rows": list(every.values())}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return list(every.values())


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the row of the burst as bars, shortest first, in an SVG picture."""
    row = next((row for row in rows if row["name"] == "burst"), {"title": "", "unit": "", "costs": {}})
    costs = sorted((cost[0], name) for name, cost in row["costs"].items() if name != CONTROL)
    parts, y = [f'<text class="t" y="24">{row["title"]} ({row["unit"]}, less is better)</text>'], 36
    for cost, name in costs:
        length = max(2.0, 460 * cost / costs[-1][0])
        kind = {OURS: "ours", AIOHTTP: "floor"}.get(name, "peer")
        label = f"{name}, no parsing" if name == AIOHTTP else escape(name)
        parts.append(f'<text class="{"t" if name == OURS else ""}" y="{y + 15}">{label}</text>')
        parts.append(f'<rect class="{kind}" x="170" y="{y}" width="{length:.0f}" height="18" rx="3"/>')
        parts.append(f'<text x="{length + 178:.0f}" y="{y + 15}">{cost:,.3g}</text>')
        y += 24
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {y}" role="img">'
    path.write_text(f"{opening}<style>{STYLE}</style>{''.join(parts)}</svg>\n")
