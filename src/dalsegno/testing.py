"""Test services without a server: one item in a function call, or a whole workflow on a temporary database.

from dalsegno.testing import drain, run_item

def test_render(tmp_path):
    ran = run_item(render, params={"frames": 10}, snapshot={"LIBRARY_ROOT": str(tmp_path)})
    assert ran.result == {"frames": 10}
    assert ran.progress[-1].fraction == 1.0
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from dalsegno.engine.batches import answers
from dalsegno.engine.engine import Engine, EngineOptions
from dalsegno.engine.executor import current_item, failure
from dalsegno.engine.item import Artifact, Item, StageInfo
from dalsegno.engine.service import Service
from dalsegno.engine.submit import Items, submit
from dalsegno.model.backoff import Backoff
from dalsegno.model.outcome import Done, Outcome, Skip, outcome_of
from dalsegno.model.records import EventRecord, ItemRecord, JobRecord, StageRecord
from dalsegno.model.states import JOB_FINISHED, JobStatus
from dalsegno.model.workflow import Workflow
from dalsegno.store.hot import Claimed
from dalsegno.store.open import open_store
from dalsegno.store.schema import events, items, jobs, stages
from dalsegno.store.store import Store


class Reported(NamedTuple):
    """One call of `item.progress`."""

    fraction: float | None
    text: str | None


@dataclass(slots=True)
class Ran:
    """What one attempt did."""

    outcome: Outcome
    result: Any = None
    """What Done or Skip carried."""
    progress: list[Reported] = field(default_factory=list)
    """Every call, unthrottled."""
    phases: list[str] = field(default_factory=list)
    artifacts: list[Artifact] = field(default_factory=list)
    logs: list[logging.LogRecord] = field(default_factory=list)


class _Recorded(Item):
    """An item that remembers what was said, where a real one keeps only the last."""

    def __init__(self, claimed: Claimed, stage: StageInfo) -> None:
        super().__init__(claimed, stage)
        self.reported: list[Reported] = []
        self.phases: list[str] = []
        self.on_phase = lambda item: self.phases.append(item.current_phase or "")

    def progress(self, fraction: float | None = None, text: str | None = None, *, beside: str | None = None) -> None:
        super().progress(fraction, text, beside=beside)
        self.reported.append(Reported(self.fraction if fraction is not None else None, text))


def run_item(
    service: Service,
    *,
    key: str = "item",
    params: Mapping[str, Any] | None = None,
    snapshot: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    input: Any = None,
    attempt: int = 0,
    forced: bool = False,
    cancelled: bool = False,
) -> Ran:
    """Run a service on one item, here and now, without engine or database.

    An exception becomes the outcome it would become in the engine (`Retry`, with the exception's type as its
    code), so a test asserts on outcomes alone. `input` is what an item of a step that follows `each` finds in
    `item.input`. Async services run in an event loop of their own; a batch service gets a batch of one.
    """
    name = service.name
    stage = StageInfo(
        id=1, job_id=1, key=name, service=name, params={}, snapshot=dict(snapshot or {}), scope=None,
        options=dict(options or {}), followed_by=(), max_attempts=3, max_interruptions=20, timeout=None,
    )  # fmt: skip
    claimed = Claimed(1, 1, 1, 1, key, 1, attempt, 0, forced, 1, json.dumps(dict(params or {})))
    item = _Recorded(claimed, stage)
    item.cancelled = cancelled
    item.fetch_input = lambda _parent: input
    lines: list[logging.LogRecord] = []
    catcher = _Catcher(lines)
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(catcher)
    root.setLevel(logging.DEBUG)
    token = current_item.set(item)
    try:
        outcome = _attempt(service, item)
    finally:
        current_item.reset(token)
        root.setLevel(level)
        root.removeHandler(catcher)
    result = outcome.result if isinstance(outcome, Done | Skip) else None
    return Ran(outcome, result, item.reported, item.phases, list(item.artifacts), lines)


def _attempt(service: Service, item: Item) -> Outcome:
    try:
        returned = service.handler([item] if service.is_batch else item)
        if inspect.isawaitable(returned):
            returned = asyncio.run(_awaited(returned))
        return answers(service.name, [item], returned)[item.id] if service.is_batch else outcome_of(returned)
    except Exception as error:
        return failure(error)


async def _awaited(returned: Any) -> Any:
    return await returned


class _Catcher(logging.Handler):
    def __init__(self, lines: list[logging.LogRecord]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        # Only what the service says, as the log bridge does: not the engine's own debug lines.
        if current_item.get() is not None and record.name != "dalsegno.engine":
            self._lines.append(record)


@dataclass(frozen=True, slots=True)
class Drained:
    """A job that has come to rest, and all it left behind."""

    job: JobRecord
    stages: list[StageRecord]
    items: list[ItemRecord]
    events: list[EventRecord]

    def of(self, stage: str) -> list[ItemRecord]:
        """The items of one stage, in order."""
        (found,) = (each.id for each in self.stages if each.key == stage)
        return [item for item in self.items if item.stage_id == found]


def drain(
    services: Iterable[Service],
    workflow: Workflow,
    *,
    items: Items | None = None,
    params: Mapping[str, Any] | None = None,
    snapshot: Mapping[str, Any] | None = None,
    options: EngineOptions | None = None,
    timeout: float = 30.0,
) -> Drained:
    """Run a workflow with a real engine on a temporary SQLite file until the job has ended or is paused.

    Retries wait milliseconds instead of the usual backoff unless you pass `options`. Raises TimeoutError when
    the job has not come to rest within `timeout` seconds.
    """
    quick = EngineOptions(backoff=Backoff(base=0.01, cap=0.05), drain_seconds=1.0)
    with tempfile.TemporaryDirectory(prefix="dalsegno-") as folder:
        store = open_store(f"sqlite:///{Path(folder) / 'test.db'}")
        try:
            job = submit(store, workflow, items=items, params=params, snapshot=snapshot)
            with Engine(store, services, options or quick):
                _rest(store, job.job_id, timeout)
            return _read(store, job.job_id)
        finally:
            store.close()


def _rest(store: Store, job_id: int, timeout: float) -> None:
    give_up = time.monotonic() + timeout
    query = sa.select(jobs.c.status).where(jobs.c.id == job_id)
    while (status := store.read(lambda tx: tx.conn.execute(query).scalar_one())) not in {
        *JOB_FINISHED,
        JobStatus.PAUSED,
    }:
        if time.monotonic() > give_up:
            raise TimeoutError(f"the job is still {status} after {timeout:g} seconds")
        time.sleep(0.01)


def _read(store: Store, job_id: int) -> Drained:
    def rows(table: sa.Table, order: sa.Column[Any]) -> list[dict[str, Any]]:
        column = table.c.id if table is jobs else table.c.job_id
        query = sa.select(table).where(column == job_id).order_by(order)
        return [dict(row) for row in store.read(lambda tx: tx.rows(query))]

    return Drained(
        JobRecord.model_validate(rows(jobs, jobs.c.id)[0]),
        [StageRecord.model_validate(row) for row in rows(stages, stages.c.seq)],
        [ItemRecord.model_validate(row) for row in rows(items, items.c.id)],
        [EventRecord.model_validate(row) for row in rows(events, events.c.id)],
    )
