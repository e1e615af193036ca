"""A limit: how many calls at once, and how many within a sliding window."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from dalsegno.errors import InputInvalid

LONGEST_WINDOW = 31 * 86_400.0
UNITS = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0,
         "d": 86_400.0, "day": 86_400.0}  # fmt: skip

SYSTEM_SETTINGS: dict[str, int] = {"queue_concurrency": 1, "queue_rate_limit_max": 2, "queue_batch_size": 10}
"""Settings that live in the database and change while everything runs, with their defaults."""


@dataclass(frozen=True, slots=True)
class Limit:
    """None is no limit. A name of a system setting instead of a number follows that setting."""

    concurrent: int | str | None = None
    rate: int | str | None = None
    window: float = 60.0
    """Seconds in which at most `rate` calls may begin, wherever the window is laid."""

    def __post_init__(self) -> None:
        for what, value in (("concurrent", self.concurrent), ("rate", self.rate)):
            if isinstance(value, str):
                if value not in SYSTEM_SETTINGS:
                    raise InputInvalid(problem=f'There is no system setting "{value}" for {what}.')
            elif value is not None and (isinstance(value, bool) or value < 0):
                raise InputInvalid(problem=f"A limit's {what} is a whole number from 0, not {value!r}.")
        if not math.isfinite(self.window) or not 0 < self.window <= LONGEST_WINDOW:
            raise InputInvalid(problem=f"A limit's window is more than 0 s and at most 31 days, not {self.window!r} s.")


def parse_rate(text: str) -> tuple[int, float]:
    """`2/min`, `100/15s`, `1000/day` as (most, seconds)."""
    found = re.fullmatch(r"\s*(\d+)\s*(?:/|per)\s*(\d+(?:\.\d+)?)?\s*([a-z]+?)s?\s*", text.strip().lower())
    unit = None if found is None else UNITS.get(found[3] or "s", UNITS.get(f"{found[3]}s"))
    if found is None or unit is None:
        raise InputInvalid(problem=f'"{text}" is not a rate. Write it as 2/min, 100/15s or 1000/day.')
    limit = Limit(rate=int(found[1]), window=float(found[2] or 1) * unit)
    assert isinstance(limit.rate, int)
    return limit.rate, limit.window
