"""Rows in; a bar chart out, as SVG that reads on light and dark pages alike."""

from __future__ import annotations

from html import escape
from pathlib import Path

from .rounds import Row

__all__ = ["draw"]

WIDTH, LABEL, BAR, GAP = 720, 170, 20, 7
OURS = "mintlify-async"
LEFT_OUT = {"control", "bare"}
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#555}"
    ".t{font-weight:600;fill:#222}.b{fill:#9aa5b1}.o{fill:#0c8c5e}.f{fill:#d0d7de}"
    "@media(prefers-color-scheme:dark){text{fill:#aab}.t{fill:#eee}.b{fill:#66707c}.f{fill:#3d444d}}"
)


def draw(rows: list[Row], path: Path) -> None:
    """Draw each row as a group of bars and write the picture to *path*."""
    parts, top = [], 10
    for row in rows:
        drawn, height = group(row, top)
        parts.append(drawn)
        top += height + 22
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img">'
    path.write_text(f"{opening}<style>{STYLE}</style>{''.join(parts)}</svg>\n")


def group(row: Row, top: int) -> tuple[str, int]:
    """Return one row's bars, shortest first, and their height."""
    costs = {name: cost.median for name, cost in row.costs.items() if name not in LEFT_OUT}
    longest = max(costs.values())
    parts = [text(0, top + 14, f"{row.title} ({row.unit}, less is better)", "t")]
    y = top + 26
    for name, cost in sorted(costs.items(), key=lambda item: item[1]):
        length = max(2.0, (WIDTH - LABEL - 90) * cost / longest)
        kind = "o" if name == OURS else "f" if name == "aiohttp" else "b"
        label = "aiohttp, no parsing" if name == "aiohttp" and "import" not in row.title else name
        parts += [
            text(0, y + 15, label, "t" if name == OURS else ""),
            f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3"/>',
            text(LABEL + length + 8, y + 15, short(cost), ""),
        ]
        y += BAR + GAP
    return "".join(parts), y - top


def short(cost: float) -> str:
    """Return *cost* in few characters."""
    if cost >= 1e6:
        return f"{cost / 1e6:,.0f} M"
    return f"{cost / 1e3:,.0f} k" if cost >= 1e4 else f"{cost:,.3g}"


def text(x: float, y: float, content: str, kind: str) -> str:
    """Return a piece of text at a place."""
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}">{escape(content)}</text>'
