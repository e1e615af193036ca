"""How values look to a person: ages, colours, tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

COLOURS = {
    "running": "cyan",
    "busy": "cyan",
    "claimed": "cyan",
    "completed": "green",
    "succeeded": "green",
    "applied": "green",
    "completed_with_errors": "yellow",
    "pause_requested": "yellow",
    "paused": "yellow",
    "interrupted": "yellow",
    "warn": "yellow",
    "failed": "red",
    "rejected": "red",
    "error": "red",
    "closed": "green",
    "open": "red",
    "half-open": "yellow",
    "canceled": "dim",
    "skipped": "dim",
}


def coloured(status: str) -> str:
    colour = COLOURS.get(status)
    return f"[{colour}]{status}[/{colour}]" if colour else status


def moment(at: datetime | None) -> str:
    """In the reader's own time zone, to the second."""
    return "" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def clock_time(at: datetime) -> str:
    return at.astimezone().strftime("%H:%M:%S.%f")[:-3]


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return str(timedelta(seconds=round(seconds)))


def span(start: datetime | None, end: datetime | None) -> str:
    return "" if start is None or end is None else duration((end - start).total_seconds())


def escaped(value: Any) -> str:
    """Text from outside, safe to print between rich's markup and to a terminal."""
    from rich.markup import escape

    text = "" if value is None else str(value)
    return escape("".join(c if c.isprintable() else " " for c in text))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()) -> Any:
    """A light table; columns named in `right` hold numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    grid = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    numbers = set(right)
    for column in columns:
        grid.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid
