"""Retry: a fresh start for one item, and for the stages and the job that were done with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.engine.chosen import Changed, choose
from dalsegno.engine.planner import advance
from dalsegno.engine.rows import HANDED_OUT, lock_job, lock_stages, set_job, set_stage
from dalsegno.engine.submit import active_twin
from dalsegno.errors import CommandRefused, NotFound, TwinActive
from dalsegno.model.states import JOB_FINISHED, STAGE_FINISHED, ItemStatus, JobStatus, StageStatus
from dalsegno.store.hot import Delta, Event, Raced
from dalsegno.store.schema import items, jobs, stages

if TYPE_CHECKING:
    from dalsegno.store.store import Tx


RETRIABLE = frozenset({ItemStatus.FAILED, ItemStatus.INTERRUPTED})
FORCED = RETRIABLE | {ItemStatus.SUCCEEDED, ItemStatus.SKIPPED}


def retry_item(tx: Tx, item_id: int, by: str, *, force: bool = False) -> None:
    """A fresh budget of attempts for one item; a finished job goes back to the queue for it."""
    job_id = tx.conn.execute(sa.select(items.c.job_id).where(items.c.id == item_id)).scalar()
    if job_id is None:
        raise NotFound(what="item", id=item_id)
    job = lock_job(tx, job_id)
    all_stages = lock_stages(tx, job_id)
    item = tx.row(sa.select(items).where(items.c.id == item_id).with_for_update())
    assert item is not None
    if item["status"] not in (FORCED if force else RETRIABLE):
        verb = "force-retried" if force else "retried"
        raise CommandRefused(what="Item", id=item_id, verb=verb, state=item["status"], fix=_retry_fix(item["status"]))
    if job["cancel_requested_at"] is not None:
        raise CommandRefused(what="Item", id=item_id, verb="retried", state="being canceled", fix="Submit a new job.")
    twin = twin_of(tx, job)
    if twin is not None:
        raise TwinActive(id=job_id, twin=twin)
    _again(tx, job, all_stages, [item], by, force)


def retry_items(
    tx: Tx, job_id: int, ids: Sequence[int], by: str, *, force: bool = False, note: dict[str, Any] | None = None
) -> Changed:
    """The same for many items of a job at once."""
    chosen = choose(tx, job_id, ids, FORCED if force else RETRIABLE, busy="running")
    if chosen.rows and twin_of(tx, chosen.job) is not None:
        return Changed([], Counter({"twin_active": len(ids)}))
    if chosen.rows:
        _again(tx, chosen.job, chosen.stages, chosen.rows, by, force, note)
    return Changed(chosen.ids, chosen.refused)


def twin_of(tx: Tx, job: sa.RowMapping) -> int | None:
    """The active job that has taken over the dedupe key of a finished one."""
    if job["status"] not in JOB_FINISHED or job["dedupe_key"] is None:
        return None
    return active_twin(tx, job["dedupe_key"])


def refuse_twin(tx: Tx, job_id: int) -> None:
    """What an engine would say to a retry, said before it is asked for; it looks again when it comes to it."""
    job = tx.row(sa.select(jobs.c.status, jobs.c.dedupe_key).where(jobs.c.id == job_id))
    twin = None if job is None else twin_of(tx, job)
    if twin is not None:
        raise TwinActive(id=job_id, twin=twin)


def refuse_twin_of_item(tx: Tx, item_id: int) -> None:
    job_id = tx.conn.execute(sa.select(items.c.job_id).where(items.c.id == item_id)).scalar()
    if job_id is not None:
        refuse_twin(tx, job_id)


def _again(
    tx: Tx,
    job: sa.RowMapping,
    all_stages: Sequence[sa.RowMapping],
    chosen: Sequence[sa.RowMapping],
    by: str,
    force: bool,
    note: dict[str, Any] | None = None,
) -> None:
    tx.conn.execute(
        sa.update(items)
        .where(
            items.c.id.in_([item["id"] for item in chosen]),
            items.c.status.in_(sorted({item["status"] for item in chosen})),
        )
        .values(
            status=ItemStatus.PENDING,
            returned=HANDED_OUT,
            forced=force,
            attempt=0,
            interruptions=0,
            error_code=None,
            error_message=None,
            fingerprint=None,
            started_at=None,
            finished_at=None,
        )
    )
    low = {stage["id"]: stage["low_seq"] for stage in all_stages}
    deltas: dict[int, Delta] = {}
    for item in chosen:
        delta = deltas.setdefault(item["stage_id"], Delta())
        delta.move(item["status"], ItemStatus.PENDING)
        delta.ready += 1
        delta.returned += item["seq"] <= low[item["stage_id"]]
    tx.hot.adjust(tx, deltas)
    kind = "item_force_retried" if force else "item_retried"
    told = [
        Event(kind, by, job["id"], item["stage_id"], item["id"],
              data={"was": item["status"], "error_code": item["error_code"], **(note or {})})
        for item in chosen
    ]  # fmt: skip
    tx.hot.insert_events(tx, told)
    reopen(tx, job, all_stages, set(deltas), by)


def _retry_fix(status: str) -> str:
    match status:
        case ItemStatus.SUCCEEDED | ItemStatus.SKIPPED:
            return "To run it again although it is done, force-retry it."
        case ItemStatus.CANCELED:
            return "Submit a new job."
        case _:
            return "It will run by itself."


def reopen(tx: Tx, job: sa.RowMapping, all_stages: Sequence[sa.RowMapping], with_work: set[int], by: str) -> None:
    """The items' stages and everything after them may have work again."""
    touched: set[str] = set()
    events: list[Event] = []
    for stage in all_stages:  # in topological order
        if stage["id"] not in with_work and not touched.intersection(stage["depends_on"]):
            continue
        touched.add(stage["key"])
        if stage["status"] in STAGE_FINISHED:
            replan = stage["id"] not in with_work and stage["follow"] == "all" and not stage["given"]
            set_stage(
                tx,
                stage["id"],
                status=StageStatus.PENDING,
                finished_at=None,
                planned=stage["planned"] and not replan,
                last_error=None,
            )
            events.append(Event("stage_pending", by, job["id"], stage["id"], message="reopened"))
        elif stage["id"] in with_work and stage["status"] == StageStatus.RUNNING:
            set_stage(tx, stage["id"], open=True, claimable=stages.c.ready > 0)
        tx.announce(f"work:{stage['service']}")
    for stage in _canceled_before(all_stages, touched):
        set_stage(tx, stage["id"], status=StageStatus.PENDING, finished_at=None, planned=True)
        events.append(Event("stage_pending", by, job["id"], stage["id"], message="reopened"))
    if job["status"] in JOB_FINISHED:
        _queue_again(tx, job["id"])
        events.append(Event("job_queued", by, job["id"], message="reopened"))
        tx.announce("jobs")
    if events:
        tx.hot.insert_events(tx, events)
    advance(tx, [job["id"]])


def _queue_again(tx: Tx, job_id: int) -> None:
    """Looked for without a lock, a twin may have been submitted since: the next try finds it."""
    try:
        set_job(tx, job_id, status=JobStatus.QUEUED, finished_at=None, error_code=None, error_message=None)
    except sa.exc.IntegrityError as error:
        if "uq_jobs_dedupe" not in str(error.orig):
            raise
        raise Raced from error


def _canceled_before(all_stages: Sequence[sa.RowMapping], touched: set[str]) -> list[sa.RowMapping]:
    """Canceled stages that reopened ones would wait for in vain. What was canceled in them stays so: they complete."""
    needed = set(touched)
    found = []
    for stage in reversed(all_stages):
        if stage["key"] in needed:
            needed.update(stage["depends_on"])
            if stage["key"] not in touched and stage["status"] == StageStatus.CANCELED:
                found.append(stage)
    return found[::-1]
