"""A limit: how many calls at once, and how many within a sliding window."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from dalsegno.errors import InputInvalid

LONGEST_WINDOW = 31 * 86_400.0
MOST = 1_000_000
SECONDS = {"s sec secs second seconds": 1.0, "m min mins minute minutes": 60.0, "h hour hours": 3600.0,
           "d day days": 86_400.0}  # fmt: skip
UNITS = {word: seconds for words, seconds in SECONDS.items() for word in words.split()}

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
            elif value is not None and (
                not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST
            ):
                raise InputInvalid(problem=f"A limit's {what} is a whole number from 0 to {MOST:,}, not {value!r}.")
        if not math.isfinite(self.window) or not 0 < self.window <= LONGEST_WINDOW:
            raise InputInvalid(problem=f"A limit's window is more than 0 s and at most 31 days, not {self.window!r} s.")


def parse_rate(text: str) -> tuple[int, float]:
    """`2/min`, `100/15s`, `1000/day` as (most, seconds)."""
    found = re.fullmatch(r"(\d{1,9})\s*(?:/|per)\s*(\d{1,9}(?:\.\d{1,9})?)?\s*([a-z]+)", text.strip().lower())
    unit = None if found is None else UNITS.get(found[3])
    if found is None or unit is None:
        raise InputInvalid(problem=f'"{text}" is not a rate. Write it as 2/min, 100/15s or 1000/day.')
    limit = Limit(rate=int(found[1]), window=float(found[2] or 1) * unit)
    assert isinstance(limit.rate, int)
    return limit.rate, limit.window
