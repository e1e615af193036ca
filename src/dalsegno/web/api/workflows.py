"""Workflows: what there is, its versions, its steps and its runs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from dalsegno.catalog.templates import TEMPLATES, TITLES
from dalsegno.errors import WorkflowUnknown
from dalsegno.insight.jobs import list_jobs
from dalsegno.insight.workflows import get_workflow, list_workflows
from dalsegno.model.records import WorkflowRecord
from dalsegno.model.workflow import Workflow as Definition
from dalsegno.store.store import Tx
from dalsegno.web.api.asking import refusals
from dalsegno.web.api.models import Job
from dalsegno.web.api.parameters import Word
from dalsegno.web.room import Here

router = APIRouter(tags=["workflows"])

RUNS = 20


class Workflow(BaseModel):
    name: str
    title: str | None
    """What a template is called in Chinese."""
    template: bool
    """One of the seven that come along."""
    version: int
    """The newest that is active; 0 for a template that never ran."""
    versions: list[int]
    lane: str
    steps: list[dict[str, Any]]
    """In the order in which they can run."""


class Workflows(BaseModel):
    workflows: list[Workflow]


class WorkflowInFull(Workflow):
    runs: list[Job]
    """The last ones, newest first."""


@router.get("/workflows")
def workflows(here: Here) -> Workflows:
    """The seven templates, and every workflow that was stored."""
    return Workflows(workflows=all_workflows(here.store.read(list_workflows)))


@router.get("/workflows/{name}", responses=refusals(WorkflowUnknown))
def workflow(here: Here, name: Word) -> WorkflowInFull:
    """One, with its last runs."""

    def read(tx: Tx) -> WorkflowInFull:
        stored = [record for record in list_workflows(tx) if record.name == name]
        if not stored and name not in TEMPLATES:
            get_workflow(tx, name)  # says that there is none, and what was probably meant
        (found,) = (each for each in all_workflows(stored) if each.name == name)
        runs = [Job.of(line) for line in list_jobs(tx, workflow=name, limit=RUNS)]
        return WorkflowInFull(**dict(found), runs=runs)

    return here.store.read(read)


def all_workflows(stored: list[WorkflowRecord]) -> list[Workflow]:
    by_name: dict[str, list[WorkflowRecord]] = {}
    for record in stored:
        by_name.setdefault(record.name, []).append(record)
    names = [*TEMPLATES, *sorted(by_name.keys() - TEMPLATES.keys())]
    return [_workflow(name, by_name.get(name, [])) for name in names]


def _workflow(name: str, versions: list[WorkflowRecord]) -> Workflow:
    newest = next((record for record in versions if record.is_active), versions[0] if versions else None)
    definition = TEMPLATES[name] if newest is None else Definition.model_validate(newest.definition)
    return Workflow(
        name=name,
        title=TITLES.get(name),
        template=name in TEMPLATES,
        version=0 if newest is None else newest.version,
        versions=[record.version for record in versions],
        lane=definition.lane.name,
        steps=[step.model_dump(mode="json") for step in definition.order()],
    )
