"""What is ordered, made ready: a template with its scope checked and the settings of now, or another workflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dalsegno.catalog.templates import TEMPLATES, TITLES, check, template
from dalsegno.engine.orders import Order, Prepare, Ready, check_request
from dalsegno.engine.submit import by_step, load_workflow, number_items, stored_workflows, to_json
from dalsegno.errors import InputInvalid, WorkflowUnknown
from dalsegno.model.suggest import did_you_mean
from dalsegno.model.workflow import Workflow
from dalsegno.settings import Settings
from dalsegno.store.store import Store, Tx

NONE: Mapping[str, Workflow] = MappingProxyType({})


def preparing(
    settings: Callable[[], Settings], revision: Callable[[], int | None], workflows: Mapping[str, Workflow] = NONE
) -> Prepare:
    """For an engine: `settings` are those of now, `revision` that of their file, `workflows` those of modules."""

    def prepare(order: Order) -> Ready:
        return ready(order, settings(), revision(), workflows)

    return prepare


def ready(
    order: Order, settings: Settings, revision: int | None = None, workflows: Mapping[str, Workflow] = NONE
) -> Ready:
    """The order as it can be submitted, or an error that says what it cannot mean."""
    check_request(order.request)
    asked = dict(order.request)
    sources = asked.pop("download_sources", None) or []
    if not isinstance(sources, list) or not all(isinstance(name, str) for name in sources):
        raise InputInvalid(problem="download_sources is a list of names.")
    snapshot = settings.snapshot()
    if is_template(order.workflow):
        if extra := sorted({"items", "params"} & {key for key, value in asked.items() if value}):
            raise InputInvalid(problem=f"A template lists its items by itself: it takes a scope, and no {extra[0]}.")
        scope = check(settings, asked.get("scope"), sources)
        options: dict[str, Any] = {**(asked.get("options") or {}), **({"download_sources": sources} if sources else {})}
        return Ready(
            template(order.workflow), scope=scope.model_dump(), options=options or None, snapshot=snapshot,
            revision=revision,
        )  # fmt: skip
    if sources:
        raise InputInvalid(problem="Only templates have download sources.")
    return Ready(
        workflows.get(order.workflow, order.workflow), asked.get("items"), asked.get("params"), asked.get("scope"),
        asked.get("options"), snapshot, revision,
    )  # fmt: skip


def is_template(name: str) -> bool:
    return name in TEMPLATES or name in TITLES.values()


def check_order(
    store: Store, order: Order, settings: Settings, workflows: Mapping[str, Workflow] = NONE, *, not_these: str = ""
) -> Order:
    """The order with the template's own id, if it could be submitted now; `not_these` has another way to be asked."""
    _, workflow = checked(store, order, settings, None, workflows, not_these=not_these)
    return Order(workflow.name, order.request)


def checked(
    store: Store,
    order: Order,
    settings: Settings,
    revision: int | None = None,
    workflows: Mapping[str, Workflow] = NONE,
    *,
    not_these: str = "",
) -> tuple[Ready, Workflow]:
    """An order that can be submitted now, and the steps that it means."""
    if order.workflow == not_these:
        problem = f'Jobs of "{not_these}" answer requests: they are asked for, not scheduled or started.'
        raise InputInvalid(problem=problem)
    found = ready(order, settings, revision, workflows)
    workflow = found.workflow
    if isinstance(workflow, str):
        workflow = _stored(store, workflow, {*TEMPLATES, *TITLES.values(), *workflows}, not_these)
    for what, value in (("params", found.params), ("scope", found.scope), ("options", found.options)):
        to_json(value, what)
    for specs in by_step(workflow, found.items).values():
        list(number_items(specs))
    return found, workflow


def _stored(store: Store, name: str, others: set[str], not_these: str) -> Workflow:
    def look(tx: Tx) -> Workflow:
        try:
            return load_workflow(tx, name)[1]
        except WorkflowUnknown:
            known = (others | stored_workflows(tx)) - {not_these}
            raise WorkflowUnknown(name=name, hint=did_you_mean(name, known)) from None

    return store.read(look)
