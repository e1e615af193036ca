"""The settler: every outcome becomes one write, in batches, fenced by the lease.

It also sees to it that what has begun is written down (within 100 ms, or together with the finish) and what progresses
(at most once a second), and ends attempts that take too long.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from dalsegno.engine.beginning import Beginning
from dalsegno.engine.crowd import Crowd
from dalsegno.engine.executor import AsyncLoop, Pool
from dalsegno.engine.grouping import tidy
from dalsegno.engine.item import Item
from dalsegno.engine.looper import Looper
from dalsegno.engine.meters import METERS
from dalsegno.engine.minutes import Minutes
from dalsegno.engine.planner import advance
from dalsegno.engine.progress import note_phase, note_progress
from dalsegno.engine.settlement import Ended, groups_of, write_settlement
from dalsegno.engine.verdict import UNSTORABLE, Rules, decide
from dalsegno.errors import CommandRefused, DalSegnoError
from dalsegno.model.outcome import Done, Fail, Outcome, PauseJob, Retry, Skip

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.engine")

BATCH = 500
BEGIN_AFTER = 0.05
"""Seconds after which a running item is written down as begun."""
PROGRESS_EVERY = 1.0
ENOUGH = 200
"""Outcomes that are settled at once."""
REST = 0.01
"""Seconds that fewer wait after a settle."""
BUSY_REST = 0.05
"""The same while workers have their next items already: what is settled a little later keeps nobody waiting."""
ADVANCE_BATCH = 50
MOST_JOBS = 200
"""Jobs whose progress is brought up to date in one go."""


class Settler(Looper):
    name = "settler"
    interval = BEGIN_AFTER

    def __init__(
        self,
        store: Store,
        pools: dict[str, Pool],
        loop: AsyncLoop,
        rules: Rules,
        pause_job: Callable[[Tx, int, str, str], None],
        report: Callable[[], None],
    ) -> None:
        super().__init__()
        self._store = store
        self._pools = pools
        self._loop = loop
        self._rules = rules
        self._pause_job = pause_job
        self._report = report
        self._ended: deque[Ended] = deque()
        self._in_hand: dict[int, Item] = {}
        self._quiet: set[int] = set()
        self._unsure: set[int] = set()
        """Items whose settle may have been written although it failed."""
        self._pausing: list[tuple[int, str, str]] = []
        self._moved_jobs: set[int] = set()
        self._last_progress = 0.0
        self._tidied = 0
        self.crowd = Crowd()
        self.minutes = Minutes()
        self._resting = False
        """After a settle, a few outcomes wait for company: a commit costs the same for one as for twenty."""
        self.beginning = Beginning(store)

    # --- what others ask ----------------------------------------------------------------------

    def put(self, item: Item, outcome: Outcome) -> None:
        self._ended.append((item, outcome))
        if not self._wake.is_set() and (not self._resting or len(self._ended) >= ENOUGH):
            self._wake.set()

    def hold(self, claimed: Iterable[Item]) -> None:
        idle = not self._in_hand
        self._in_hand.update((item.claimed.id, item) for item in claimed)
        if idle:
            self.wake()  # or it would sleep on, and notice a beginning or a timeout a second late

    def unsettled(self) -> int:
        return len(self._ended)

    def in_hand(self) -> set[int]:
        return set(self._in_hand)

    def stages_in_hand(self) -> set[int]:
        return {item.stage.id for item in list(self._in_hand.values())}

    def cancel(self, stage_ids: set[int]) -> None:
        told = [item for item in list(self._in_hand.values()) if item.stage.id in stage_ids and not item.cancelled]
        for item in told:
            item.cancelled = True
        for item in told:  # only now: items may share a call, and its end must find all of them told
            self._loop.cancel(item)

    def forget(self) -> None:
        """The leases are gone (this process was declared dead): nothing in hand may count any more."""
        for item in list(self._in_hand.values()):
            item.lost = item.cancelled = True
        self._in_hand.clear()

    def phase(self, item: Item) -> None:
        """Write a phase change at once, from the worker's thread. A database that is away is not the item's fault."""
        with suppress(DalSegnoError):
            if not item.begun:
                self.beginning.note([item])
            if not item.lost:
                self._store.write("phase", lambda tx: note_phase(tx, item))

    # --- the loop -----------------------------------------------------------------------------

    def tick(self) -> float | None:
        self._resting = True
        if self.crowd.look(max((len(pool.running) for pool in self._pools.values()), default=0)):
            for pool in self._pools.values():
                pool.look_again()
        self._begin_running()
        settled = bool(self._ended)
        if settled:
            self._settle_some()
        if self._quiet or self._pausing:
            self._follow_up()
        if self._store.clock.monotonic() - self._last_progress >= PROGRESS_EVERY:
            self._last_progress = self._store.clock.monotonic()
            self._write_progress()
        if len(self._ended) >= ENOUGH or self._stopping.is_set():
            return 0
        self._resting = settled
        if settled or self._ended:
            self._resting = True
            return BUSY_REST if any(pool.waiting for pool in self._pools.values()) else REST
        return None if self._in_hand else PROGRESS_EVERY

    def flush(self) -> None:
        """Settle everything that has ended; for shutdown, after the loop was stopped."""
        while self._ended or self._quiet or self._pausing:
            if self._ended:
                self._settle_some()
            self._follow_up()

    def _settle_some(self) -> None:
        batch = [self._ended.popleft() for _ in range(min(BATCH, len(self._ended)))]
        try:
            for group in groups_of(batch):
                self._settle(group)
        except BaseException:
            # What is settled is refused the second time; what is not must not be lost.
            left = [pair for pair in batch if not pair[0].settled]
            self._unsure.update(item.id for item, _ in left)
            self._ended.extendleft(reversed(left))
            raise

    def _settle(self, group: Sequence[Ended]) -> None:
        now = self._store.clock.now()
        rows = [decide(item, outcome, now, self._rules) for item, outcome in group]
        began = self._store.clock.monotonic()
        try:
            # PostgreSQL would end a lease as not begun that is just beginning, and count it wrong; or each would wait
            # for the other, since they lock item and lease in opposite orders.
            with self.beginning.lock if any(map(_may_be_beginning, group)) else nullcontext():
                done = self._store.write("settle", lambda tx: write_settlement(tx, group, rows))
        except DalSegnoError:
            raise
        except Exception as error:
            if len(group) > 1:  # find the one whose own write fails
                for pair in group:
                    self._settle([pair])
                return
            item, outcome = group[0]
            logger.exception("the outcome of %r could not be stored", item)
            text = ascii(f"{type(error).__name__}: {error}")
            if item.writes or item.records or item.notes:  # its own write failed: a failed attempt like any other
                item.writes = item.records = item.notes = item.farewells = ()
                self._settle([(item, Retry(text, code=type(error).__name__))])
            elif isinstance(outcome, Fail) and outcome.code == UNSTORABLE:
                raise
            else:
                self._settle([(item, Fail(text, code=UNSTORABLE))])
            return
        took = self._store.clock.monotonic() - began
        self._quiet |= done.quiet_jobs
        accepted = done.accepted
        self.minutes.settled(group, rows, accepted, now)
        for item, outcome in group:
            item.settled = True
            self._moved_jobs.add(item.claimed.job_id)
            if self._in_hand.get(item.claimed.id) is item:
                del self._in_hand[item.claimed.id]
            unsure = item.id in self._unsure
            self._unsure.discard(item.id)
            if item.claimed.id not in accepted:
                if unsure:  # it was written, and only the answer got lost: whether its job ran dry is unknown
                    self._quiet.add(item.job_id)
                elif not item.lost:
                    logger.warning("%r had lost its lease; its outcome was dropped", item)
            elif isinstance(outcome, PauseJob):
                self._pausing.append((item.job_id, outcome.reason, outcome.code))
            elif item.farewells and isinstance(outcome, Done | Skip):
                _say_farewell(item)
        METERS.settle(group, rows, accepted, now, took)

    def _follow_up(self) -> None:
        while self._pausing:
            job_id, reason, code = self._pausing[0]
            with suppress(CommandRefused):  # the job ended in the meantime
                self._store.write("pause", lambda tx, j=job_id, r=reason, c=code: self._pause_job(tx, j, r, c))  # type: ignore[misc]
            self._pausing.pop(0)
        while self._quiet:
            some = sorted(self._quiet)[:ADVANCE_BATCH]
            self._store.write("advance", lambda tx, some=some: advance(tx, some))  # type: ignore[misc]
            self._quiet.difference_update(some)

    # --- beginning, progress, timeouts --------------------------------------------------------

    def _begin_running(self) -> None:
        now = self._store.clock.now()
        late = []
        for pool in self._pools.values():
            for worker, item in pool.in_work():
                if item.started_at is None:
                    continue
                age = (now - item.started_at).total_seconds()
                if not item.begun and age >= BEGIN_AFTER:
                    late.append(item)
                if item.stage.timeout is not None and age >= item.stage.timeout:
                    self._time_out(pool, worker, item)
        if late:
            self.beginning.note(late)

    def _time_out(self, pool: Pool, worker: str, item: Item) -> None:
        if not pool.replace(worker, item):
            return
        item.cancelled = True
        pool.give_up_on(item)
        self._loop.cancel(item)
        self.put(item, Retry(f"took longer than {item.stage.timeout:g} seconds", code="timeout"))

    def _write_progress(self) -> None:
        moved = []
        for pool in self._pools.values():
            for _, item in pool.in_work():
                if (item.progressed or item.entered) and item.begun and not item.lost:
                    moved.append((item, item.progressed))
                    item.progressed = item.entered = False
        jobs_moved = sorted(self._moved_jobs)[:MOST_JOBS]
        if moved or jobs_moved:
            self._store.write("progress", lambda tx: note_progress(tx, moved, jobs_moved))
            self._moved_jobs.difference_update(jobs_moved)
        in_work = (item for pool in self._pools.values() for _, item in pool.in_work())
        self.minutes.moving(in_work, self._store.clock.now())
        hour = int(self._store.clock.now().timestamp()) // 3600
        if hour != self._tidied:
            self._tidied = hour
            self._store.write("tidy", tidy)
        self._report()


def _may_be_beginning(pair: Ended) -> bool:
    """Not handed in by its worker, which may be writing it down as begun: taken back while it waited, or given up."""
    item = pair[0]
    return not item.begun and (item.started_at is None or item.cancelled)


def _say_farewell(item: Item) -> None:
    for call in item.farewells:
        try:
            call()
        except Exception:
            logger.exception("%r is done, but could not tidy up", item)
