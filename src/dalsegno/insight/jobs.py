"""Jobs as people list them: newest first, with the name of their workflow and how far they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from dalsegno.engine.submit import PRIORITIES
from dalsegno.errors import NotFound
from dalsegno.insight.grammar import Condition, Grammar, Key, age, containing, grammar, number, word
from dalsegno.insight.holds import HoldLine, holds_of_job
from dalsegno.insight.query import Query, Value, only
from dalsegno.insight.walk import (
    SECONDS,
    TEXT_SECONDS,
    Budget,
    Page,
    Place,
    Walk,
    Walked,
    begin,
    page_of,
    place_of,
    walk,
)
from dalsegno.model.records import JobRecord, LaneRecord, StageRecord
from dalsegno.model.states import JOB_ACTIVE, JOB_FINISHED, JOB_UNFINISHED, JobStatus
from dalsegno.store.schema import COUNTERS, bulk_jobs, jobs, lanes, stages, workflows
from dalsegno.store.store import Tx


@dataclass(frozen=True, slots=True)
class JobLine:
    job: JobRecord
    workflow: str
    version: int
    counts: dict[str, int]
    """Items of all its stages by status, and `total`."""


@dataclass(frozen=True, slots=True)
class JobDetail:
    job: JobRecord
    workflow: str
    version: int
    lane: LaneRecord
    stages: list[StageRecord]
    """In the order in which they can run."""
    holds: list[HoldLine]
    """What stands in its way, widest first: holds, its own pause, pauses of its stages."""


_NAMED = sa.select(jobs, workflows.c.name.label("_workflow"), workflows.c.version.label("_version")).join(
    workflows, workflows.c.id == jobs.c.workflow_id
)


def _changed_by(value: Value, _now: datetime) -> Condition:
    return jobs.c.id.in_(sa.select(bulk_jobs.c.job_id).where(bulk_jobs.c.command_id == int(value.text)))


JOBS = grammar(
    "jobs",
    containing(workflows.c.name, jobs.c.requested_by, jobs.c.error_message, jobs.c.pause_reason),
    Key("state", "How it stands.", word(jobs.c.status), values=tuple(JobStatus)),
    Key("job", "Its number.", number(jobs.c.id), kind="number"),
    Key("template", "The template or workflow it runs.", word(workflows.c.name)),
    Key("lane", "The lane it waits in.", word(jobs.c.lane)),
    Key("by", "Who asked for it.", word(jobs.c.requested_by)),
    Key("priority", "Smaller runs first.", number(jobs.c.priority), kind="number"),
    Key("bulk", "The number of a command about many items that changed it or items of it.", _changed_by, kind="id"),
    Key("age", "Since it was submitted.", age(jobs.c.created_at), kind="age"),
)


def find_jobs(
    tx: Tx, query: Query, *, among: Grammar = JOBS, cursor: str | None = None, limit: int = 50
) -> Page[JobLine]:
    """A page of the jobs that a query finds, newest first."""
    states = {value.text for term in query.of("state") if not term.negated for value in term.values}
    unfinished = bool(states) and states <= JOB_UNFINISHED
    along = [jobs.c.finished_at.is_(None)] if unfinished else []
    path = Walk(_NAMED, (jobs.c.id,), along, among.where(query, tx.now))
    bulk = only(query, "bulk")
    if bulk is not None:  # those are few: along what the command changed, not along all jobs
        own = sa.select(bulk_jobs.c.job_id.label("id")).where(bulk_jobs.c.command_id == int(bulk)).subquery()
        path = Walk(_NAMED.join(own, own.c.id == jobs.c.id), (own.c.id,), (), path.wanted)
    budget = begin(tx, TEXT_SECONDS if query.of("") else SECONDS)
    found = walk(tx, path, after=place_of(cursor, 1), limit=limit + 1, budget=budget)
    return page_of(_lines(tx, found.rows), found, limit, lambda line: (line.job.id,))


# In the very words of their indexes: SQLite compares the words.
_QUEUED = jobs.c.status == sa.literal_column("'queued'")
_PAUSED = jobs.c.pause_reason.is_not(None)
_IN_TURN = (jobs.c.priority, jobs.c.order_seq)
_ITS_FIRST = (
    sa.select(jobs.c.id)
    .where(jobs.c.lane == lanes.c.name, _QUEUED)
    .order_by(*_IN_TURN)
    .limit(1)
    .correlate(lanes)
    .scalar_subquery()
)
_LANES_WAITING = sa.select(lanes.c.name).where(_ITS_FIRST.is_not(None)).order_by(lanes.c.name)
_LANES = grammar("lanes", containing(lanes.c.name), Key("lane", "Its name.", word(lanes.c.name)))
_FIRST: Place = (PRIORITIES.start, 1)


def find_queued(
    tx: Tx, query: Query, *, among: Grammar = JOBS, cursor: str | None = None, limit: int = 50
) -> Page[JobLine]:
    """A page of the jobs that wait and are as the query asks, in the order in which they will run.

    Each lane lies in that order along its index, however many jobs wait. As many as a page has are read of each, and
    what is told are those that come before everything that was not read.
    """
    behind = place_of(cursor, 2)
    after = None if behind is None else (behind[0] + PRIORITIES.start, behind[1])
    asked = Query(tuple(t for t in query.terms if t.key != "lane" and (t.key != "state" or t.negated)))
    wanted = among.where(asked, tx.now)
    begin(tx, SECONDS)
    in_lanes = _LANES.where(Query(tuple(query.of("lane"))), tx.now)
    waiting = list(tx.conn.execute(_LANES_WAITING.where(*in_lanes)).scalars())
    found = Walked([], None, False, 0)
    ends: list[Place] = []
    for lane in waiting:
        path = Walk(_NAMED, _IN_TURN, [_QUEUED, jobs.c.lane == lane], wanted, forward=True, first=_FIRST)
        # A part of the time for each: every page comes further in every lane.
        budget = Budget(TEXT_SECONDS if query.of("") else SECONDS, share=1 / len(waiting))
        step = walk(tx, path, after=after, limit=limit + 1, budget=budget)
        found.rows += step.rows
        found.looked += step.looked
        if step.more and step.place is not None:
            ends.append(step.place)
    found.rows.sort(key=_turn)
    if ends:
        end = min(ends)
        found.rows = [row for row in found.rows if _turn(row) <= end]
        found.more, found.place = True, _told(end)
    lines = _lines(tx, found.rows[: limit + 1])
    return page_of(lines, found, limit, lambda line: _told((line.job.priority, line.job.order_seq)))


def _turn(row: sa.RowMapping) -> Place:
    return row["priority"], row["order_seq"]


def _told(place: Place) -> Place:
    """For a cursor, which knows no numbers below 0: priorities counted from the first there is."""
    return place[0] - PRIORITIES.start, place[1]


_PAUSED_IN_TURN = _NAMED.where(_PAUSED, jobs.c.status == JobStatus.PAUSED).order_by(*_IN_TURN)


def list_waiting(tx: Tx, limit: int) -> list[JobLine]:
    """The first that are queued, and as many that are paused, in the order in which they would run."""
    queued = find_queued(tx, Query(), limit=limit).lines
    paused = _lines(tx, tx.rows(_PAUSED_IN_TURN.limit(limit)))
    return sorted([*queued, *paused], key=lambda line: (line.job.priority, line.job.order_seq))


def jobs_before(tx: Tx, lane: str, priority: int, limit: int) -> list[int]:
    """The first jobs that this lane takes before one of this priority that comes last: those it has, then by turn."""
    own = sa.select(jobs.c.id).where(jobs.c.lane == lane)
    taken = own.where(jobs.c.status.in_(JOB_ACTIVE), jobs.c.finished_at.is_(None)).order_by(jobs.c.id)
    waiting = own.where(
        _QUEUED,
        jobs.c.priority <= priority,
        jobs.c.cancel_requested_at.is_(None),
        sa.or_(jobs.c.scheduled_at.is_(None), jobs.c.scheduled_at <= tx.now),
    ).order_by(*_IN_TURN)
    found = list(tx.conn.execute(taken.limit(limit)).scalars())
    return found + list(tx.conn.execute(waiting.limit(limit - len(found))).scalars())


def list_jobs(
    tx: Tx,
    *,
    status: Collection[str] = (),
    lane: str | None = None,
    workflow: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[JobLine]:
    """A page of jobs, newest first; `before` is the last id of the page shown before it."""
    query = _newest(tuple(sorted(status)), limit)
    if lane is not None:
        query = query.where(jobs.c.lane == lane)
    if workflow is not None:
        query = query.where(workflows.c.name == workflow)
    if before is not None:
        query = query.where(jobs.c.id < before)
    return _lines(tx, tx.rows(query))


def _lines(tx: Tx, rows: Sequence[sa.RowMapping]) -> list[JobLine]:
    counts = _counts(tx, [row["id"] for row in rows])
    return [JobLine(_job(row), row["_workflow"], row["_version"], counts[row["id"]]) for row in rows]


@lru_cache(64)
def _newest(status: tuple[str, ...], limit: int) -> sa.Select[Any]:
    """Made once: to put it together takes longer than to run it."""
    query = _NAMED.order_by(jobs.c.id.desc()).limit(limit)
    if status:
        query = query.where(jobs.c.status.in_(status))
        if JOB_UNFINISHED.issuperset(status):
            query = query.where(jobs.c.finished_at.is_(None))  # a short index has them
    return query


_JOB = (
    _NAMED.add_columns(*(column.label(f"_lane_{column.name}") for column in lanes.c))
    .join(lanes, lanes.c.name == jobs.c.lane)
    .where(jobs.c.id == sa.bindparam("job"))
)
_STAGES = sa.select(stages).where(stages.c.job_id == sa.bindparam("job")).order_by(stages.c.seq)


def job_detail(tx: Tx, job_id: int) -> JobDetail:
    row = tx.row(_JOB, {"job": job_id})
    if row is None:
        raise NotFound(what="job", id=job_id)
    lane = LaneRecord.model_validate({column.name: row[f"_lane_{column.name}"] for column in lanes.c})
    job = _job(row)
    found = [StageRecord.model_validate(dict(stage)) for stage in tx.rows(_STAGES, {"job": job_id})]
    in_the_way = [] if job.status in JOB_FINISHED else holds_of_job(tx, job, found)
    return JobDetail(job, row["_workflow"], row["_version"], lane, found, in_the_way)


def _job(row: sa.RowMapping) -> JobRecord:
    return JobRecord.model_validate({key: value for key, value in row.items() if not key.startswith("_")})


_COUNTED = tuple(map(str, ("total", *COUNTERS)))
_COUNTS = (
    sa.select(stages.c.job_id, *(sa.func.sum(stages.c[name]).label(name) for name in _COUNTED))
    .where(stages.c.job_id.in_(sa.bindparam("jobs", expanding=True)))
    .group_by(stages.c.job_id)
)


def _counts(tx: Tx, job_ids: Sequence[int]) -> dict[int, dict[str, int]]:
    counts = {job_id: dict.fromkeys(_COUNTED, 0) for job_id in job_ids}
    if job_ids:
        for row in tx.rows(_COUNTS, {"jobs": list(job_ids)}):
            counts[row["job_id"]] = {name: int(row[name]) for name in _COUNTED}
    return counts
