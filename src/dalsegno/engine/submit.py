"""Submit: a workflow and its first items become a job, in one transaction, at most once per dedupe key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from dalsegno.clock import SystemClock
from dalsegno.errors import InputInvalid, PayloadTooLarge, WorkflowInvalid, WorkflowUnknown
from dalsegno.model.identity import identity
from dalsegno.model.suggest import did_you_mean
from dalsegno.model.workflow import Lane, Step, Workflow
from dalsegno.store.hot import Event, NewItem
from dalsegno.store.open import hot_for
from dalsegno.store.schema import jobs, lanes, stages, workflows
from dalsegno.store.store import Store, Tx

MAX_PAYLOAD = 1_000_000
MAX_KEY = 500
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""A NUL in JSON text, and not the six characters of its spelling behind an escaped backslash."""
PRIORITIES = range(-1_000_000, 1_000_001)

Items = Iterable[Any] | Mapping[str, Iterable[Any]]
Listed = Sequence[Any] | Mapping[str, Sequence[Any]]


class Submitted(NamedTuple):
    job_id: int
    created: bool
    """False when an unfinished job with the same dedupe key was there already."""


def submit(
    target: Store | Tx | sa.Connection,
    workflow: Workflow | str,
    *,
    items: Items | None = None,
    params: Mapping[str, Any] | None = None,
    scope: Any = None,
    options: Mapping[str, Any] | None = None,
    snapshot: Mapping[str, Any] | None = None,
    revision: int | None = None,
    priority: int = 100,
    requested_by: str | None = None,
    scheduled_at: datetime | None = None,
    dedupe: str | bool = False,
) -> Submitted:
    """Store a job to be run.

    `target` is a Store, or a transaction or SQLAlchemy connection of your own: then the job exists if and only if
    you commit.
    `items` are the first step's items (or a mapping of step to items): keys, `(key, params)` pairs or mappings with
    `key` and `params`. A step without items is planned by its service. `params` overlay every step's defaults.
    `revision` is that of the settings file which the `snapshot` was taken from, where it is known.
    `dedupe=True` makes jobs of the same workflow, items, params, scope and options one; a string is your own key.
    """
    if isinstance(workflow, Workflow):
        workflow.check()
    if priority not in PRIORITIES:
        raise InputInvalid(problem=f"priority must be a whole number within ±1,000,000, not {priority!r}.")
    if scheduled_at is not None and scheduled_at.tzinfo is None:
        raise InputInvalid(problem="scheduled_at needs a time zone, for example 2026-01-31T12:00:00+00:00.")
    for what, value in (("params", params), ("scope", scope), ("options", options), ("snapshot", snapshot)):
        to_json(value, what)
    fields = {
        "scope": scope,
        "options": {**(options or {}), **({"params": dict(params)} if params else {})} or None,
        "snapshot": dict(snapshot or {}) or None,
        "config_revision_id": revision,
        "priority": priority,
        "requested_by": requested_by,
        "scheduled_at": scheduled_at,
    }
    name = workflow if isinstance(workflow, str) else workflow.name
    listed: Listed | None = None  # the transaction may run twice; a generator would be empty the second time
    if isinstance(items, Mapping):
        listed = {key: _sized(specs) for key, specs in items.items()}
    elif items is not None:
        listed = _sized(items)

    if dedupe is True:
        dedupe = identity({"workflow": name, "scope": scope, "options": fields["options"], "items": listed})

    def work(tx: Tx) -> Submitted:
        return _submit(tx, workflow, listed, fields, dedupe or None)

    if isinstance(target, Store):
        return target.write("submit", work)
    if isinstance(target, Tx):
        return work(target)
    hot = hot_for(target)
    tx = Tx(target, hot, SystemClock().now())
    submitted = work(tx)
    hot.tell_inside(tx)
    return submitted


def _submit(
    tx: Tx, workflow: Workflow | str, items: Listed | None, fields: dict[str, Any], dedupe: str | None
) -> Submitted:
    if dedupe is not None and (twin := active_twin(tx, dedupe)) is not None:
        return Submitted(twin, False)
    workflow_id, definition = _stored_workflow(tx, workflow)
    given = by_step(definition, items)
    job_id = tx.hot.new_job_id(tx)
    inserted = tx.insert_new(
        jobs,
        {
            **fields,
            "id": job_id,
            "workflow_id": workflow_id,
            "lane": definition.lane.name,
            "order_seq": job_id,
            "dedupe_key": dedupe,
            "created_at": tx.now,
            "updated_at": tx.now,
        },
    )
    if not inserted:  # another submit with the same key got there between our look and our insert
        assert dedupe is not None
        twin = active_twin(tx, dedupe)
        if twin is None:
            return _submit(tx, workflow, items, fields, dedupe)
        return Submitted(twin, False)
    overlay = (fields["options"] or {}).get("params", {})
    added = {key: len(specs) for key, specs in given.items()}
    stage_ids = _insert_stages(tx, job_id, definition, fields["priority"], overlay, added)
    for key, specs in given.items():
        if not specs:
            continue
        tx.hot.insert_items(tx, job_id, stage_ids[key], number_items(specs))
    tx.hot.insert_events(
        tx,
        [
            Event(
                "job_submitted",
                fields["requested_by"] or "submit",
                job_id,
                data={"workflow": definition.name, "version": definition.version, "items": added},
            )
        ],
    )
    tx.announce(f"lane:{definition.lane.name}")
    return Submitted(job_id, True)


# In the very words of the index on dedupe keys: SQLite compares the words, and would look through all jobs.
_TWIN = sa.select(jobs.c.id).where(
    jobs.c.dedupe_key == sa.bindparam("dedupe"),
    sa.text("status IN ('queued', 'running', 'pause_requested', 'paused')"),
)


def active_twin(tx: Tx, dedupe: str) -> int | None:
    """The unfinished job that holds this dedupe key."""
    return tx.conn.execute(_TWIN, {"dedupe": dedupe}).scalar()


# --- workflows and lanes ------------------------------------------------------------------------


_WORKFLOW = sa.select(workflows.c.id, workflows.c.definition).where(
    workflows.c.name == sa.bindparam("name"), workflows.c.version == sa.bindparam("version")
)
_INSERT_STAGE = sa.insert(stages).returning(stages.c.id)


def apply_workflow(tx: Tx, workflow: Workflow) -> tuple[int, bool]:
    """Store a workflow; `(id, created)`. A version, once stored, never changes."""
    definition = workflow.model_dump(mode="json")
    row = tx.row(_WORKFLOW, {"name": workflow.name, "version": workflow.version})
    if row is not None:
        if identity(row["definition"]) != identity(definition):
            raise WorkflowInvalid(
                problem=f'"{workflow.name}" version {workflow.version} is stored with other steps. '
                f"Give the changed one version {workflow.version + 1}."
            )
        return row["id"], False
    ensure_lane(tx, workflow.lane)
    found = tx.insert_new(
        workflows,
        {
            "name": workflow.name,
            "version": workflow.version,
            "definition": definition,
            "created_at": tx.now,
            "updated_at": tx.now,
        },
    )
    if found is None:  # somebody stored the same version at the same moment
        return apply_workflow(tx, workflow)[0], False
    return found, True


def ensure_lane(tx: Tx, lane: Lane) -> None:
    """The lane's row. Naming a lane leaves its limits alone; stating limits sets them."""
    row = tx.row(sa.select(lanes.c.max_active, lanes.c.recovery).where(lanes.c.name == lane.name))
    stated = {key: getattr(lane, key) for key in ("max_active", "recovery") if key in lane.model_fields_set}
    if row is None:
        tx.insert_new(lanes, {"name": lane.name, "max_active": lane.max_active, "recovery": lane.recovery})
    elif any(row[key] != value for key, value in stated.items()):
        tx.conn.execute(sa.update(lanes).where(lanes.c.name == lane.name).values(**stated))


def load_workflow(tx: Tx, name: str) -> tuple[int, Workflow]:
    """The newest active version."""
    row = tx.row(
        sa.select(workflows.c.id, workflows.c.definition)
        .where(workflows.c.name == name, workflows.c.is_active)
        .order_by(workflows.c.version.desc())
        .limit(1)
    )
    if row is None:
        raise WorkflowUnknown(name=name, hint=did_you_mean(name, stored_workflows(tx)))
    return row["id"], Workflow.model_validate(row["definition"])


def stored_workflows(tx: Tx) -> set[str]:
    """The names of those that can be submitted by name."""
    return set(tx.conn.execute(sa.select(workflows.c.name).where(workflows.c.is_active).distinct()).scalars())


def _stored_workflow(tx: Tx, workflow: Workflow | str) -> tuple[int, Workflow]:
    if isinstance(workflow, str):
        return load_workflow(tx, workflow)
    return apply_workflow(tx, workflow)[0], workflow


# --- stages and items ---------------------------------------------------------------------------


def _insert_stages(
    tx: Tx, job_id: int, workflow: Workflow, priority: int, overlay: Mapping[str, Any], given: Mapping[str, int]
) -> dict[str, int]:
    ids: dict[str, int] = {}
    for number, step in enumerate(workflow.order()):
        count = given.get(step.key, 0)
        row = {
            "job_id": job_id,
            "seq": number,
            "key": step.key,
            "service": step.service,
            "depends_on": list(step.depends_on),
            "follow": step.follow,
            "followed_by": [other.key for other in workflow.steps if _follows(other, step)],
            "on_failure": step.on_failure,
            "params": {**step.default_params, **overlay} or None,
            "max_attempts": step.max_attempts,
            "max_interruptions": step.max_interruptions,
            "timeout": step.timeout,
            "priority": priority,
            "order_seq": job_id,
            "given": step.key in given,
            "planned": step.follow == "each" or step.key in given,
            "high_seq": count,
            "total": count,
            "pending": count,
            "ready": count,
        }
        ids[step.key] = tx.conn.execute(_INSERT_STAGE, row).scalar_one()
    return ids


def _follows(step: Step, other: Step) -> bool:
    return step.follow == "each" and step.depends_on == (other.key,)


def number_items(specs: Iterable[Any], start: int = 1) -> Iterator[NewItem]:
    """Item specs in any accepted form, as rows."""
    for seq, spec in enumerate(specs, start):
        if isinstance(spec, str):
            key, params = spec, None
        elif isinstance(spec, Mapping):
            extra = set(spec) - {"key", "params"}
            if extra or "key" not in spec:
                raise InputInvalid(problem=f'An item is a key, or has "key" and "params"; got {sorted(spec)}.')
            key, params = spec["key"], spec.get("params")
        elif isinstance(spec, tuple) and len(spec) == 2:
            key, params = spec
        else:
            raise InputInvalid(problem=f"An item is a key, (key, params) or a mapping, not {type(spec).__name__}.")
        if not isinstance(key, str) or not key or len(key) > MAX_KEY or not _storable(key):
            raise InputInvalid(problem=f"An item's key is a text of 1 to {MAX_KEY} characters, not {key!r:.80}.")
        if params is not None and not isinstance(params, Mapping):
            raise InputInvalid(problem=f'The params of item "{key}" must be a mapping, not {type(params).__name__}.')
        yield NewItem(seq, key, to_json(params, f'the params of item "{key}"') if params else None)


def _storable(text: str) -> bool:
    """Both databases take any text but NUL and half characters."""
    if "\x00" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_json(value: Any, what: str) -> str | None:
    """JSON text that both databases store, or an error that names what cannot be stored."""
    if value is None:
        return None
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        size = len(text) if text.isascii() else len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InputInvalid(problem=f"{what} cannot be stored as JSON: {error}.") from None
    if size > MAX_PAYLOAD:
        raise PayloadTooLarge(what=what[0].upper() + what[1:], size=size, limit=MAX_PAYLOAD)
    if "\\u0000" in text and NUL.search(text):
        raise InputInvalid(problem=f"{what} contains a NUL character, which cannot be stored.")
    return text


def by_step(workflow: Workflow, items: Listed | None) -> dict[str, Sequence[Any]]:
    """The items a job is given, by the step they are for."""
    if items is None:
        return {}
    if isinstance(items, Mapping):
        keys = [step.key for step in workflow.steps]
        for key in items:
            if key not in keys:
                hint = did_you_mean(key, keys)
                raise InputInvalid(problem=f'items are given for unknown step "{key}".{hint}')
        return dict(items)
    roots = [step.key for step in workflow.steps if not step.depends_on]
    if len(roots) != 1:
        raise InputInvalid(
            problem=f"the workflow starts with {len(roots)} steps; say which items are whose: {{step: items}}."
        )
    return {roots[0]: items}


def _sized(specs: Iterable[Any]) -> Sequence[Any]:
    return specs if isinstance(specs, list | tuple) else list(specs)
