"""Rows in; a table, JSON with the versions and the machine, and a chart out."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .rounds import Figure, Row

__all__ = ["load", "save", "table"]

PACKAGES = (
    "mintlify-async",
    "aiohttp",
    "attrs",
    "cattrs",
    "anyio",
    "yarl",
    "multidict",
    "aiohttp-sse-client2",
    "httpx",
    "httpx-sse",
    "langgraph-sdk",
    "openai",
    "anthropic",
    "uvloop",
)


def versions() -> dict[str, str]:
    """Return the version of every package that takes part and is installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Return what the figures were taken on."""
    return {
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": os.cpu_count(),
    }


def processor() -> str:
    """Return the processor's name, where the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def save(rows: list[Row], path: Path) -> None:
    """Write *rows* to *path*; rows of other names that it holds stay, with where and when they were taken."""
    day = datetime.now(UTC).date().isoformat()
    every = {fields["name"]: fields for fields in written_in(path)}
    every |= {row.name: {**written(row), "taken": day, "processor": processor()} for row in rows}
    document = {"taken": day, "machine": machine(), "versions": versions(), "rows": list(every.values())}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def written(row: Row) -> dict[str, Any]:
    """Return *row* as JSON has it: figures as [median, lower quartile, upper quartile]."""
    fields: dict[str, Any] = row._asdict()
    for name in ("costs", "ratios"):
        fields[name] = {key: [float(f"{x:.5g}") for x in each] for key, each in fields[name].items()}
    return fields


def written_in(path: Path) -> list[dict[str, Any]]:
    """Return the rows of *path* as JSON has them; none when there is no such file."""
    found: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    return found


def load(path: Path) -> dict[str, Row]:
    """Return the rows that *path* holds, by name; none when there is no such file."""
    rows = {}
    for fields in written_in(path):
        for name in ("costs", "ratios"):
            fields[name] = {key: Figure(*each) for key, each in fields[name].items()}
        rows[fields["name"]] = Row(**{name: fields[name] for name in Row._fields})
    return rows


def table(row: Row) -> str:
    """Return *row* as text: each subject's cost, and our cost over it with its quartiles."""
    lines = [f"{row.name} — {row.title}{', ' + row.unit if row.unit else ''}"]
    for name, cost in row.costs.items():
        line = f"  {name:<32}{cost.median:>12,.4g}"
        if name in row.ratios:
            ratio = row.ratios[name]
            line += f"   ours ÷ it {ratio.median:6.3f}  ({ratio.low:.3f} to {ratio.high:.3f})"
        if name in row.reach:
            reached = row.ratios[name].median <= row.reach[name]
            line += f"   reach ≤ {row.reach[name]}: {'yes' if reached else 'NO'}"
        lines.append(line)
    lines += [f"  {name}: {value:,.4g}" for name, value in row.notes.items()]
    return "\n".join(lines)
