"""The commander: applies what operators ask for. A command is a row; each is one transaction.

Everything here locks the job first, then its stages, then items nobody has leased.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.engine.bulk import PENDING, Finder, apply_bulk, check_bulk
from dalsegno.engine.holds import ENGINE, UNSAID, release
from dalsegno.engine.looper import Looper
from dalsegno.engine.pauses import pause_job, pause_stage, resume_job, resume_stage
from dalsegno.engine.priority import set_priority
from dalsegno.engine.retry import retry_item
from dalsegno.engine.rows import lock_job, lock_stages, set_job, set_stage
from dalsegno.errors import CommandRefused, DalSegnoError, InputInvalid, NotFound
from dalsegno.model.states import (
    JOB_FINISHED,
    CommandStatus,
    ItemStatus,
    JobStatus,
)
from dalsegno.store.hot import Event
from dalsegno.store.schema import BULK, COMMANDS, commands, items, jobs, stages, waits

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.engine")

BREATH, BUSY_BREATH = 1.0, 9.0
"""After each bit of a command about many items: so many times as long as it took is left to others; more where this
process has items in hand."""
LONGEST_BREATH = 1.0


def request(
    tx: Tx,
    kind: str,
    *,
    job_id: int | None = None,
    item_id: int | None = None,
    payload: dict[str, Any] | None = None,
    requested_by: str | None = None,
) -> int:
    """Write a command down; returns its id. The next engine to look applies it."""
    if kind not in COMMANDS:
        raise InputInvalid(problem=f'There is no command "{kind}".')
    if kind in BULK:
        check_bulk(kind, payload)
    if kind in BULK and job_id is None:
        pass  # about items of any job
    elif item_id is not None and job_id is None:
        job_id = tx.conn.execute(sa.select(items.c.job_id).where(items.c.id == item_id)).scalar()
        if job_id is None:
            raise NotFound(what="item", id=item_id)
    elif tx.conn.execute(sa.select(jobs.c.id).where(jobs.c.id == job_id)).scalar() is None:
        raise NotFound(what="job", id=job_id)
    tx.announce("commands")
    return int(
        tx.conn.execute(
            sa.insert(commands)
            .values(
                type=kind,
                job_id=job_id,
                item_id=item_id,
                payload=payload,
                requested_by=requested_by,
                created_at=tx.now,
            )
            .returning(commands.c.id)
        ).scalar_one()
    )


class Commander(Looper):
    name = "commander"

    def __init__(
        self, store: Store, find: Finder | None = None, in_hand: Callable[[], Collection[int]] | None = None
    ) -> None:
        super().__init__()
        self.interval = store.poll_seconds
        self._store = store
        self._find = find
        self._in_hand = in_hand

    def tick(self) -> float | None:
        waiting = apply_pending(self._store)
        began = self._store.clock.monotonic()
        if apply_bulk(self._store, self._find):
            breath = BUSY_BREATH if self._in_hand is not None and self._in_hand() else BREATH
            return min(LONGEST_BREATH, breath * (self._store.clock.monotonic() - began))
        return 0.2 if waiting else None


def apply_pending(store: Store) -> bool:
    """Apply every pending command in order; True when some must wait (a resume while its job still drains)."""
    last, waiting = 0, False
    while True:
        try:
            outcome = store.write("command", lambda tx, last=last: _apply_next(tx, last))  # type: ignore[misc]
        except DalSegnoError:
            raise
        except Exception as error:
            logger.exception("a command failed; it is rejected so that the next ones are not held up")
            text = f"{type(error).__name__}: {error}"[:2000]
            outcome = store.write("reject", lambda tx, last=last, text=text: _reject_next(tx, last, text))  # type: ignore[misc]
        if outcome is None:
            return waiting
        last, applied = outcome
        waiting |= not applied


def _apply_next(tx: Tx, after: int) -> tuple[int, bool] | None:
    command = tx.row(_next_command(after))
    if command is None:
        return None
    values: dict[str, Any] = {"status": CommandStatus.APPLIED, "applied_at": tx.now}
    try:
        if not _apply(tx, command):
            return command["id"], False
    except DalSegnoError as error:
        values |= {"status": CommandStatus.REJECTED, "error_code": error.code, "error_message": str(error)}
        event = Event("command_rejected", command["requested_by"] or "operator", command["job_id"],
                      item_id=command["item_id"], level="warn", message=str(error),
                      data={"command": command["type"]})  # fmt: skip
        tx.hot.insert_events(tx, [event])
    tx.conn.execute(sa.update(commands).where(commands.c.id == command["id"]).values(**values))
    tx.announce("applied")
    return command["id"], True


def _reject_next(tx: Tx, after: int, error: str) -> tuple[int, bool] | None:
    found = tx.conn.execute(_next_command(after).with_only_columns(commands.c.id)).scalar()
    if found is None:
        return None
    tx.conn.execute(
        sa.update(commands)
        .where(commands.c.id == found)
        .values(status=CommandStatus.REJECTED, applied_at=tx.now, error_code="internal_error", error_message=error)
    )
    return found, True


def _next_command(after: int) -> sa.Select[Any]:
    return (
        sa.select(commands)
        .where(PENDING, commands.c.id > after, commands.c.type.not_in(BULK))
        .order_by(commands.c.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )


def _apply(tx: Tx, command: sa.RowMapping) -> bool:
    """Do it. False: not yet. Every refusal is raised before anything is written."""
    by = command["requested_by"] or "operator"
    payload = command["payload"] or {}
    match command["type"]:
        case "pause":
            pause_job(tx, command["job_id"], _reason(payload), by, _until(payload))
        case "resume":
            return resume_job(tx, command["job_id"], payload.get("overrides") or {}, by)
        case "pause_stage":
            pause_stage(tx, command["job_id"], _stage(payload), _reason(payload), by, _until(payload))
        case "resume_stage":
            resume_stage(tx, command["job_id"], _stage(payload), by)
        case "cancel":
            cancel_job(tx, command["job_id"], by)
        case "retry_item":
            retry_item(tx, command["item_id"], by)
        case "force_retry_item":
            retry_item(tx, command["item_id"], by, force=True)
        case "set_priority":
            set_priority(tx, command["job_id"], payload.get("priority"), by)
    return True


def _reason(payload: dict[str, Any]) -> str:
    return payload.get("reason") or UNSAID


def _stage(payload: dict[str, Any]) -> str:
    key = payload.get("stage")
    if not isinstance(key, str):
        raise InputInvalid(problem='Say which stage: {"stage": "its key"}.')
    return key


def _until(payload: dict[str, Any]) -> datetime | None:
    text = payload.get("until")
    if text is None:
        return None
    try:
        until = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise InputInvalid(problem=f"until must be a time in ISO form, not {text!r}.") from None
    if until.tzinfo is None:
        raise InputInvalid(problem=f"until must say its zone, as in 2026-01-31T22:00+01:00; got {text!r}.")
    return until.astimezone(UTC)


# --- cancel -------------------------------------------------------------------------------------


def cancel_job(tx: Tx, job_id: int, by: str) -> None:
    """Closes the job at once; the scheduler cancels its items bit by bit, running ones are asked to stop."""
    job = lock_job(tx, job_id)
    if job["status"] in JOB_FINISHED:
        fix = "Nothing is left to cancel."
        raise CommandRefused(what="Job", id=job_id, verb="canceled", state=job["status"], fix=fix)
    if job["cancel_requested_at"] is not None:
        return
    set_job(tx, job_id, cancel_requested_at=tx.now)
    for stage in lock_stages(tx, job_id):
        set_stage(tx, stage["id"], open=False, claimable=False)
    tx.hot.insert_events(tx, [Event("job_cancel_requested", by, job_id)])
    if not _others_paused(tx, job):
        release(tx, f"lane:{job['lane']}", by, held_by=ENGINE)  # nobody is left whose resume could
    tx.announce("closed")
    tx.announce("jobs")


def _others_paused(tx: Tx, job: sa.RowMapping) -> bool:
    paused = sa.select(jobs.c.id).where(
        jobs.c.lane == job["lane"],
        jobs.c.id != job["id"],
        jobs.c.status.in_([JobStatus.PAUSED, JobStatus.PAUSE_REQUESTED]),
    )
    return tx.conn.execute(paused.limit(1)).scalar() is not None


def cancel_items(tx: Tx, job_id: int, limit: int = 2000) -> int:
    """Cancel up to `limit` waiting items of a job that is being canceled; returns how many were left to do."""
    left = limit
    events: list[Event] = []
    for stage in lock_stages(tx, job_id):
        for status in (ItemStatus.PENDING, ItemStatus.INTERRUPTED):
            if left <= 0 or not stage[status]:
                continue
            some = (
                sa.select(items.c.id)
                .where(items.c.stage_id == stage["id"], items.c.status == status)
                .order_by(items.c.seq.desc())  # from the far end, so that what is done is not walked again
                .limit(left)
            )
            found = list(
                tx.conn.execute(
                    sa.update(items)
                    .where(items.c.id.in_(some), items.c.status == status)
                    .values(status=ItemStatus.CANCELED, returned=False, due_at=None, finished_at=tx.now)
                    .returning(items.c.id)
                ).scalars()
            )
            left -= len(found)
            tx.conn.execute(
                sa.update(stages)
                .where(stages.c.id == stage["id"])
                .values(
                    {
                        stages.c[status]: stages.c[status] - len(found),
                        stages.c.canceled: stages.c.canceled + len(found),
                        stages.c.ready: 0,
                        stages.c.returned: 0,
                    }
                )
            )
            tx.conn.execute(sa.delete(waits).where(waits.c.item_id.in_(found)))
            events += [Event("item_canceled", "commander", job_id, stage["id"], item) for item in found]
    if events:
        tx.hot.insert_events(tx, events)
    return limit - left
