"""Jobs: listed, started, paused, resumed."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response

from dalsegno.catalog.overrides import checked
from dalsegno.catalog.templates import order
from dalsegno.engine.commander import request
from dalsegno.engine.submit import to_json
from dalsegno.errors import WorkflowUnknown
from dalsegno.insight.commands import get_command
from dalsegno.insight.items import list_items
from dalsegno.insight.jobs import job_detail, list_jobs
from dalsegno.insight.progress import progress_of
from dalsegno.model.states import ItemStatus, JobStatus
from dalsegno.store.store import Store, Tx
from dalsegno.web.api.models import Command, Item, Items, Job, JobInFull, Jobs, Name, NewJob, Pause, Resume
from dalsegno.web.api.parameters import Choice, Cursor, Limit, Number, chosen, place
from dalsegno.web.room import Here, Room

router = APIRouter(tags=["jobs"])


class TemplateUnknown(WorkflowUnknown):
    """There is no template "{name}".{hint}"""

    status = 422  # the address was right, what it was sent was not


@router.get("/jobs")
def jobs(
    here: Here,
    status: Choice = None,
    template: Annotated[Name | None, Query(description="Only jobs of this template or workflow.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Jobs:
    """Jobs, newest first."""
    wanted, before = chosen(status, JobStatus, "job status"), place(cursor)
    found = here.store.read(
        lambda tx: list_jobs(tx, status=wanted, workflow=template, before=before, limit=limit + 1)
    )  # fmt: skip
    more = str(found[limit - 1].job.id) if len(found) > limit else None
    return Jobs(jobs=[Job.of(line) for line in found[:limit]], next_cursor=more)


@router.post("/jobs", status_code=201)
def create_job(here: Here, new: NewJob, response: Response) -> JobInFull:
    """Start a job from a template. It waits in the queue until its lane is free."""
    job_id = start(here, new)
    response.headers["Location"] = f"/api/jobs/{job_id}"
    return here.store.read(lambda tx: in_full(tx, job_id))


@router.get("/jobs/{job_id}")
def job(here: Here, job_id: Number) -> JobInFull:
    """One job, with its stages, how far they are and how fast."""
    return here.store.read(lambda tx: in_full(tx, job_id))


@router.post("/jobs/{job_id}/pause", status_code=202)
def pause_job(here: Here, job_id: Number, asked: Annotated[Pause | None, Body()] = None) -> Command:
    """Nothing new starts; what runs may finish."""
    asked = asked or Pause()
    payload = asked.model_dump(mode="json", exclude={"requested_by"}, exclude_none=True)
    return ask(here.store, "pause", job_id, payload, asked.requested_by)


@router.post("/jobs/{job_id}/resume", status_code=202)
def resume_job(here: Here, job_id: Number, asked: Annotated[Resume | None, Body()] = None) -> Command:
    """Go on from the mark, with what was interrupted first."""
    asked = asked or Resume()
    return ask(here.store, "resume", job_id, overriding(here, job_id, asked.overrides), asked.requested_by)


@router.get("/jobs/{job_id}/items")
def items(
    here: Here,
    job_id: Number,
    stage: Annotated[str | None, Query(description="Only items of this stage.")] = None,
    state: Choice = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Items:
    """A job's items, in their order."""
    wanted, after = chosen(state, ItemStatus, "item state"), place(cursor)
    found = here.store.read(
        lambda tx: list_items(tx, job_id, stage=stage, state=wanted, after=after, limit=limit + 1)
    )  # fmt: skip
    more = str(found[limit - 1].item.id) if len(found) > limit else None
    return Items(items=[Item(stage=line.stage, **dict(line.item)) for line in found[:limit]], next_cursor=more)


# --- shared with the page -------------------------------------------------------------------------


def start(here: Here, new: NewJob) -> int:
    try:
        return order(
            here.store,
            here.settings,
            new.template,
            scope=new.scope,
            options=new.options or None,
            download_sources=new.download_sources or None,
            priority=new.priority,
            requested_by=new.requested_by,
        ).job_id
    except WorkflowUnknown as error:
        raise TemplateUnknown(**error.details) from None


def overriding(here: Room, job_id: int, overrides: dict[str, Any]) -> dict[str, Any]:
    """What a resume says, its settings checked."""
    return {"overrides": checked(here.store, here.settings, job_id, overrides)} if overrides else {}


def ask(store: Store, kind: str, job_id: int, payload: dict[str, Any], by: str) -> Command:
    """Write a command down. An engine applies it, here or elsewhere."""
    to_json(payload, "the body")

    def work(tx: Tx) -> Command:
        command_id = request(tx, kind, job_id=job_id, payload=payload or None, requested_by=by)
        return Command(**dict(get_command(tx, command_id)))

    return store.write("request", work)


def in_full(tx: Tx, job_id: int) -> JobInFull:
    detail = job_detail(tx, job_id)
    return JobInFull.told(detail, progress_of(detail, tx.now))
