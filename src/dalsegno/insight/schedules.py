"""Schedules and their runs, as people read them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from dalsegno.errors import DalSegnoError, InputInvalid, NotFound
from dalsegno.insight.grammar import Condition, Key, containing, grammar, word
from dalsegno.insight.query import Query, Value
from dalsegno.insight.walk import Page
from dalsegno.model.cron import Cron, parse_cron
from dalsegno.model.records import ScheduleRecord, ScheduleRunRecord
from dalsegno.model.states import JobStatus
from dalsegno.model.suggest import did_you_mean
from dalsegno.store.schema import jobs, schedule_runs, schedules
from dalsegno.store.store import Tx

UPCOMING = 5


@dataclass(frozen=True, slots=True)
class RunLine:
    run: ScheduleRunRecord
    job_status: JobStatus | None
    """Of the job it started; None: it started none, or the job is no longer kept."""


@dataclass(frozen=True, slots=True)
class ScheduleLine:
    schedule: ScheduleRecord
    last: RunLine | None
    """What became of its last run."""

    @property
    def cron(self) -> Cron:
        return Cron(self.schedule.cron, self.schedule.time_zone)

    def upcoming(self, now: datetime, count: int = UPCOMING) -> list[datetime]:
        """When it will be due, if nobody pauses or changes it; what is due already is first."""
        first = self.schedule.next_at
        if first is None:
            return []
        try:
            return [first, *self.cron.upcoming(max(first, now), count - 1)]
        except DalSegnoError:  # a zone that this machine does not know
            return [first]

    def says(self) -> str:
        """Its expression in English; the expression itself where that cannot be said."""
        try:
            return self.cron.says()
        except Exception:
            return self.schedule.cron


_STATUS = jobs.c.status.label("job_status")
FOREIGN = "This cursor is not one of ours; take next_cursor of the page before."
_LINES = (
    sa.select(
        schedules,
        *(column.label(f"run_{column.name}") for column in schedule_runs.c),
        _STATUS,
    )
    .outerjoin(schedule_runs, schedule_runs.c.id == schedules.c.last_run_id)
    .outerjoin(jobs, jobs.c.id == schedule_runs.c.job_id)
)


def _stands(value: Value, _now: datetime) -> Condition:
    if value.text == "failed":
        return schedule_runs.c.outcome == "failed"
    return schedules.c.paused_at.is_not(None) if value.text == "paused" else schedules.c.paused_at.is_(None)


SCHEDULES = grammar(
    "schedules",
    containing(schedules.c.name, schedules.c.workflow, schedules.c.cron),
    Key("state", "Whether it is active or paused, or its last run failed.", _stands,
        values=("active", "paused", "failed")),
    Key("template", "The template or workflow it starts.", word(schedules.c.workflow)),
    Key("zone", "Its time zone.", word(schedules.c.time_zone)),
    Key("by", "Who made it.", word(schedules.c.created_by)),
)  # fmt: skip


def find_schedules(tx: Tx, query: Query, *, cursor: str | None = None, limit: int = 50) -> Page[ScheduleLine]:
    """A page of those that a query finds, by name; the cursor is the last name of the page before."""
    lines = _LINES.where(*SCHEDULES.where(query, tx.now)).order_by(schedules.c.name).limit(limit + 1)
    if cursor is not None:
        if "\0" in cursor:  # no name has it, and PostgreSQL takes no text with it
            raise InputInvalid(problem=FOREIGN)
        lines = lines.where(schedules.c.name > cursor)
    found = [_line(row) for row in tx.rows(lines)]
    more = len(found) > limit
    return Page(found[:limit], found[limit - 1].schedule.name if more else None)


def get_schedule(tx: Tx, which: int | str) -> ScheduleLine:
    """By its number or its name."""
    own = schedules.c.id == which if isinstance(which, int) else schedules.c.name == which
    row = tx.row(_LINES.where(own))
    if row is None:
        names = (
            [] if isinstance(which, int) else list(tx.conn.execute(sa.select(schedules.c.name).limit(1000)).scalars())
        )
        told = which if isinstance(which, int) else f'"{which:.100}"'
        hint = did_you_mean(which, names) if isinstance(which, str) else ""
        raise NotFound(what="schedule", id=f"{told}.{hint}".removesuffix("."))
    return _line(row)


def list_runs(tx: Tx, schedule_id: int, *, cursor: str | None = None, limit: int = 50) -> Page[RunLine]:
    """What became of its due times, the newest first; the cursor is the last due time of the page before."""
    query = (
        sa.select(schedule_runs, _STATUS)
        .outerjoin(jobs, jobs.c.id == schedule_runs.c.job_id)
        .where(schedule_runs.c.schedule_id == schedule_id)
        .order_by(schedule_runs.c.due_at.desc())
        .limit(limit + 1)
    )
    if cursor is not None:
        query = query.where(schedule_runs.c.due_at < _moment(cursor))
    found = [_run(dict(row)) for row in tx.rows(query)]
    more = len(found) > limit
    return Page(found[:limit], found[limit - 1].run.due_at.isoformat() if more else None)


def get_run(tx: Tx, run_id: int) -> RunLine:
    query = sa.select(schedule_runs, _STATUS).outerjoin(jobs, jobs.c.id == schedule_runs.c.job_id)
    row = tx.row(query.where(schedule_runs.c.id == run_id))
    if row is None:
        raise NotFound(what="run", id=run_id)
    return _run(dict(row))


def schedule_of_job(tx: Tx, job_id: int) -> ScheduleRecord | None:
    """The schedule that started a job."""
    query = sa.select(schedules).join(schedule_runs, schedule_runs.c.schedule_id == schedules.c.id)
    row = tx.row(query.where(schedule_runs.c.job_id == job_id).limit(1))
    return None if row is None else ScheduleRecord.model_validate(dict(row))


@dataclass(frozen=True, slots=True)
class Preview:
    cron: str
    time_zone: str
    says: str
    runs: list[datetime]


def preview(expression: str, zone: str, now: datetime, count: int = UPCOMING) -> Preview:
    """What an expression means: its next due times."""
    cron = parse_cron(expression, zone)
    return Preview(cron.expression, cron.zone, cron.says(), cron.upcoming(now, count))


def _moment(cursor: str) -> datetime:
    try:
        found = datetime.fromisoformat(cursor)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InputInvalid(problem=FOREIGN)
    return found.astimezone(UTC)


def _line(row: sa.RowMapping) -> ScheduleLine:
    values = dict(row)
    run = {key.removeprefix("run_"): values.pop(key) for key in list(values) if key.startswith("run_")}
    status = values.pop("job_status")
    last = None if run["id"] is None else RunLine(ScheduleRunRecord.model_validate(run), status)
    return ScheduleLine(ScheduleRecord.model_validate(values), last)


def _run(values: dict[str, object]) -> RunLine:
    status = values.pop("job_status")
    return RunLine(ScheduleRunRecord.model_validate(values), None if status is None else JobStatus(str(status)))
