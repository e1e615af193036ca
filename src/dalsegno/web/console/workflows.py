"""Workflows: what there is to run, its versions, its steps as a picture, and its runs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from dalsegno.catalog.templates import TEMPLATES
from dalsegno.insight.jobs import JOBS, find_jobs
from dalsegno.insight.query import Query
from dalsegno.insight.workflows import get_workflow, list_workflows
from dalsegno.model.records import WorkflowRecord
from dalsegno.model.workflow import Workflow
from dalsegno.store.store import Tx
from dalsegno.web.api.parameters import Word
from dalsegno.web.api.workflows import all_workflows
from dalsegno.web.console.frame import render
from dalsegno.web.console.graph import laid_out
from dalsegno.web.console.pages import pages
from dalsegno.web.room import Here

router = pages()

RUNS = 25
Version = Annotated[int, Field(ge=1, lt=2**31)]


@router.get("/workflows")
def workflows(request: Request, here: Here) -> HTMLResponse:
    found = all_workflows(here.store.read(list_workflows))
    return render(request, here, "workflows.html", page="workflows", live=("workflows", "jobs"), found=found)


@router.get("/workflows/{name}")
def workflow(
    request: Request, here: Here, name: Word, version: Version | None = None, cursor: str | None = None
) -> HTMLResponse:
    """One version, by default the newest that is active."""

    def read(tx: Tx) -> dict[str, Any]:
        stored = [record for record in list_workflows(tx) if record.name == name]
        if version is not None or (not stored and name not in TEMPLATES):
            get_workflow(tx, name, version)  # says that there is none, and what was probably meant
        record = _chosen(stored, version)
        definition = TEMPLATES[name] if record is None else Workflow.model_validate(record.definition)
        runs = find_jobs(tx, Query().with_("template", name), among=JOBS, cursor=cursor, limit=RUNS)
        return {"stored": stored, "record": record, "definition": definition, "runs": runs, "now": tx.now}

    values = here.store.read(read)
    steps = values["definition"].order()
    return render(
        request, here, "workflow.html", page="workflows", live=("jobs", "workflows"), name=name, cursor=cursor,
        steps=steps, graph=laid_out(steps), says={step.key: ("", step.service) for step in steps},
        is_template=name in TEMPLATES, **values,
    )  # fmt: skip


def _chosen(stored: list[WorkflowRecord], version: int | None) -> WorkflowRecord | None:
    if version is not None:
        return next(record for record in stored if record.version == version)
    return next((record for record in stored if record.is_active), stored[0] if stored else None)
