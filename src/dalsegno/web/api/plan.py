"""The plan preview: what a job would do, and what would stop it, before it is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from dalsegno.catalog.orders import is_template
from dalsegno.catalog.overview import overview, upload_backend
from dalsegno.catalog.preview import FIRST, StagePreview, preview
from dalsegno.catalog.scope import Scope, check_names, parse_scope
from dalsegno.catalog.space import spoken
from dalsegno.catalog.standing import COLLECT, DOWNLOAD, SYNC, UPLOAD
from dalsegno.catalog.templates import TITLES, template
from dalsegno.engine.orders import Ready
from dalsegno.engine.submit import by_step, number_items
from dalsegno.errors import InputInvalid, WorkflowUnknown
from dalsegno.insight.flow import list_breakers, list_limits
from dalsegno.insight.holds import list_holds
from dalsegno.insight.jobs import job_detail, jobs_before
from dalsegno.insight.workers import list_processes
from dalsegno.model.workflow import Step, Workflow
from dalsegno.sources.registry import Config, Sources
from dalsegno.store.store import Tx
from dalsegno.web.api.asking import refusals
from dalsegno.web.api.models import NewJob
from dalsegno.web.api.ordering import OrderUnknown, submittable
from dalsegno.web.room import Here, Room

router = APIRouter(tags=["jobs"])

OWN = frozenset({COLLECT, SYNC, DOWNLOAD, UPLOAD})
"""The services of the catalog, which can tell beforehand."""
COUNTED = 100
"""Jobs before it that are counted."""
KEYS = ("source", "transfer", "host", "store")
"""What limits and breakers of the catalog's own calls are named by."""


class Stop(BaseModel):
    """Something that would keep the job, or a part of it, from running."""

    kind: str
    """`scope`, `hold`, `lane`, `breaker`, `limit`, `no_worker` or `disk`."""
    name: str
    says: str
    until: datetime | None = None


class Plan(BaseModel):
    template: str
    title: str | None
    scope: Scope | Any
    """As it was understood; of a workflow that is no template, as it was given."""
    stages: list[StagePreview]
    bytes: int | None
    """To be moved in all; an estimate."""
    stops: list[Stop]
    snapshot: dict[str, Any]
    """The settings it would run with."""
    revision: int | None
    """The revision of the settings file they are of; null where it was never saved here."""


@router.post("/plan", responses=refusals(OrderUnknown, InputInvalid))
def plan(here: Here, new: NewJob) -> Plan:
    """What `POST /api/jobs` with the same body would lead to, as far as is known. Nothing is started.

    Of a workflow that is no template, only its services know how many items they will list: these numbers are null.
    """
    return planned(here, new) if is_template(new.template) else foreseen(here, new)


def planned(here: Room, new: NewJob) -> Plan:
    """Of a template."""
    try:
        template(new.template)
    except WorkflowUnknown as error:
        raise OrderUnknown(**error.details) from None
    return _plan(here, *submittable(here, new.template, new.request), new.priority)


def foreseen(here: Room, new: NewJob) -> Plan:
    """Of any workflow, numbers of items included that nobody knows yet."""
    return _plan(here, *submittable(here, new.template, new.request), new.priority)


def _plan(here: Room, ready: Ready, workflow: Workflow, priority: int) -> Plan:
    stages = _stages(here, ready, workflow)
    moved = [stage.bytes for stage in stages if stage.bytes is not None]
    return Plan(
        template=workflow.name,
        title=TITLES.get(workflow.name),
        scope=parse_scope(ready.scope) if is_template(workflow.name) else ready.scope,
        stages=stages,
        bytes=sum(moved) if moved else None,
        stops=[
            *_unknown_yet(here, ready, workflow),
            *here.store.read(lambda tx: _stops(tx, workflow, priority)),
            *_disk(here, stages),
        ],
        snapshot=dict(ready.snapshot or {}),
        revision=ready.revision,
    )


def _stages(here: Room, ready: Ready, workflow: Workflow) -> list[StagePreview]:
    """Those of the catalog as it knows them, those that items are given to by their items, and the others unknown."""
    steps, given = workflow.order(), by_step(workflow, ready.items)
    told: dict[str, Step] = {}
    for step in steps:
        if step.key not in given and step.service in OWN and (step.follow == "all" or step.depends_on[0] in told):
            told[step.key] = step
    listed = dict(zip(told, _of_catalog(here, ready, list(told.values())), strict=False))
    found = []
    for step in steps:
        if step.key in given:
            stage = _given(step, [item.key for item in number_items(given[step.key])])
        else:
            stage = listed.get(step.key) or _unknown(step)
        found.append(replace(stage, step=step.key))
    return found


def _of_catalog(here: Room, ready: Ready, steps: Sequence[Step]) -> list[StagePreview]:
    """What its services would list; nothing where they would not understand the scope."""
    try:
        scope = parse_scope(ready.scope)
    except InputInvalid:
        return []
    if not steps:
        return []
    settings = here.settings
    sources = Sources(Config(settings.thawed(settings.snapshot())))
    try:
        names = sources.names()
    finally:
        sources.close()
    backend = upload_backend(here.store, settings)
    return here.store.read(lambda tx: preview(tx, [step.service for step in steps], scope, names, backend))


def _given(step: Step, keys: list[str]) -> StagePreview:
    return StagePreview(step.service, len(keys), 0, len(keys), None, False, "the items that it is given", keys[:FIRST])


def _unknown(step: Step) -> StagePreview:
    basis = "its service lists them when it is its turn"
    if step.follow == "each":
        basis = f"one for each item of {step.depends_on[0]} that is done"
    return StagePreview(step.service, None, None, None, None, True, basis, [])


def _unknown_yet(here: Room, ready: Ready, workflow: Workflow) -> list[Stop]:
    """A name that nothing has as yet: what comes before may bring it."""
    if not is_template(workflow.name):
        return []
    scope = parse_scope(ready.scope)
    try:
        check_names(here.store, scope, scope.sources)
    except InputInvalid as error:
        says = f"{error.details['problem']} It fails unless an earlier stage brings it."
        return [Stop(kind="scope", name="scope", says=says)]
    return []


def _stops(tx: Tx, workflow: Workflow, priority: int) -> list[Stop]:
    lane, services = workflow.lane.name, list(dict.fromkeys(step.service for step in workflow.order()))
    met = {("everything", None), ("lane", lane), *(("service", name) for name in services)}
    found = [
        Stop(kind="hold", name=hold.name or "everything", says=hold.says, until=hold.until)
        for hold in list_holds(tx)
        if (hold.level, hold.name) in met
    ]
    if (ahead := _ahead(tx, lane, priority)) is not None:
        found.append(Stop(kind="lane", name=lane, says=ahead))
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


def _ahead(tx: Tx, lane: str, priority: int) -> str | None:
    """Which jobs are before it, where its lane takes no more than those."""
    before = jobs_before(tx, lane, priority, COUNTED)
    most = job_detail(tx, before[0]).lane.max_active if before else None
    if most is None or len(before) < most:
        return None
    if most > 1:
        return f"{most} jobs or more are before it in lane {lane}, which takes {most} at a time."
    takes = f"before it in lane {lane}, which takes one at a time."
    match len(before) - 1:
        case 0:
            return f"Job {before[0]} is {takes}"
        case more if len(before) == COUNTED:
            return f"Job {before[0]} and {more} more at least are {takes}"
        case more:
            return f"Job {before[0]} and {more} more are {takes}"


def _concerns(name: str, services: list[str]) -> bool:
    """What a service of one's own calls is its own affair; what the catalog's call is named in a known way."""
    kind, _, rest = name.partition(":")
    return (kind in KEYS and not OWN.isdisjoint(services)) or (kind == "service" and rest in services)


def _disk(here: Room, stages: list[StagePreview]) -> list[Stop]:
    needed = next((stage.bytes for stage in stages if stage.service == DOWNLOAD), None)
    if needed is None:
        return []
    _, storage = overview(here.store, here.settings)
    if storage.free is None or storage.free - storage.keep >= needed:
        return []
    room = spoken(max(0, storage.free - storage.keep))
    says = f"About {spoken(needed)} would be downloaded; {storage.root} has room for {room}. It pauses when it is full."
    return [Stop(kind="disk", name=storage.root, says=says)]
