"""What became of a schedule's due times: one row each, at most once each, the last thousand kept."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.model.due import COUNTED, Decision
from dalsegno.model.states import JOB_UNFINISHED
from dalsegno.store.schema import jobs, schedule_runs, schedules

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

KEPT = 1000
"""Runs of a schedule that are remembered."""
WAITING = schedule_runs.c.outcome == sa.literal_column("'waiting'")
"""In the very words of the index on runs that wait: SQLite compares the words."""
LONGEST_MESSAGE = 2000

_OLD = (
    sa.select(schedule_runs.c.due_at)
    .where(schedule_runs.c.schedule_id == sa.bindparam("schedule"))
    .order_by(schedule_runs.c.due_at.desc())
    .offset(sa.bindparam("kept"))
    .limit(1)
)
_FORGET = sa.delete(schedule_runs).where(
    schedule_runs.c.schedule_id == sa.bindparam("schedule"),
    schedule_runs.c.due_at <= _OLD.scalar_subquery(),
    schedule_runs.c.outcome != "waiting",
)


def record(
    tx: Tx,
    schedule: sa.RowMapping,
    due_at: datetime,
    outcome: str,
    *,
    reason: str | None = None,
    message: str | None = None,
    job_id: int | None = None,
    count: int = 1,
    last_due_at: datetime | None = None,
    requested_by: str | None = None,
) -> int | None:
    """Write down what became of a due time; None: that was written already, and must not be done again.

    The schedule's row is locked. Returns the number of the run.
    """
    number = tx.insert_new(
        schedule_runs,
        {
            "schedule_id": schedule["id"], "due_at": due_at, "outcome": outcome, "reason": reason,
            "message": message and message[:LONGEST_MESSAGE], "job_id": job_id, "count": count,
            "last_due_at": last_due_at, "requested_by": requested_by, "at": tx.now,
        },
    )  # fmt: skip
    if number is None:
        return None
    _last(tx, schedule, number, last_due_at or due_at, job_id)
    tx.conn.execute(_FORGET, {"schedule": schedule["id"], "kept": KEPT})
    return int(number)


def settle(
    tx: Tx, schedule: sa.RowMapping, run: sa.RowMapping, outcome: str, *,
    reason: str | None = None, message: str | None = None, job_id: int | None = None,
) -> None:  # fmt: skip
    """What became of a run that waited."""
    values: dict[str, Any] = {"outcome": outcome, "reason": reason, "job_id": job_id, "at": tx.now}
    values["message"] = message and message[:LONGEST_MESSAGE]
    tx.conn.execute(sa.update(schedule_runs).where(schedule_runs.c.id == run["id"]).values(**values))
    _last(tx, schedule, run["id"], run["due_at"], job_id)


def skip_waiting(tx: Tx, schedule: sa.RowMapping, reason: str, message: str) -> None:
    """None of those that wait is to be started any more."""
    own = (schedule_runs.c.schedule_id == schedule["id"], WAITING)
    values = {"outcome": "skipped", "reason": reason, "message": message[:LONGEST_MESSAGE], "at": tx.now}
    tx.conn.execute(sa.update(schedule_runs).where(*own).values(**values))


def missed(decision: Decision) -> str:
    if decision.count == 1:
        return "No engine was at work when it was due."
    more = " at least" if decision.count == COUNTED else ""
    return f"No engine was at work when they were due:{more} {decision.count:,} due times."


def waiting(tx: Tx, schedule_id: int) -> int:
    """How many runs wait. There is room for a thousand at most."""
    own = (schedule_runs.c.schedule_id == schedule_id, WAITING)
    return tx.conn.execute(sa.select(sa.func.count()).select_from(schedule_runs).where(*own)).scalar_one()


def last_job(tx: Tx, schedule: sa.RowMapping) -> sa.RowMapping | None:
    """The job that the schedule started last, while it is unfinished."""
    if schedule["last_job_id"] is None:
        return None
    query = sa.select(jobs.c.id, jobs.c.status).where(jobs.c.id == schedule["last_job_id"])
    row = tx.row(query)
    return row if row is not None and row["status"] in JOB_UNFINISHED else None


def _last(tx: Tx, schedule: sa.RowMapping, run_id: int, due_at: datetime, job_id: int | None) -> None:
    values: dict[str, Any] = {"last_run_id": run_id, "last_due_at": due_at}
    if job_id is not None:
        values["last_job_id"] = job_id
    tx.conn.execute(sa.update(schedules).where(schedules.c.id == schedule["id"]).values(**values))
