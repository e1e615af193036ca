"""Logs and events: what was said and what happened."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from dalsegno.errors import InputInvalid, NotFound, QueryInvalid
from dalsegno.insight.events import EVENTS, find_events
from dalsegno.insight.jobs import job_detail
from dalsegno.insight.logs import LOGS, count_levels, find_logs
from dalsegno.insight.query import Query, parse
from dalsegno.model.records import EventRecord, LogRecord
from dalsegno.store.store import Tx
from dalsegno.web.api.asking import refusals
from dalsegno.web.api.parameters import Choice, Cursor, Limit, Number, OfItem, OfJob, Q, log_levels, narrowed
from dalsegno.web.room import Here, Room

router = APIRouter(tags=["logs and events"])


class Logs(BaseModel):
    logs: list[LogRecord]
    """Newest first."""
    next_cursor: str | None
    partial: bool
    """The time was up before the page was full: there may be more, further on."""
    levels: dict[str, int]
    """Of the latest 2,000 lines that the query finds, whatever it says about levels."""


class Events(BaseModel):
    events: list[EventRecord]
    """Newest first."""
    next_cursor: str | None
    partial: bool


@router.get("/logs", responses=refusals(QueryInvalid, InputInvalid))
def logs(
    here: Here,
    q: Q = None,
    job: OfJob = None,
    item: OfItem = None,
    level: Choice = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Logs:
    """Log lines, newest first: `level:warn,error job:12 age:<1h timeout`. `job`, `item` and `level` say the same."""
    query = narrowed(parse(q, LOGS), job=job, item=item, levels=log_levels(level))

    def read(tx: Tx) -> Logs:
        page = find_logs(tx, query, cursor=cursor, limit=limit)
        return Logs(logs=page.lines, next_cursor=page.next_cursor, partial=page.partial, levels=count_levels(tx, query))

    return here.store.read(read)


@router.get("/events", responses=refusals(QueryInvalid, InputInvalid))
def events(
    here: Here,
    q: Q = None,
    job: OfJob = None,
    item: OfItem = None,
    level: Choice = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Events:
    """What happened, newest first: `kind:job_* by:nas`. To follow it live: `/api/events/stream`."""
    query = narrowed(parse(q, EVENTS), job=job, item=item, levels=log_levels(level))
    return _events(here, query, cursor, limit)


@router.get("/jobs/{job_id}/events", responses=refusals(NotFound, QueryInvalid, InputInvalid), tags=["jobs"])
def events_of_job(
    here: Here,
    job_id: Number,
    q: Q = None,
    item: OfItem = None,
    level: Choice = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Events:
    """What happened to a job, its stages and its items, newest first."""
    here.store.read(lambda tx: job_detail(tx, job_id))
    query = narrowed(parse(q, EVENTS), job=job_id, item=item, levels=log_levels(level))
    return _events(here, query, cursor, limit)


def _events(here: Room, query: Query, cursor: str | None, limit: int) -> Events:
    page = here.store.read(lambda tx: find_events(tx, query, cursor=cursor, limit=limit))
    return Events(events=page.lines, next_cursor=page.next_cursor, partial=page.partial)
