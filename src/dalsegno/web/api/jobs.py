"""Jobs: listed, started, paused, resumed, canceled, started again."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response

from dalsegno.catalog.find import ITEMS
from dalsegno.catalog.overrides import checked
from dalsegno.engine.orders import submit_ready
from dalsegno.engine.retry import refuse_twin
from dalsegno.errors import CommandRefused, InputInvalid, NotFound, QueryInvalid, TwinActive
from dalsegno.insight.commands import commands_of_job
from dalsegno.insight.finding import find_items
from dalsegno.insight.items import list_items
from dalsegno.insight.jobs import JOBS, find_jobs, job_detail
from dalsegno.insight.progress import progress_of
from dalsegno.insight.query import parse
from dalsegno.model.states import JobStatus
from dalsegno.requests.subjects import names_of
from dalsegno.store.store import Tx
from dalsegno.web.api.asking import ACCEPTED, ask, refusals, told
from dalsegno.web.api.bulk import started
from dalsegno.web.api.cloning import cloned
from dalsegno.web.api.models import (
    Asked,
    Clone,
    Command,
    Commands,
    Items,
    Job,
    JobInFull,
    Jobs,
    NewJob,
    Pause,
    Priority,
    Resume,
)
from dalsegno.web.api.ordering import OrderUnknown, submittable
from dalsegno.web.api.parameters import (
    Choice,
    Cursor,
    Limit,
    Named,
    Number,
    Q,
    Status,
    chosen,
    item_states,
    narrowed,
)
from dalsegno.web.room import Here, Room, Who, asker

router = APIRouter(tags=["jobs"])

CREATED: dict[int | str, dict[str, Any]] = {
    201: {"headers": {"Location": {"description": "The job's own address.", "schema": {"type": "string"}}}}
}


@router.get("/jobs", responses=refusals(QueryInvalid, InputInvalid))
def jobs(
    here: Here,
    q: Q = None,
    status: Choice = None,
    state: Annotated[Choice, Query(description="The same as `status`.")] = None,
    template: Annotated[Named, Query(description="Only jobs of this template or workflow.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Jobs:
    """Jobs, newest first: `state:running,paused template:full age:<7d`. `status` and `template` say the same."""
    query = parse(q, JOBS)
    query = narrowed(query, states=chosen(f"{status or ''},{state or ''}", JobStatus, "job status"))
    if template:
        query = query.with_("template", template)
    page = here.store.read(lambda tx: find_jobs(tx, query, cursor=cursor, limit=limit))
    return Jobs(jobs=[Job.of(line) for line in page.lines], next_cursor=page.next_cursor, partial=page.partial)


@router.post("/jobs", status_code=201, responses={**CREATED, **refusals(OrderUnknown, InputInvalid)})
def create_job(here: Here, who: Who, new: NewJob, response: Response) -> JobInFull:
    """Start a job from a template, or from a workflow that is stored. It waits in the queue until its lane is free."""
    return _made(here, start(here, new, who), response)


@router.get("/jobs/{job_id}", responses=refusals(NotFound))
def job(here: Here, job_id: Number) -> JobInFull:
    """One job, with its stages, how far they are and how fast."""
    return here.store.read(lambda tx: in_full(tx, job_id))


@router.post("/jobs/{job_id}/pause", status_code=202, responses={**ACCEPTED, **refusals(NotFound)})
def pause_job(
    here: Here, who: Who, job_id: Number, response: Response, asked: Annotated[Pause | None, Body()] = None
) -> Command:
    """Nothing new starts; what runs may finish. With `stage`, only that stage of it."""
    asked = asked or Pause()
    payload = asked.model_dump(mode="json", exclude={"requested_by"}, exclude_none=True)
    kind = "pause" if asked.stage is None else "pause_stage"
    return told(response, ask(here.store, kind, job_id, payload, asker(asked.requested_by, who)))


@router.post("/jobs/{job_id}/resume", status_code=202, responses={**ACCEPTED, **refusals(NotFound, InputInvalid)})
def resume_job(
    here: Here, who: Who, job_id: Number, response: Response, asked: Annotated[Resume | None, Body()] = None
) -> Command:
    """Go on from the mark, with what was interrupted first."""
    asked = asked or Resume()
    by = asker(asked.requested_by, who)
    if asked.stage is not None:
        if asked.overrides:
            raise InputInvalid(problem="Overrides change the settings of a whole job: resume it without a stage.")
        return told(response, ask(here.store, "resume_stage", job_id, {"stage": asked.stage}, by))
    return told(response, ask(here.store, "resume", job_id, overriding(here, job_id, asked.overrides), by))


@router.post("/jobs/{job_id}/cancel", status_code=202, responses={**ACCEPTED, **refusals(NotFound)})
def cancel_job(
    here: Here, who: Who, job_id: Number, response: Response, asked: Annotated[Asked | None, Body()] = None
) -> Command:
    """What waits is canceled, what runs is asked to stop; what is done stays. It cannot be resumed."""
    return told(response, ask(here.store, "cancel", job_id, None, asker(asked.requested_by if asked else None, who)))


@router.post("/jobs/{job_id}/priority", status_code=202, responses={**ACCEPTED, **refusals(NotFound)})
def set_priority(here: Here, who: Who, job_id: Number, response: Response, asked: Priority) -> Command:
    """Smaller runs first, among all jobs."""
    payload = {"priority": asked.priority}
    return told(response, ask(here.store, "set_priority", job_id, payload, asker(asked.requested_by, who)))


@router.post(
    "/jobs/{job_id}/clone", status_code=201, responses={**CREATED, **refusals(NotFound, CommandRefused, InputInvalid)}
)
def clone_job(
    here: Here, who: Who, job_id: Number, response: Response, asked: Annotated[Clone | None, Body()] = None
) -> JobInFull:
    """The same again: template, scope and options of this job, with the settings of now."""
    asked = asked or Clone()
    made = cloned(here, job_id, priority=asked.priority, by=asker(asked.requested_by, who))
    return _made(here, made, response)


@router.post("/jobs/{job_id}/retry", status_code=202, responses={**ACCEPTED, **refusals(NotFound, TwinActive)})
def retry_job(
    here: Here, who: Who, job_id: Number, response: Response, asked: Annotated[Asked | None, Body()] = None
) -> Command:
    """Try every item of it again that failed, and nothing else. A finished job goes on for them.

    While another job does the same work as the finished one, 409 names that one (`twin`).
    """
    return told(response, retry_failed(here, job_id, asker(asked.requested_by if asked else None, who)))


@router.get("/jobs/{job_id}/items", responses=refusals(NotFound, QueryInvalid, InputInvalid))
def items(
    here: Here,
    job_id: Number,
    q: Q = None,
    stage: Annotated[Named, Query(description="Only items of this stage.")] = None,
    state: Choice = None,
    status: Status = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Items:
    """A job's items, in their order. `stage` and `state` (or `status`) say the same as in a query."""
    query = narrowed(parse(q, ITEMS), job=job_id, stage=stage, states=item_states(state, status))

    def read(tx: Tx) -> Items:
        list_items(tx, job_id, stage=stage or None, limit=0)  # says what is not there
        page = find_items(tx, query, among=ITEMS, cursor=cursor, limit=limit, forward=True)
        return Items.of(page, names_of(tx, (line.item.key for line in page.lines)))

    return here.store.read(read)


@router.get("/jobs/{job_id}/commands", responses=refusals(NotFound))
def commands_about_job(here: Here, job_id: Number, limit: Limit = 50) -> Commands:
    """What operators asked of it, newest first, and what became of that."""

    def read(tx: Tx) -> Commands:
        job_detail(tx, job_id)
        return Commands(commands=[Command(**dict(each)) for each in commands_of_job(tx, job_id, limit)])

    return here.store.read(read)


# --- shared with the pages ------------------------------------------------------------------------


def start(here: Room, new: NewJob, who: str = "console") -> int:
    ready, _ = submittable(here, new.template, new.request)
    by = asker(new.requested_by, who)
    return here.store.write("submit", lambda tx: submit_ready(tx, ready, new.priority, by))


def retry_failed(here: Room, job_id: int, by: str) -> Command:
    here.store.read(lambda tx: refuse_twin(tx, job_id))
    return started(here, "retry", parse(f"job:{job_id} state:failed", ITEMS), by, job_id=job_id)


def overriding(here: Room, job_id: int, overrides: dict[str, Any]) -> dict[str, Any]:
    """What a resume says, its settings checked."""
    return {"overrides": checked(here.store, here.settings, job_id, overrides)} if overrides else {}


def in_full(tx: Tx, job_id: int) -> JobInFull:
    detail = job_detail(tx, job_id)
    return JobInFull.told(detail, progress_of(detail, tx.now))


def _made(here: Room, job_id: int, response: Response) -> JobInFull:
    response.headers["Location"] = f"/api/jobs/{job_id}"
    return here.store.read(lambda tx: in_full(tx, job_id))
