"""What is ordered, of a job, a plan or a schedule: one of the seven templates, or a workflow that is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dalsegno.catalog.orders import checked, is_template
from dalsegno.catalog.scope import check_findable, parse_scope
from dalsegno.engine.orders import Order, Ready
from dalsegno.errors import WorkflowUnknown
from dalsegno.model.workflow import Workflow
from dalsegno.requests.workflow import PARSE
from dalsegno.web.room import Room

WORKFLOW = "The id or title of a template, or the name of a workflow. `template` says the same."


class OrderUnknown(WorkflowUnknown):
    """There is no template or workflow "{name}".{hint}"""

    status = 422  # the address was right, what it was sent was not


def ordered(here: Room, workflow: str, request: Mapping[str, Any]) -> tuple[Ready, Workflow]:
    """What can be submitted with the settings of now, and its steps; or an error that says what it cannot mean."""
    try:
        return checked(here.store, Order(workflow, request), here.settings, here.revision(), not_these=PARSE.name)
    except WorkflowUnknown as error:
        raise OrderUnknown(**error.details) from None


def submittable(here: Room, workflow: str, request: Mapping[str, Any]) -> tuple[Ready, Workflow]:
    """Of a job that is to begin as soon as it can: its scope must name what is there, or what its steps could bring.

    A schedule may name what is not there yet.
    """
    found, steps = ordered(here, workflow, request)
    if is_template(steps.name):
        check_findable(here.store, parse_scope(found.scope), {step.service for step in steps.steps})
    return found, steps
