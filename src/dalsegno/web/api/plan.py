"""The plan preview: what a job would do, and what would stop it, before it is started."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from dalsegno.catalog.overview import overview, upload_backend
from dalsegno.catalog.preview import StagePreview, preview
from dalsegno.catalog.scope import Scope
from dalsegno.catalog.space import spoken
from dalsegno.catalog.templates import TITLES, check, template
from dalsegno.errors import InputInvalid, WorkflowUnknown
from dalsegno.insight.flow import list_breakers, list_limits
from dalsegno.insight.holds import list_holds
from dalsegno.insight.jobs import list_jobs
from dalsegno.insight.workers import list_processes
from dalsegno.model.states import JOB_ACTIVE, JobStatus
from dalsegno.sources.registry import Config, Sources
from dalsegno.store.store import Tx
from dalsegno.web.api.asking import refusals
from dalsegno.web.api.jobs import TemplateUnknown
from dalsegno.web.api.models import NewJob
from dalsegno.web.room import Here, Room

router = APIRouter(tags=["jobs"])

KEYS = ("source", "transfer", "host", "store")
"""What limits and breakers of the catalog's own calls are named by."""


class Stop(BaseModel):
    """Something that would keep the job, or a part of it, from running."""

    kind: str
    """`hold`, `lane`, `breaker`, `limit`, `no_worker` or `disk`."""
    name: str
    says: str
    until: datetime | None = None


class Plan(BaseModel):
    template: str
    title: str | None
    scope: Scope
    stages: list[StagePreview]
    bytes: int | None
    """To be moved in all; an estimate."""
    stops: list[Stop]
    snapshot: dict[str, Any]
    """The settings it would run with."""
    revision: int | None
    """The revision of the settings file they are of; null where it was never saved here."""


@router.post("/plan", responses=refusals(TemplateUnknown, InputInvalid))
def plan(here: Here, new: NewJob) -> Plan:
    """What `POST /api/jobs` with the same body would lead to, as far as is known. Nothing is started."""
    return planned(here, new)


def planned(here: Room, new: NewJob) -> Plan:
    try:
        workflow = template(new.template)
    except WorkflowUnknown as error:
        raise TemplateUnknown(**error.details) from None
    settings = here.settings
    scope = check(settings, new.scope, new.download_sources)
    sources = Sources(Config(settings.thawed(settings.snapshot())))
    try:
        names = sources.names()
    finally:
        sources.close()
    services = [step.service for step in workflow.order()]
    backend = upload_backend(here.store, settings)
    stages = here.store.read(lambda tx: preview(tx, services, scope, names, backend))
    moved = [stage.bytes for stage in stages if stage.bytes is not None]
    return Plan(
        template=workflow.name,
        title=TITLES.get(workflow.name),
        scope=scope,
        stages=stages,
        bytes=sum(moved) if moved else None,
        stops=[*here.store.read(lambda tx: _stops(tx, workflow.lane.name, services)), *_disk(here, stages)],
        snapshot=settings.snapshot(),
        revision=here.revision(),
    )


def _stops(tx: Tx, lane: str, services: list[str]) -> list[Stop]:
    met = {("everything", None), ("lane", lane), *(("service", name) for name in services)}
    found = [
        Stop(kind="hold", name=hold.name or "everything", says=hold.says, until=hold.until)
        for hold in list_holds(tx)
        if (hold.level, hold.name) in met
    ]
    ahead = list_jobs(tx, status=JOB_ACTIVE | {JobStatus.QUEUED}, lane=lane, limit=1)
    if ahead:
        says = f"Job {ahead[0].job.id} is before it in lane {lane}, which takes one at a time."
        found.append(Stop(kind="lane", name=lane, says=says))
    for line in list_breakers(tx):
        if line.opens is not None and _concerns(line.breaker.name, services):
            reason = str(line.breaker.reason).rstrip(".")
            says = f"{line.breaker.name} is stopped: {reason}. It opens {line.opens}."
            found.append(Stop(kind="breaker", name=line.breaker.name, says=says, until=line.breaker.resume_at))
    for limit in list_limits(tx):
        if limit.free == 0 and _concerns(limit.name, services):
            says = "is 0: nothing begins" if limit.blocked else "has no room right now"
            found.append(Stop(kind="limit", name=limit.name, says=f"{limit.name} {says}.", until=limit.next_at))
    offered = {worker.service for line in list_processes(tx) if line.alive for worker in line.workers}
    missing = [name for name in services if name not in offered]
    return found + [Stop(kind="no_worker", name=name, says=f"No live process offers {name}.") for name in missing]


def _concerns(name: str, services: list[str]) -> bool:
    kind, _, rest = name.partition(":")
    return kind in KEYS or (kind == "service" and rest in services)


def _disk(here: Room, stages: list[StagePreview]) -> list[Stop]:
    _, storage = overview(here.store, here.settings)
    needed = next((stage.bytes for stage in stages if stage.service == "download"), None)
    if needed is None or storage.free is None or storage.free - storage.keep >= needed:
        return []
    room = spoken(max(0, storage.free - storage.keep))
    says = f"About {spoken(needed)} would be downloaded; {storage.root} has room for {room}. It pauses when it is full."
    return [Stop(kind="disk", name=storage.root, says=says)]
