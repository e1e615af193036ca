"""Small line charts above one another, as one SVG that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 760, 120, 86, 30, 30, 40
INK, SOFT, GRID, PAPER = "#1f2430", "#6b7280", "#d9dde3", "#ffffff"
COLOURS = ("#0b6bcb", "#b3541e", "#2e7d32", "#7b3fa0")


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: str
    lines: dict[str, Sequence[tuple[float, float]]]
    """By name: minutes and values. A panel starts at zero."""


def draw(title: str, panels: Sequence[Panel]) -> str:
    height = TOP + 10 + len(panels) * (PANEL + GAP) + 12
    end = max((x for panel in panels for line in panel.lines.values() for x, _ in line), default=1.0) or 1.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"',
        f' font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="{escape(title)}">',
        f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="600" fill="{INK}">{escape(title)}</text>',
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, TOP + 22 + number * (PANEL + GAP), end)
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, top: float, end: float) -> list[str]:
    highest = max((y for line in panel.lines.values() for _, y in line), default=1.0)
    ceiling = _ceiling(highest)
    bottom = top + PANEL
    parts = [f'<text x="{LEFT}" y="{top - 6}" fill="{INK}">{escape(panel.title)}</text>']
    for share in (0, 0.5, 1):
        y = bottom - share * PANEL
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="{GRID}"/>')
        text = f"{_short(share * ceiling)} {panel.unit}".strip()
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end" fill="{SOFT}">{escape(text)}</text>')
    for minute in _ticks(end):
        x = LEFT + minute / end * (WIDTH - LEFT - RIGHT)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle" fill="{SOFT}">{minute:g} min</text>')
    for number, (name, line) in enumerate(panel.lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(
            f"{LEFT + x / end * (WIDTH - LEFT - RIGHT):.1f},{bottom - y / ceiling * PANEL:.1f}" for x, y in line
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        if len(panel.lines) > 1:
            place = WIDTH - RIGHT - 60 * (len(panel.lines) - number - 1)
            parts.append(f'<text x="{place}" y="{top - 6}" text-anchor="end" fill="{colour}">{escape(name)}</text>')
    return parts


def _ceiling(highest: float) -> float:
    """A round number above it."""
    if highest <= 0:
        return 1.0
    scale = 10.0 ** (len(str(int(highest))) - 1) if highest >= 1 else 0.1
    return next(step * scale for step in (1, 2, 3, 4, 5, 6, 8, 10, 20) if step * scale >= highest)


def _ticks(end: float) -> list[float]:
    step = next((each for each in (0.25, 0.5, 1, 2, 5, 10, 20, 60) if end / each <= 8), 120)
    return [step * number for number in range(int(end / step) + 1)]


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
