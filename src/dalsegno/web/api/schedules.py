"""Schedules: what is started by the clock, when it is due, and what became of each time it was."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi import Body as InBody
from pydantic import BaseModel, Field, StrictInt, model_validator

from dalsegno.catalog.templates import TITLES
from dalsegno.engine import schedules as engine
from dalsegno.engine.orders import ASKED, Order
from dalsegno.errors import (
    CronInvalid,
    InputInvalid,
    NotFound,
    QueryInvalid,
    ScheduleBusy,
    ScheduleExists,
)
from dalsegno.insight import schedules as insight
from dalsegno.insight.query import parse
from dalsegno.insight.schedules import RunLine, ScheduleLine
from dalsegno.model.records import ScheduleRecord, ScheduleRunRecord
from dalsegno.model.states import JobStatus
from dalsegno.store.store import Tx
from dalsegno.web.api.asking import refusals
from dalsegno.web.api.models import Asked, Body, Name, Text
from dalsegno.web.api.ordering import WORKFLOW, OrderUnknown, ordered
from dalsegno.web.api.parameters import Cursor, Limit, Number, Q
from dalsegno.web.room import Here, Room, Who, asker

router = APIRouter(tags=["schedules"])

RUNS = 20
"""Past runs that a schedule is read with."""
PRIORITY = Annotated[StrictInt, Field(ge=-1_000_000, le=1_000_000)]
MOST = Annotated[StrictInt, Field(ge=1, le=engine.MOST_CAUGHT_UP)]
CatchUp = Literal["skip", "one", "all"]
Overlap = Literal["skip", "queue", "allow"]
CRON = "Minute, hour, day of month, month, day of week; or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`."
ZONE = "Whose clock it goes by, as in `Europe/Berlin`."
CATCH_UP = "Of runs that were missed: skip all, start one for them, or all, up to `catch_up_most`."
OVERLAP = "While the job before it is unfinished: skip it, queue behind it, or allow both."


class Run(ScheduleRunRecord):
    """What became of a due time, or of `count` of them that were skipped together, up to `last_due_at`."""

    job_status: JobStatus | None
    """Of the job it started; null where there is none, or none any more."""

    @classmethod
    def of(cls, line: RunLine) -> Run:
        return cls(**dict(line.run), job_status=line.job_status)


class Schedule(ScheduleRecord):
    title: str | None
    """What its template is called in Chinese; null for other workflows."""
    says: str
    """Its expression in English."""
    last: Run | None
    """What became of its last run."""

    @classmethod
    def of(cls, line: ScheduleLine) -> Schedule:
        return cls(**_fields(line))


class ScheduleInFull(Schedule):
    upcoming: list[datetime]
    """When it will be due, the next five times; none while it is paused."""
    runs: list[Run]
    """The last ones, newest first. More: `/api/schedules/{id}/runs`."""

    @classmethod
    def read(cls, tx: Tx, number: int) -> ScheduleInFull:
        line = insight.get_schedule(tx, number)
        runs = insight.list_runs(tx, number, limit=RUNS).lines
        return cls(**_fields(line), upcoming=line.upcoming(tx.now), runs=[Run.of(each) for each in runs])


class Schedules(BaseModel):
    schedules: list[Schedule]
    next_cursor: str | None


class Runs(BaseModel):
    runs: list[Run]
    next_cursor: str | None


class Preview(BaseModel):
    cron: str
    time_zone: str
    says: str
    """In English."""
    upcoming: list[datetime]


class Ordering(Body):
    @model_validator(mode="before")
    @classmethod
    def _as_jobs_have_it(cls, given: Any) -> Any:
        if isinstance(given, dict) and "template" in given and "workflow" not in given:
            return {"workflow" if key == "template" else key: value for key, value in given.items()}
        return given


class NewSchedule(Ordering):
    name: Name = Field(examples=["nightly"])
    workflow: Name = Field(description=WORKFLOW, examples=["full"])
    cron: Name = Field(description=CRON, examples=["30 2 * * *"])
    time_zone: Name = Field(default="UTC", description=ZONE, examples=["Europe/Berlin"])
    catch_up: CatchUp = Field(default="one", description=CATCH_UP)
    catch_up_most: MOST = 10
    overlap: Overlap = Field(default="skip", description=OVERLAP)
    priority: PRIORITY = Field(default=100, description="Of its jobs: smaller runs first.")
    scope: Any = Field(default=None, description="Of a template: as in `POST /api/jobs`.")
    options: dict[str, Any] | None = None
    download_sources: list[Name] | None = Field(default=None, description="Of a template.")
    params: dict[str, Any] | None = Field(default=None, description="Of another workflow.")
    items: list[Any] | dict[str, list[Any]] | None = Field(default=None, description="Of another workflow.")
    requested_by: Name | None = None


class ScheduleChange(Ordering):
    """What is not given stays as it is. Another time counts from now."""

    name: Name | None = None
    workflow: Name | None = Field(default=None, description=WORKFLOW)
    cron: Name | None = Field(default=None, description=CRON, examples=["0 4 * * *"])
    time_zone: Name | None = Field(default=None, description=ZONE)
    catch_up: CatchUp | None = Field(default=None, description=CATCH_UP)
    catch_up_most: MOST | None = None
    overlap: Overlap | None = Field(default=None, description=OVERLAP)
    priority: PRIORITY | None = None
    scope: Any = Field(default=None, description="null: the whole catalog.")
    options: dict[str, Any] | None = None
    download_sources: list[Name] | None = None
    params: dict[str, Any] | None = None
    items: list[Any] | dict[str, list[Any]] | None = None
    requested_by: Name | None = None


class PauseSchedule(Body):
    reason: Text | None = Field(default=None, description="Why; shown with it.")
    requested_by: Name | None = None


WRONG = (InputInvalid, CronInvalid, OrderUnknown)
CREATED: dict[int | str, dict[str, Any]] = {
    201: {"headers": {"Location": {"description": "The schedule's own address.", "schema": {"type": "string"}}}}
}


@router.get("/schedules", responses=refusals(QueryInvalid))
def schedules(here: Here, q: Q = None, cursor: Cursor = None, limit: Limit = 50) -> Schedules:
    """By name: `state:paused,failed template:full`, or a text that is in their names."""
    query = parse(q, insight.SCHEDULES)
    page = here.store.read(lambda tx: insight.find_schedules(tx, query, cursor=cursor, limit=limit))
    return Schedules(schedules=[Schedule.of(line) for line in page.lines], next_cursor=page.next_cursor)


@router.get("/schedules/preview", responses=refusals(CronInvalid, InputInvalid))
def preview_schedule(
    here: Here,
    cron: Annotated[str, Query(max_length=300, description=CRON, examples=["30 2 * * *"])],
    time_zone: Annotated[str, Query(max_length=200, description=ZONE)] = "UTC",
    count: Annotated[int, Query(ge=1, le=100, description="How many times.")] = 5,
) -> Preview:
    """When an expression would be due. Nothing is stored."""
    found = insight.preview(cron, time_zone, here.store.clock.now(), count)
    return Preview(cron=found.cron, time_zone=found.time_zone, says=found.says, upcoming=found.runs)


@router.post("/schedules", status_code=201, responses={**CREATED, **refusals(ScheduleExists, *WRONG)})
def create_schedule(here: Here, who: Who, new: NewSchedule, response: Response) -> ScheduleInFull:
    """Start jobs by the clock. What it starts is checked now, and again each time, with the settings of then."""
    order = checked(here, new.workflow, {key: value for key in ASKED if (value := getattr(new, key))})
    kept = ("name", "cron", "time_zone", "catch_up", "catch_up_most", "overlap", "priority")
    wanted = engine.Schedule(workflow=order.workflow, request=order.request, **{key: getattr(new, key) for key in kept})
    number = here.store.write("schedule", lambda tx: engine.add(tx, wanted, asker(new.requested_by, who)))
    response.headers["Location"] = f"/api/schedules/{number}"
    return here.store.read(lambda tx: ScheduleInFull.read(tx, number))


@router.get("/schedules/{schedule_id}", responses=refusals(NotFound))
def schedule(here: Here, schedule_id: Number) -> ScheduleInFull:
    """One, with its next and its last runs."""
    return here.store.read(lambda tx: ScheduleInFull.read(tx, schedule_id))


@router.patch("/schedules/{schedule_id}", responses=refusals(NotFound, ScheduleExists, *WRONG))
def change_schedule(here: Here, who: Who, schedule_id: Number, change: ScheduleChange) -> ScheduleInFull:
    """Change some of it."""
    said = {key: getattr(change, key) for key in change.model_fields_set - {"requested_by"}}
    was = here.store.read(lambda tx: insight.get_schedule(tx, schedule_id)).schedule
    changes = {key: value for key, value in said.items() if key not in ASKED and value is not None}
    if "workflow" in changes or any(key in said for key in ASKED):
        asked = {**was.request, **{key: said[key] for key in ASKED if key in said}}
        order = checked(here, changes.get("workflow", was.workflow), {key: each for key, each in asked.items() if each})
        changes |= {"workflow": order.workflow, "request": dict(order.request)}
    by = asker(change.requested_by, who)
    return _done(here, schedule_id, lambda tx: engine.change(tx, schedule_id, changes, by))


@router.delete("/schedules/{schedule_id}", responses=refusals(NotFound))
def remove_schedule(here: Here, who: Who, schedule_id: Number) -> Schedule:
    """It and the record of its runs; answers with what it was. The jobs that it started stay."""

    def work(tx: Tx) -> Schedule:
        was = Schedule.of(insight.get_schedule(tx, schedule_id))
        engine.remove(tx, schedule_id, who)
        return was

    return here.store.write("schedule", work)


@router.post("/schedules/{schedule_id}/pause", responses=refusals(NotFound))
def pause_schedule(
    here: Here, who: Who, schedule_id: Number, asked: Annotated[PauseSchedule | None, InBody()] = None
) -> ScheduleInFull:
    """Nothing is due until it is resumed. Jobs that it has started go on."""
    asked = asked or PauseSchedule()
    by = asker(asked.requested_by, who)
    return _done(here, schedule_id, lambda tx: engine.pause(tx, schedule_id, by, asked.reason))


@router.post("/schedules/{schedule_id}/resume", responses=refusals(NotFound))
def resume_schedule(
    here: Here, who: Who, schedule_id: Number, asked: Annotated[Asked | None, InBody()] = None
) -> ScheduleInFull:
    """It is due from now on; what came meanwhile is not made up for."""
    by = asker(asked.requested_by if asked else None, who)
    return _done(here, schedule_id, lambda tx: engine.resume(tx, schedule_id, by))


@router.post("/schedules/{schedule_id}/run", status_code=202, responses=refusals(NotFound, ScheduleBusy))
def run_schedule(here: Here, who: Who, schedule_id: Number, asked: Annotated[Asked | None, InBody()] = None) -> Run:
    """Run it now, besides its times; also a paused one. Answers with the run that waits; an engine takes it up."""
    by = asker(asked.requested_by if asked else None, who)
    number = here.store.write("schedule", lambda tx: engine.run_now(tx, schedule_id, by))
    return Run.of(here.store.read(lambda tx: insight.get_run(tx, number)))


@router.get("/schedules/{schedule_id}/runs", responses=refusals(NotFound, InputInvalid))
def schedule_runs(here: Here, schedule_id: Number, cursor: Cursor = None, limit: Limit = 50) -> Runs:
    """What became of its due times, newest first. The last thousand are kept."""

    def read(tx: Tx) -> Runs:
        insight.get_schedule(tx, schedule_id)
        page = insight.list_runs(tx, schedule_id, cursor=cursor, limit=limit)
        return Runs(runs=[Run.of(line) for line in page.lines], next_cursor=page.next_cursor)

    return here.store.read(read)


# --- shared with the pages ------------------------------------------------------------------------


def checked(here: Room, workflow: str, request: dict[str, Any]) -> Order:
    """What is ordered, if it could be started now."""
    return Order(ordered(here, workflow, request)[1].name, request)


def _done(here: Room, schedule_id: int, work: Callable[[Tx], None]) -> ScheduleInFull:
    here.store.write("schedule", work)
    return here.store.read(lambda tx: ScheduleInFull.read(tx, schedule_id))


def _fields(line: ScheduleLine) -> dict[str, Any]:
    last = None if line.last is None else Run.of(line.last)
    title = TITLES.get(line.schedule.workflow)
    return {**dict(line.schedule), "title": title, "says": line.says(), "last": last}
