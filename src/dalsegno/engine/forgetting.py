"""Events and logs that are old go: on PostgreSQL by the month, on SQLite from the beginning of the table.

A lane that keeps its own shorter than the others loses them job by job, in the order in which its jobs finished.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol

import sqlalchemy as sa

from dalsegno.engine.marks import ALL, Mark, mark_of, set_mark
from dalsegno.engine.pruning import LOCK, Pace, Taken, sure_now
from dalsegno.model.retention import FOR_EVER, Policy, cutoff
from dalsegno.store.months import (
    Busy,
    Month,
    drop_month,
    ensure_ahead,
    execute,
    lock_month,
    months,
    rows_of,
    wait_briefly,
)
from dalsegno.store.schema import archives, bulk_items, bulk_jobs, commands, events, items, jobs, logs, stages

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.engine")

Kind = Literal["events", "logs"]
A_JOB = 50
"""Rows that a look at a job counts for, however few it has."""
TABLES: dict[Kind, sa.Table] = {"events": events, "logs": logs}
RESTORED = timedelta(days=30)
"""A month that was brought back stays for so long."""


class MonthChanged(Exception):
    """Something was added to it after it was put away."""


class Keep(Protocol):
    """Puts months away where they can be brought back from."""

    def keep(self, month: Month) -> Generator[None, None, bool]:
        """Whether it may go now, in steps."""
        ...

    def dropping(self, tx: Tx, month: Month) -> None:
        """In the transaction that drops it; raises MonthChanged where it must stay."""
        ...


def make_months(store: Store) -> None:
    """Before the first event is written after a long time: one that falls into the default month keeps its own from
    being made. Whoever cannot do it now starts all the same, and the pruner tries again."""

    def work(tx: Tx) -> None:
        wait_briefly(tx)
        execute(tx, f"SELECT pg_advisory_xact_lock({LOCK})")
        ensure_ahead(tx)

    if not store.shared:
        return
    try:
        store.write("months", work)
    except Busy:
        logger.info("somebody reads or prunes at this moment; months of events and logs are made later")
    except Exception:
        logger.exception("months of events and logs could not be made ahead")


def forget_old(store: Store, pace: Pace, policy: Policy, keep: Keep | None = None) -> Iterator[Taken]:
    """What no lane wants any more."""
    if store.shared:
        yield from _months(store, pace, policy, keep)
        return
    for kind, table in TABLES.items():
        before = cutoff(store.read(sure_now), policy.longest(kind))
        if before is None or not store.read(_any_older(table, before)):
            continue
        gone = 1
        while gone:

            def work(tx: Tx, kind: Kind = kind, table: sa.Table = table, before: datetime = before) -> int:
                found = _oldest(tx, table, before, pace.rows)
                set_mark(tx, ALL, kind, removed=found)
                return found

            gone = pace.step(store, work)
            yield Counter({kind: gone})


def _any_older(table: sa.Table, before: datetime) -> Callable[[Tx], bool]:
    """Among the first few, so that a round that finds nothing writes nothing."""
    first = sa.select(table.c.at).order_by(table.c.id).limit(100).subquery()
    query = sa.select(first.c.at).where(first.c.at < before).limit(1)
    return lambda tx: tx.row(query) is not None


def _oldest(tx: Tx, table: sa.Table, before: datetime, rows: int) -> int:
    """The last row stays: SQLite would give its number to the next, and readers go by numbers."""
    newest = tx.conn.execute(sa.select(sa.func.max(table.c.id))).scalar()
    if newest is None:
        return 0
    end = tx.conn.execute(sa.select(table.c.id).order_by(table.c.id).limit(1).offset(rows - 1)).scalar()
    upto = newest - 1 if end is None else min(end, newest - 1)
    return tx.conn.execute(sa.delete(table).where(table.c.id <= upto, table.c.at < before)).rowcount


def _months(store: Store, pace: Pace, policy: Policy, keep: Keep | None) -> Generator[Taken, None, None]:
    with suppress(Busy):
        pace.step(store, ensure_ahead)
    yield Counter()
    if keep is None:  # whoever wants them dropped unseen says so: RETENTION_ARCHIVE=off is a Keep, too
        return
    for month in store.read(old_months(policy)):
        if not (yield from _kept(keep, month)):
            continue

        rows = store.read(lambda tx, month=month: rows_of(tx, month))  # type: ignore[misc]

        def work(tx: Tx, month: Month = month, rows: int = rows) -> None:
            lock_month(tx, month)
            keep.dropping(tx, month)
            drop_month(tx, month)
            set_mark(tx, ALL, month.table, removed=rows)

        try:
            pace.step(store, work)
        except (Busy, MonthChanged):
            continue  # the next round finds it again
        yield Counter({month.table: rows, "months": 1})


def _kept(keep: Keep, month: Month) -> Generator[Taken, None, bool]:
    steps = keep.keep(month)
    try:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bool(end.value)
            yield Counter()
    finally:
        steps.close()


def old_months(policy: Policy) -> Callable[[Tx], list[Month]]:
    """Those whose last moment has been kept long enough, and that were not brought back of late."""

    def read(tx: Tx) -> list[Month]:
        now = sure_now(tx)
        back = sa.select(archives.c.name).where(archives.c.restored_at > now - RESTORED)
        stay = set(tx.conn.execute(back).scalars())
        before = {kind: cutoff(now, policy.longest(kind)) for kind in TABLES}
        return [
            month
            for month in months(tx)
            if month.until is not None
            and (end := before[_kind(month)]) is not None
            and month.until <= end
            and month.name not in stay
        ]

    return read


def _kind(month: Month) -> Kind:
    return "events" if month.table == "events" else "logs"


def forget_bulk(store: Store, pace: Pace, policy: Policy) -> Iterator[Taken]:
    """Which items a command about many of them changed, once its jobs would be gone; the command itself stays."""
    before = cutoff(store.read(sure_now), policy.general.jobs)
    for table in (bulk_items, bulk_jobs):
        while before is not None and (oldest := store.read(_oldest_command(table, before))) is not None:

            def work(tx: Tx, table: sa.Table = table, oldest: int = oldest) -> int:
                return _changed_by(tx, table, oldest, pace.rows)

            pace.step(store, work)
            yield Counter()


def _oldest_command(table: sa.Table, before: datetime) -> Callable[[Tx], int | None]:
    first = sa.select(table.c.command_id).order_by(table.c.command_id).limit(1).scalar_subquery()
    query = sa.select(commands.c.id).where(commands.c.id == first, commands.c.applied_at < before)
    return lambda tx: tx.conn.execute(query).scalar()


def _changed_by(tx: Tx, table: sa.Table, oldest: int, rows: int) -> int:
    key = list(table.primary_key.columns)
    some = sa.select(*key).where(table.c.command_id == oldest).order_by(*key).limit(rows)
    return tx.conn.execute(sa.delete(table).where(sa.tuple_(*key).in_(some))).rowcount


# --- lanes that keep their own shorter ----------------------------------------------------------------


def shorter(policy: Policy, lane: str, kind: Kind) -> float | None:
    """The days of a lane that keeps its own shorter than the others."""
    days, longest = getattr(policy.of(lane), kind), policy.longest(kind)
    return None if days == FOR_EVER or (longest != FOR_EVER and days >= longest) else days


def forget_lane(store: Store, pace: Pace, policy: Policy, lane: str) -> Iterator[Taken]:
    for kind in TABLES:
        days = shorter(policy, lane, kind)
        if days is None:
            continue
        before = cutoff(store.read(sure_now), days)
        assert before is not None
        taken: Taken = Counter(more=1)
        while taken["more"]:

            def work(tx: Tx, kind: Kind = kind, before: datetime = before) -> Taken:
                return _of_some_jobs(tx, lane, kind, before, pace.rows)

            taken = pace.step(store, work)
            yield Counter({kind: taken[kind]})


def _of_some_jobs(tx: Tx, lane: str, kind: Kind, before: datetime, rows: int) -> Taken:
    """As many as fit into a step; `more`: there may be others."""
    total: Taken = Counter()
    while rows > 0:
        taken = _of_one_job(tx, lane, kind, before, rows)
        total[kind] += taken[kind]
        total["more"] = taken["more"]
        if not taken["more"]:
            break
        rows -= max(taken[kind], A_JOB)
    return total


def _of_one_job(tx: Tx, lane: str, kind: Kind, before: datetime, rows: int) -> Taken:
    mark = mark_of(tx, lane, kind) or {}
    job = tx.row(next_jobs(lane, before, mark).limit(1))
    if job is None:
        set_mark(tx, lane, kind)
        return Counter()
    place: Mark = {"at": job["finished_at"].isoformat(), "id": job["id"]}
    within = mark.get("within") if mark.get("job") == job["id"] else None
    if kind == "logs":
        some = sa.select(logs.c.id).where(logs.c.job_id == job["id"]).limit(rows)
        gone = _delete(tx, logs, logs.c.id.in_(some))
        onward: Mark | None = {} if gone == rows else None
    else:
        gone, onward = _events_of(tx, job["id"], within, rows)
    if onward is None:
        set_mark(tx, lane, kind, removed=gone, mark=place)
    else:
        set_mark(tx, lane, kind, removed=gone, mark={**_only(mark), "job": job["id"], "within": onward})
    return Counter({kind: gone, "more": 1})


def next_jobs(lane: str, before: datetime, mark: Mark) -> sa.Select[Any]:
    """Those that finished after the place of the mark, oldest first."""
    query = sa.select(jobs.c.id, jobs.c.finished_at).where(
        jobs.c.lane == lane, jobs.c.finished_at.is_not(None), jobs.c.finished_at < before
    )
    if "at" in mark:
        at = sa.literal(datetime.fromisoformat(mark["at"]), jobs.c.finished_at.type)
        query = query.where(sa.tuple_(jobs.c.finished_at, jobs.c.id) > sa.tuple_(at, sa.literal(mark["id"])))
    return query.order_by(jobs.c.finished_at, jobs.c.id)


def _events_of(tx: Tx, job_id: int, within: Mark | None, rows: int) -> tuple[int, Mark | None]:
    """Of so many of its items, and where to go on; its own come with the first."""
    gone = 0
    if within is None:
        gone = _delete(tx, events, sa.and_(events.c.job_id == job_id, events.c.item_id.is_(None)))
        within = {"stage": 0, "seq": 0}
    order = sa.tuple_(items.c.stage_id, items.c.seq)
    own = sa.select(stages.c.id).where(stages.c.job_id == job_id, stages.c.id >= within["stage"]).order_by(stages.c.id)
    for stage in tx.conn.execute(own).scalars().all():
        after = within["seq"] if stage == within["stage"] else 0
        some = tx.rows(
            sa.select(items.c.id, items.c.seq)
            .where(items.c.stage_id == stage, order > sa.tuple_(sa.literal(stage), sa.literal(after)))
            .order_by(items.c.seq)
            .limit(max(1, rows // 3))  # an item has about three
        )
        if some:
            gone += _delete(tx, events, events.c.item_id.in_([row["id"] for row in some]))
            return gone, {"stage": stage, "seq": some[-1]["seq"]}
    return gone, None


def _delete(tx: Tx, table: sa.Table, where: sa.ColumnElement[bool]) -> int:
    """The last row stays, as above."""
    conditions: list[Any] = [where]
    if not tx.shared:
        conditions.append(table.c.id < sa.select(sa.func.max(table.c.id)).scalar_subquery())
    return tx.conn.execute(sa.delete(table).where(*conditions)).rowcount


def _only(mark: Mark) -> Mark:
    """The place alone, without what is under way behind it."""
    return {name: mark[name] for name in ("at", "id") if name in mark}
