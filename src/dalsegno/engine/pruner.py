"""The pruner: a loop that goes its round every minute, one small step at a time, with a breath between them.

A round that is not over when the next one is due has fallen behind: it breathes less, and the next one follows at once.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.engine.forgetting import Keep, forget_bulk, forget_lane, forget_old
from dalsegno.engine.looper import Looper
from dalsegno.engine.pruning import Elsewhere, Pace, Taken, prune_failed, prune_jobs
from dalsegno.model.retention import KEEP_ALL, Policy
from dalsegno.store.hot import Event
from dalsegno.store.schema import lanes, system_settings
from dalsegno.store.tidying import give_back

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.engine")

FIRST_AFTER = 30.0
"""Seconds after the start: whoever starts has something else to do first."""
EVERY = 60.0
BREATH, LONGEST_BREATH = 0.02, 0.1
"""Seconds between two steps: as long as the step took, within these; who is behind takes the shortest."""
LAST = "retention.last"
"""The key in system_settings that tells of the last round."""
TOLD = ("jobs", "items", "artifacts", "events", "logs", "months")
Policies = Callable[[Iterable[str]], Policy]
"""What is to be kept of which lanes, as the settings say now."""


def default_policy(_lanes: Iterable[str]) -> Policy:
    """Of an engine that was told nothing, on a database that is its own."""
    return Policy()


def keep_all(_lanes: Iterable[str]) -> Policy:
    return KEEP_ALL


class Pruner(Looper):
    name = "pruner"
    interval = 5.0

    def __init__(self, store: Store, policies: Policies | None = None, keep: Keep | None = None) -> None:
        super().__init__()
        self._store = store
        self._policies = policies or default_policy
        self._keep = keep
        self._pace = Pace()
        self._round: Generator[Taken, None, None] | None = None
        self._due = time.monotonic() + FIRST_AFTER

    def start(self) -> None:
        self._due = time.monotonic() + FIRST_AFTER
        super().start()

    def stop(self, timeout: float | None = None) -> None:
        super().stop(timeout)
        if self._round is not None and (self._thread is None or not self._thread.is_alive()):
            self._round.close()

    def tick(self) -> float | None:
        if self._round is None:
            if time.monotonic() < self._due:
                return None
            self._due = time.monotonic() + EVERY
            self._round = one_round(self._store, self._policies, self._pace, self._keep)
        try:
            next(self._round)
        except (StopIteration, Elsewhere):
            self._round = None
            return None
        except BaseException:
            self._round = None
            raise
        behind = time.monotonic() > self._due
        return BREATH if behind else min(max(BREATH, self._pace.seconds), LONGEST_BREATH)


def one_round(
    store: Store,
    policies: Policies = default_policy,
    pace: Pace | None = None,
    keep: Keep | None = None,
    *,
    again: bool = False,
) -> Generator[Taken, None, None]:
    """Everything that is due now. Each step says what it took; the last one writes down what they took together.

    `again`: jobs that stayed in an earlier round are looked at once more, and not only once a week.
    """
    pace = pace or Pace()
    total: Taken = Counter()
    names = store.read(lambda tx: list(tx.conn.execute(sa.select(lanes.c.name).order_by(lanes.c.name)).scalars()))
    policy = policies(names)
    for taken in _steps(store, pace, policy, names, keep, again=again):
        total += taken
        yield taken
    if not store.shared and any(total[kind] for kind in TOLD):
        while pace.step(store, lambda tx: give_back(tx, pace.rows)):
            yield Counter()
    if policy != KEEP_ALL:  # or nobody would be told that those who prune have stopped
        pace.step(store, lambda tx: _tell(tx, total))


def _steps(
    store: Store, pace: Pace, policy: Policy, names: list[str], keep: Keep | None, *, again: bool
) -> Iterator[Taken]:
    for lane in names:
        rule = policy.of(lane)
        yield from forget_lane(store, pace, policy, lane)  # first: what a job said is found by the job
        yield from prune_jobs(store, pace, lane, rule, again=again)
        yield from prune_failed(store, pace, lane, rule)
    yield from forget_bulk(store, pace, policy)
    yield from forget_old(store, pace, policy, keep)


def _tell(tx: Tx, total: Taken) -> None:
    told: dict[str, Any] = {kind: total[kind] for kind in TOLD if total[kind]}
    if told:
        tx.hot.insert_events(tx, [Event("pruned", "retention", data=told)])
    values = {"value": {"at": tx.now.isoformat(), "removed": told}, "updated_by": "retention", "updated_at": tx.now}
    if tx.insert_new(system_settings, {"key": LAST, **values}) is None:
        tx.conn.execute(sa.update(system_settings).where(system_settings.c.key == LAST).values(**values))
