"""A workflow: a named, versioned DAG of steps, checked before anything is stored."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dalsegno.errors import WorkflowInvalid
from dalsegno.model.suggest import did_you_mean

Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\s/\\\x00-\x1f]+$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Lane(_Strict):
    """Jobs that share an active-job limit."""

    name: Name = "default"
    max_active: int | None = Field(default=None, ge=1)
    """How many of its jobs may be active at once; None is no limit."""
    recovery: Literal["continue", "pause"] = "continue"
    """After a crash: go on at once, or pause and hold the lane until an operator resumes."""


class Step(_Strict):
    key: Name
    service: Name
    depends_on: tuple[Name, ...] = ()
    follow: Literal["all", "each"] = "all"
    """`all`: start when everything it depends on is done. `each`: one item per finished item of the step it follows."""
    default_params: dict[str, Any] = Field(default_factory=dict)
    on_failure: Literal["continue", "stop"] = "continue"
    max_attempts: int = Field(default=3, ge=1, le=1000)
    max_interruptions: int = Field(default=20, ge=1, le=1000)
    timeout: float | None = Field(default=None, gt=0)
    """Seconds one attempt may take."""


class Workflow(_Strict):
    name: Name
    version: int = Field(default=1, ge=1)
    lane: Lane = Lane()
    steps: tuple[Step, ...] = Field(min_length=1, max_length=200)

    def check(self, services: Iterable[str] | None = None) -> Workflow:
        """This workflow, or WorkflowInvalid that names the step, the fault and the likely intention."""
        keys = [step.key for step in self.steps]
        for key in keys:
            if keys.count(key) > 1:
                raise WorkflowInvalid(problem=f'step "{key}" is defined {keys.count(key)} times.')
        for step in self.steps:
            for needed in step.depends_on:
                if needed == step.key:
                    raise WorkflowInvalid(problem=f'step "{step.key}" depends on itself.')
                if needed not in keys:
                    hint = did_you_mean(needed, set(keys) - {step.key})
                    raise WorkflowInvalid(problem=f'step "{step.key}" depends on unknown step "{needed}".{hint}')
            if step.follow == "each" and len(step.depends_on) != 1:
                raise WorkflowInvalid(
                    problem=f'step "{step.key}" follows item by item (each), so it must depend on exactly one step.'
                )
        self.order()
        if services is not None:
            known = set(services)
            for step in self.steps:
                if step.service not in known:
                    hint = did_you_mean(step.service, known)
                    raise WorkflowInvalid(problem=f'step "{step.key}" uses unknown service "{step.service}".{hint}')
        return self

    def order(self) -> list[Step]:
        """The steps, each after everything it depends on; otherwise as written."""
        by_key = {step.key: step for step in self.steps}
        sorter = TopologicalSorter({step.key: step.depends_on for step in self.steps})
        try:
            return [by_key[key] for key in sorter.static_order()]
        except CycleError as error:
            cycle = " → ".join(reversed(error.args[1]))
            raise WorkflowInvalid(problem=f"its steps go in a circle: {cycle}.") from None


def parse_workflow(data: Any, services: Iterable[str] | None = None) -> Workflow:
    """A checked workflow from plain data (JSON), with one readable sentence for the first fault."""
    try:
        workflow = Workflow.model_validate(data)
    except ValidationError as error:
        raise WorkflowInvalid(problem=_sentence(error, data)) from None
    return workflow.check(services)


def _sentence(error: ValidationError, data: Any) -> str:
    fault = error.errors(include_url=False)[0]
    where = _place(fault["loc"], data)
    if fault["type"] == "extra_forbidden":
        unknown = str(fault["loc"][-1])
        model = Step if "steps" in fault["loc"] else Lane if "lane" in fault["loc"] else Workflow
        return f'unknown key "{unknown}" in {where}.{did_you_mean(unknown, model.model_fields)}'
    return f"{where}: {fault['msg'][0].lower()}{fault['msg'][1:]}."


def _place(loc: tuple[int | str, ...], data: Any) -> str:
    match loc:
        case ("steps", int(index), *rest):
            step = data["steps"][index]
            name = step.get("key", index + 1) if isinstance(step, dict) else index + 1
            return f'step "{name}"' + (f", {'.'.join(map(str, rest))}" if rest else "")
        case ():
            return "the workflow"
        case _:
            return f'"{".".join(map(str, loc))}"'
