"""Writes one report, with a table as text, and ``results.json`` with versions and machine."""

import importlib.metadata
import json
import platform
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from .measuring import Row

PACKAGES = {"mintlify-async", "aiohttp", "attrs", "cattrs", "httpx", "httpx-sse", "openai", "uvicorn"}
TARGETS = tomllib.loads(Path(__file__).with_name("targets.toml").read_text())


def table(row: Row) -> str:
    """Return *row* as text, with costs, our cost ÷ each, the aim, and whether it is reached."""
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
    middle, low, high = figure
    return f"{middle:,.4g}" + (f" ({low:,.3g} to {high:,.3g})" if low < high else "")


def save(rows: list[Row], path: Path) -> None:
    """Write *rows* to *path*. Rows of other names stay."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    about = {"taken": f"{datetime.now(UTC):%Y-%m-%d}", "processor": cpu[1] if cpu else ""}
    every = {row["name"]: row for row in (json.loads(path.read_text())["rows"] if path.exists() else [])}
    for row in rows:
        every[row.name] = {**row._asdict(), "targets": TARGETS.get(row.name, {}), **about}
    machine = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    there = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    versions = {name: there[name] for name in sorted(PACKAGES & there.keys())}
    document = {"machine": machine, "versions": versions, "rows": list(every.values())}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
