"""The settler: every outcome becomes one write, in batches, fenced by the lease.

It also writes down what has begun (within 100 ms, or together with the finish), what progresses (at most once a
second), and ends attempts that take too long.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.engine.crowd import Crowd
from dalsegno.engine.executor import AsyncLoop, Pool
from dalsegno.engine.follower import follow
from dalsegno.engine.grouping import note_errors, tidy
from dalsegno.engine.item import Item
from dalsegno.engine.looper import Looper
from dalsegno.engine.meters import METERS
from dalsegno.engine.minutes import Minutes
from dalsegno.engine.planner import advance
from dalsegno.engine.verdict import UNSTORABLE, Rules, decide
from dalsegno.errors import CommandRefused, DalSegnoError
from dalsegno.model.outcome import Done, Fail, Outcome, PauseJob, Retry, Skip
from dalsegno.model.states import ITEM_SATISFIED, JOB_ACTIVE, STAGE_FINISHED, ItemStatus
from dalsegno.store.hot import Event, Settled, Settlement
from dalsegno.store.schema import artifacts, items, jobs, stages, waits

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

Ended = tuple[Item, Outcome]


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
        self._beginning = threading.Lock()
        self._line: deque[Item] = deque()
        """Items whose workers wait until it is written that they have begun."""

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

    def begin(self, call: Sequence[Item], soon: Callable[[], list[Item]] = list) -> bool:
        """Write down that these have begun, before their handler runs. False: all of them had lost their lease.

        After a crash there are thousands, each with a commit to wait for: one worker writes for all who wait in line,
        and for what will run `soon`.
        """
        self._line.extend(call)
        with self._beginning:
            if not all(item.begun for item in call):
                others = [self._line.popleft() for _ in range(len(self._line))]
                self._write_begun(dict.fromkeys([*call, *others, *soon()]))
        return not all(item.lost for item in call)

    def phase(self, item: Item) -> None:
        """Write a phase change at once, from the worker's thread. A database that is away is not the item's fault."""
        with suppress(DalSegnoError):
            self._write_phase(item)

    def _write_phase(self, item: Item) -> None:
        if not item.begun:
            self._begin([item])
        if item.lost:
            return

        def work(tx: Tx) -> None:
            moved = tx.conn.execute(_fenced(item).values(phase=item.current_phase)).rowcount
            if moved:
                event = Event("item_phase", item.worker, item.job_id, item.stage.id, item.id,
                              data={"phase": item.current_phase})  # fmt: skip
                tx.hot.insert_events(tx, [event])

        self._store.write("phase", work)

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
            for group in _groups(batch):
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
            with self._beginning if any(map(_may_be_beginning, group)) else nullcontext():
                done = self._store.write("settle", lambda tx: _write(tx, group, rows))
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
            self._begin(late)

    def _begin(self, some: list[Item]) -> None:
        with self._beginning:  # a worker that enters a phase and the loop may want to begin the same item
            self._write_begun(some)

    def _write_begun(self, some: Iterable[Item]) -> None:
        """Of those that still wait, nobody knows yet which worker will take them."""
        now = self._store.clock.now()
        fresh = [item for item in some if not item.begun]
        rows = [(item.id, item.claimed.lease, item.started_at or now, item.worker or None) for item in fresh]
        accepted = self._store.write("begin", lambda tx: tx.hot.begin(tx, rows)) if rows else set()
        for item in fresh:
            item.begun = True
            if item.id not in accepted and not item.settled:
                item.lost = item.cancelled = True

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
            self._store.write("progress", lambda tx: _store_progress(tx, moved, jobs_moved))
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


def _groups(batch: list[Ended]) -> Iterable[list[Ended]]:
    """Items that others follow go job by job: their transaction also locks the followers' stages."""
    plain: list[Ended] = []
    by_job: dict[int, list[Ended]] = {}
    for pair in batch:
        (by_job.setdefault(pair[0].job_id, []) if pair[0].stage.followed_by else plain).append(pair)
    if plain:
        yield plain
    yield from by_job.values()


def _write(tx: Tx, group: Sequence[Ended], rows: Sequence[Settled]) -> Settlement:
    done = tx.hot.settle(tx, rows)
    satisfied = []
    failures: dict[int, Settled] = {}
    errors: list[tuple[str, Settled]] = []
    waiting: list[dict[str, Any]] = []
    recorded: dict[Callable[[sa.Connection, list[Any]], None], list[Any]] = {}
    for (item, _), row in zip(group, rows, strict=True):
        if row.plain and not (item.artifacts or item.writes or item.records or item.notes or item.stage.followed_by):
            continue
        if row.id not in done.accepted:
            continue
        for note in item.notes:
            note(tx.conn)
        if row.error_code is not None:
            errors.append((item.stage.service, row))
        if row.status in ITEM_SATISFIED:
            if item.artifacts:
                tx.conn.execute(sa.insert(artifacts), [_artifact(item, a, tx.now) for a in item.artifacts])
            for write in item.writes:
                write(tx.conn)
            for write_all, own in item.records:
                recorded.setdefault(write_all, []).append(own)
            if item.stage.followed_by:
                satisfied.append((item, row.result))
        elif row.status == ItemStatus.FAILED:
            failures[row.stage_id] = row
        elif row.waits_for is not None:
            waiting.append(_wait(item, row.waits_for, tx.now))
        elif row.status == ItemStatus.PENDING:
            tx.announce("due" if row.due_at is not None else f"work:{item.stage.service}")
    for write_all, own_rows in recorded.items():
        write_all(tx.conn, own_rows)
    if waiting:
        tx.conn.execute(sa.delete(waits).where(waits.c.item_id.in_([row["item_id"] for row in waiting])))
        tx.conn.execute(sa.insert(waits), waiting)
        tx.announce("flow")
    if satisfied:
        done.quiet_jobs.update(follow(tx, satisfied))
    for stage_id, row in sorted(failures.items()):
        tx.conn.execute(sa.update(stages).where(stages.c.id == stage_id).values(last_error=row.error_message))
    if errors:
        note_errors(tx, errors)
    return done


def _say_farewell(item: Item) -> None:
    for call in item.farewells:
        try:
            call()
        except Exception:
            logger.exception("%r is done, but could not tidy up", item)


def _artifact(item: Item, artifact: Any, now: datetime) -> dict[str, Any]:
    return {
        **artifact._asdict(),
        "job_id": item.job_id,
        "stage_id": item.stage.id,
        "item_id": item.id,
        "created_at": now,
    }


def _wait(item: Item, name: str, now: datetime) -> dict[str, Any]:
    claimed = item.claimed
    return {"item_id": claimed.id, "name": name, "stage_id": claimed.stage_id, "job_id": claimed.job_id,
            "seq": claimed.seq, "since": now}  # fmt: skip


def _fenced(item: Item) -> sa.Update:
    return sa.update(items).where(
        items.c.id == item.id, items.c.lease == item.claimed.lease, items.c.status == ItemStatus.RUNNING
    )


# A job is as far along as its stages are on average: totals of stages that are not planned yet are unknown.
_done = stages.c.succeeded + stages.c.failed + stages.c.skipped + stages.c.canceled
_share = sa.case(
    (stages.c.status.in_(sorted(STAGE_FINISHED)), 1.0),
    (stages.c.total > 0, _done * 1.0 / stages.c.total),
    else_=0.0,
)
_JOB_PROGRESS = (
    sa.update(jobs)
    .where(jobs.c.id.in_(sa.bindparam("ids", expanding=True)), jobs.c.status.in_(sorted(JOB_ACTIVE)))
    .values(progress=sa.select(sa.func.avg(_share)).where(stages.c.job_id == jobs.c.id).scalar_subquery())
)


def _store_progress(tx: Tx, moved: list[tuple[Item, bool]], job_ids: list[int]) -> None:
    """Each with whether the service said it got on: entering a phase alone does not clear its interruptions."""
    for item, progressed in sorted(moved, key=lambda pair: pair[0].id):
        told = {"phase": item.current_phase, "progress": item.fraction, "progress_text": item.text}
        tx.conn.execute(_fenced(item).values(told | {"interruptions": 0} if progressed else told))
    if job_ids:
        tx.conn.execute(_JOB_PROGRESS, {"ids": job_ids})
