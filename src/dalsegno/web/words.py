"""How values look on a page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dalsegno.web.api.models import Stage

MARKS = {
    "queued": "○",
    "pending": "○",
    "running": "▶",
    "pause_requested": "‖",
    "paused": "‖",
    "completed": "✓",
    "completed_with_errors": "!",
    "failed": "✕",
    "skipped": "»",
    "canceled": "–",
}
"""A state is a shape and a word before it is a colour."""
WORDS = {"pause_requested": "pausing", "completed_with_errors": "completed, with errors"}
BAR = 1000
THINNEST = 8
"""Of 1000: one failure among a million items is still seen."""
SEGMENTS = (
    ("done", ("succeeded",)),
    ("skipped", ("skipped",)),
    ("failed", ("failed",)),
    ("interrupted", ("interrupted",)),
    ("canceled", ("canceled",)),
    ("running", ("running",)),
)


def word(status: str) -> str:
    return WORDS.get(status, status.replace("_", " "))


def mark(status: str) -> str:
    return MARKS.get(status, "○")


def size(count: float | None) -> str:
    if count is None:
        return ""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def rate(per_second: float | None) -> str:
    if not per_second:
        return ""
    return f"{per_second:.1f}/s" if per_second >= 0.95 else f"{per_second * 60:.1f}/min"


def span(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{max(0, seconds):.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")


def number(count: int) -> str:
    return f"{count:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def percent(fraction: float | None) -> str:
    """Not 100 before it is all of it."""
    return "" if fraction is None else f"{min(int(fraction * 100), 100)} %"


def segments(stage: Stage) -> list[tuple[str, int, int]]:
    """A stage's bar as (class, x, width), 1000 wide; what is left is the ground it lies on."""
    parts = [(name, sum(stage.counts[key] for key in keys)) for name, keys in SEGMENTS]
    whole = max(stage.expected or 0, stage.counts["total"], 1)
    widths = {name: max(THINNEST, round(BAR * count / whole)) for name, count in parts if count}
    excess = sum(widths.values()) - BAR
    if excess > 0:
        widths[max(widths, key=lambda name: widths[name])] -= excess
    found, x = [], 0
    for name, width in widths.items():
        found.append((name, x, width))
        x += width
    return found


def tally(stage: Stage) -> list[tuple[str, int]]:
    """The numbers under a bar that are worth saying."""
    counts = stage.counts
    left = None if stage.expected is None else stage.expected - stage.done - counts["running"] - counts["interrupted"]
    said = [(name, sum(counts[key] for key in keys)) for name, keys in SEGMENTS]
    return [(name, count) for name, count in (*said, ("left", left or 0)) if count > 0]


def share(done: int | None, whole: int | None) -> str:
    """Bytes of bytes, the unit said once where it is the same: `5.5 of 5.8 MB`."""
    if not done:
        return ""
    if not whole:
        return size(done)
    first, last = size(done), size(whole)
    number, _, unit = first.partition(" ")
    return f"{number if last.endswith(f' {unit}') else first} of {last}"


FILTERS: dict[str, Any] = {
    each.__name__: each
    for each in (word, mark, size, rate, span, utc, iso, number, percent, segments, tally, share)
}  # fmt: skip
