"""What is to be done about the due times that have come: which are started, which are skipped, and when the next is.

Nothing here asks what time it is or what runs. `decide` goes over the due times from the first that nothing has been
decided about up to now, under the catch-up policy; `meet` says what a run does that finds an earlier one at work.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from dalsegno.model.cron import Cron

CatchUp = Literal["skip", "one", "all"]
Overlap = Literal["skip", "queue", "allow"]

ON_TIME = timedelta(seconds=60)
"""A due time that is seen this late or earlier was not missed."""
COUNTED = 10_000
"""Skipped due times that are counted; of more it is known that there were at least as many."""


@dataclass(frozen=True, slots=True)
class Decision:
    """About one due time, or about all from `due_at` to `last_due_at` that are skipped together."""

    due_at: datetime
    start: bool
    count: int = 1
    last_due_at: datetime | None = None


def decide(
    cron: Cron, first: datetime, now: datetime, catch_up: CatchUp, most: int
) -> tuple[list[Decision], datetime | None]:
    """Decisions about every due time from `first` to `now`, in order; and the due time after them.

    `first` is the due time that is next as far as anybody knows. Where it is still to come, nothing is decided, so a
    clock that was put back repeats nothing.
    """
    if first > now:
        return [], first
    chosen = cron.newest(first, now, most + 1 if catch_up == "all" else 1)
    on_time = bool(chosen) and now - chosen[-1] <= ON_TIME
    if catch_up == "skip" and not on_time:
        chosen = []
    elif catch_up == "all" and not on_time:
        chosen = chosen[-most:]
    decisions = [Decision(due, True) for due in chosen]
    before = skipped(cron, first, chosen[0] - timedelta(microseconds=1) if chosen else now)
    return ([before, *decisions] if before else decisions), cron.next(now)


def skipped(cron: Cron, first: datetime, last: datetime) -> Decision | None:
    """All due times between two moments, as one decision."""
    found = list(itertools.islice(cron.between(first, last), COUNTED))
    if not found:
        return None
    if len(found) == 1:
        return Decision(found[0], False)
    end = found[-1] if len(found) < COUNTED else cron.newest(first, last, 1)[0]
    return Decision(found[0], False, len(found), end)


def room_to_wait(catch_up: CatchUp, most: int) -> int:
    """How many runs may wait for an earlier one to end: as many as catching up would start."""
    return most if catch_up == "all" else 1


def meet(overlap: Overlap, *, busy: bool, waiting: int, room: int) -> Literal["start", "wait", "overlap", "full"]:
    """What a run does that has come: `busy` says whether the job of the last one is unfinished.

    `overlap` and `full` are the reasons for which it is skipped.
    """
    if overlap == "allow" or not (busy or waiting):
        return "start"
    if overlap == "skip":
        return "overlap" if busy else "start"
    return "wait" if waiting < room else "full"
