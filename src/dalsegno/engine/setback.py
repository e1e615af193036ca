"""A clock that was ahead, and is right again: schedules go on from now, and not from where it had been.

What it had skipped and is still to come is open again. What it had started, or what failed or waits, has its record and
is never started once more; where records were forgotten meanwhile, a schedule waits until those that are left begin.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.engine import runs
from dalsegno.engine.runs import missed
from dalsegno.errors import CronInvalid, InputInvalid
from dalsegno.model.cron import parse_cron
from dalsegno.model.due import Decision, skipped
from dalsegno.store.hot import Event
from dalsegno.store.schema import UtcTime, schedule_runs, schedules

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

PAGE = 100
_PAGE = (
    sa.select(schedules)
    .where(schedules.c.next_at > sa.bindparam("now", type_=UtcTime), schedules.c.id > sa.bindparam("after"))
    .order_by(schedules.c.id)
    .limit(PAGE)
)


def mend(store: Store, by: str, stopping: Callable[[], bool] = lambda: False) -> list[str]:
    """Every schedule whose next time is later than the one that comes next; returns their names."""
    mended: list[str] = []
    after = 0
    while not stopping():
        now, page = store.read(lambda tx, after=after: _page(tx, after))  # type: ignore[misc]
        ahead = [row for row in page if comes(row, now) is not None]
        mended += [row["name"] for row in ahead if store.write("schedule", lambda tx, row=row: _mend(tx, row, by))]  # type: ignore[misc]
        if len(page) < PAGE:
            break
        after = page[-1]["id"]
    return mended


def _page(tx: Tx, after: int) -> tuple[datetime, list[sa.RowMapping]]:
    now = tx.hot.common_now(tx)
    return now, tx.rows(_PAGE, {"now": now, "after": after})


def comes(row: sa.RowMapping, now: datetime) -> datetime | None:
    """The time that comes next, where that is before the one which is written down as next."""
    try:
        first = parse_cron(row["cron"], row["time_zone"]).next(now)
    except (CronInvalid, InputInvalid):
        return None
    return first if first is not None and first < row["next_at"] else None


def _mend(tx: Tx, seen: sa.RowMapping, by: str) -> bool:
    """Unless somebody else has just moved it on."""
    as_seen = (schedules.c.id == seen["id"], schedules.c.next_at == seen["next_at"])
    row = tx.row(sa.select(schedules).where(*as_seen).with_for_update(skip_locked=True))
    if row is None:
        return False
    now = tx.hot.common_now(tx)
    first = comes(row, max(now, _known_from(tx, row) or now))
    if first is None:
        return False
    reopen(tx, row, now)
    tx.conn.execute(sa.update(schedules).where(schedules.c.id == row["id"]).values(next_at=first))
    said = (
        f"A clock had been ahead: it is due at {first:%Y-%m-%d %H:%M} UTC, not only at {row['next_at']:%Y-%m-%d %H:%M}."
    )
    data = {"schedule": row["name"]}
    tx.hot.insert_events(tx, [Event("schedule_resumed", by, level="warn", message=said, data=data)])
    tx.announce("schedules")
    return True


def _known_from(tx: Tx, row: sa.RowMapping) -> datetime | None:
    """Just before the oldest record that is kept, where older ones were forgotten: any may have been a start."""
    own = schedule_runs.c.schedule_id == row["id"]
    count, oldest = tx.conn.execute(
        sa.select(sa.func.count(), sa.func.min(schedule_runs.c.due_at)).where(own)
    ).one()  # fmt: skip
    return oldest - timedelta(microseconds=1) if count >= runs.KEPT else None


def reopen(tx: Tx, row: sa.RowMapping, now: datetime) -> None:
    """Times that were skipped before they came are open again."""
    own = (schedule_runs.c.schedule_id == row["id"], schedule_runs.c.outcome == "skipped")
    gone = tx.conn.execute(sa.delete(schedule_runs).where(*own, schedule_runs.c.due_at > now)).rowcount
    for run in tx.rows(sa.select(schedule_runs).where(*own, schedule_runs.c.last_due_at > now)):
        first: datetime = run["due_at"]
        left = _until(row, first, now)
        values: dict[str, Any] = {"count": left.count, "last_due_at": left.last_due_at}
        if run["reason"] == "missed":
            values["message"] = missed(left)
        tx.conn.execute(sa.update(schedule_runs).where(schedule_runs.c.id == run["id"]).values(**values))
    if gone:
        newest = sa.select(sa.func.max(schedule_runs.c.id)).where(schedule_runs.c.schedule_id == row["id"])
        last = sa.select(schedule_runs.c.id).where(schedule_runs.c.id == schedules.c.last_run_id).exists()
        lost = sa.update(schedules).where(schedules.c.id == row["id"], ~last)
        tx.conn.execute(lost.values(last_run_id=newest.scalar_subquery()))


def _until(row: sa.RowMapping, first: datetime, now: datetime) -> Decision:
    with suppress(CronInvalid, InputInvalid):  # a zone that this machine does not know
        return skipped(parse_cron(row["cron"], row["time_zone"]), first, now) or Decision(first, False)
    return Decision(first, False)
