"""A workflow as a picture, laid out here: steps in columns by what they depend on, lines between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

WIDTH, HEIGHT = 168, 62
GAP_X, GAP_Y = 52, 18
EDGE = 8


class Step(Protocol):
    """A stage of a job, or a step of a workflow."""

    @property
    def key(self) -> str: ...
    @property
    def depends_on(self) -> Sequence[str]: ...
    @property
    def follow(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Box:
    key: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Line:
    path: str
    each: bool
    """Item by item, not after all."""


@dataclass(frozen=True, slots=True)
class Graph:
    width: int
    height: int
    boxes: list[Box]
    lines: list[Line]


@dataclass(frozen=True, slots=True)
class Span:
    """A stage on the job's time line, of 1000."""

    key: str
    status: str
    x: int
    width: int
    started_at: datetime
    finished_at: datetime | None


def laid_out(steps: Iterable[Step]) -> Graph:
    """Steps come in an order in which they can run."""
    column: dict[str, int] = {}
    boxes: dict[str, Box] = {}
    rows: dict[int, int] = {}
    lines = []
    for step in steps:
        known = [key for key in step.depends_on if key in boxes]
        place = column[step.key] = max((column[key] + 1 for key in known), default=0)
        # Beside what it follows where that is free, else below what is there already.
        wanted = min((boxes[key].y for key in known), default=EDGE)
        y = max(wanted, rows.get(place, EDGE))
        rows[place] = y + HEIGHT + GAP_Y
        boxes[step.key] = box = Box(step.key, EDGE + place * (WIDTH + GAP_X), y)
        lines += [Line(_curve(boxes[key], box), step.follow == "each") for key in known]
    found = list(boxes.values())
    width = max((box.x for box in found), default=0) + WIDTH + EDGE
    height = max((box.y for box in found), default=0) + HEIGHT + EDGE
    return Graph(width, height, found, lines)


def _curve(start: Box, end: Box) -> str:
    x1, y1, x2, y2 = start.x + WIDTH, start.y + HEIGHT // 2, end.x - 5, end.y + HEIGHT // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"


class Timed(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def started_at(self) -> datetime | None: ...
    @property
    def finished_at(self) -> datetime | None: ...


def time_line(stages: Iterable[Timed], now: datetime) -> list[Span]:
    """Those that have begun, from the first beginning to the last end, or to now."""
    begun = [(stage, stage.started_at) for stage in stages if stage.started_at is not None]
    if not begun:
        return []
    first = min(start for _, start in begun)
    last = max(stage.finished_at or now for stage, _ in begun)
    whole = max((last - first).total_seconds(), 0.001)
    found = []
    for stage, start in begun:
        x = round(1000 * (start - first).total_seconds() / whole)
        end = round(1000 * ((stage.finished_at or now) - first).total_seconds() / whole)
        found.append(
            Span(stage.key, stage.status, min(x, 994), max(6, end - min(x, 994)), start, stage.finished_at)
        )  # fmt: skip
    return found
