"""Commands about many items: applied bit by bit, each bit one transaction, until all are through or somebody stops it.

Which items a query finds is not the engine's business: whoever makes an engine gives it a `Finder`. An item is met
once at most, since a command walks in one direction; whether it may be changed, the change itself asks again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from dalsegno.engine.planner import advance
from dalsegno.engine.retry import RETRIABLE, retry_items
from dalsegno.engine.rows import lock_job, lock_stages
from dalsegno.errors import CommandRefused, DalSegnoError, InputInvalid, NotFound
from dalsegno.model.states import CommandStatus, ItemStatus
from dalsegno.store.hot import Delta, Event
from dalsegno.store.schema import BULK, commands, items, waits

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.engine")

BATCH = 500
MOST_NAMED = 10_000
"""Items that a command may name one by one."""
PENDING = commands.c.status == sa.literal_column("'pending'")
"""In the very words of the index on pending commands: SQLite compares the words."""
CANCELABLE = frozenset({ItemStatus.PENDING, ItemStatus.INTERRUPTED})


class Found(NamedTuple):
    ids: list[int]
    cursor: str | None
    """Where to go on; None: that was all."""


Finder = Callable[["Tx", str, datetime, str | None, int], Found]
"""The next items that a query finds, as of a moment, after a cursor, at most so many."""


def check_bulk(payload: dict[str, Any] | None) -> None:
    """A bulk command says which items it is about: by a query, or by their numbers."""
    payload = payload or {}
    query, named = payload.get("query"), payload.get("items")
    if isinstance(query, str) and named is None:
        return
    numbers = isinstance(named, list) and all(type(each) is int and 0 < each < 2**63 for each in named)
    if query is not None or not numbers or not named or len(named) > MOST_NAMED:
        raise InputInvalid(
            problem=f'Say which items: {{"query": "state:failed"}}, or {{"items": [1, 2]}} with {MOST_NAMED:,} at most.'
        )


def stop_bulk(tx: Tx, command_id: int) -> None:
    """Ask a command to stop after the bit it is at; what it has done stays done."""
    row = tx.row(sa.select(commands.c.type, commands.c.status).where(commands.c.id == command_id))
    if row is None:
        raise NotFound(what="command", id=command_id)
    asked = (
        sa.update(commands)
        .where(commands.c.id == command_id, commands.c.status == CommandStatus.PENDING, commands.c.type.in_(BULK))
        .values(
            stop_requested_at=sa.func.coalesce(
                commands.c.stop_requested_at, sa.literal(tx.now, commands.c.created_at.type)
            )
        )
    )
    if tx.conn.execute(asked).rowcount == 0:
        fix = "What it did stays done." if row["type"] in BULK else "Only commands about many items can be."
        raise CommandRefused(what="Command", id=command_id, verb="stopped", state=row["status"], fix=fix)
    tx.announce("commands")


def apply_bulk(store: Store, find: Finder | None) -> bool:
    """A bit further with every bulk command; True while something is left."""
    waiting = sa.select(commands.c.id).where(PENDING, commands.c.type.in_(BULK))
    left = False
    for command_id in store.read(lambda tx: list(tx.conn.execute(waiting.order_by(commands.c.id)).scalars())):
        try:
            left |= _step(store, find, command_id)
        except DalSegnoError as error:
            _reject(store, command_id, error.code, str(error))
        except Exception as error:
            logger.exception("a command about many items failed; it is rejected")
            _reject(store, command_id, "internal_error", f"{type(error).__name__}: {error}"[:2000])
    return left


def _step(store: Store, find: Finder | None, command_id: int) -> bool:
    """Find first, on a snapshot; then change what was found, in a transaction that keeps nobody waiting for long."""
    command = store.read(lambda tx: tx.row(sa.select(commands).where(commands.c.id == command_id)))
    if command is None or command["status"] != CommandStatus.PENDING:
        return False
    payload = command["payload"] or {}
    check_bulk(payload)
    if "query" in payload and find is None:
        if store.shared:
            return False  # another engine knows how
        raise InputInvalid(problem="This engine cannot find items by a query.")
    progress = command["progress"] or {}
    if command["stop_requested_at"] is not None:
        found = Found([], None)
    elif "items" in payload:
        seen = progress.get("seen", 0)
        some = sorted(set(payload["items"]), reverse=True)[seen : seen + BATCH]
        found = Found(some, "more" if len(some) == BATCH else None)
    else:
        assert find is not None
        at = progress.get("cursor")
        found = store.read(lambda tx: find(tx, payload["query"], command["created_at"], at, BATCH))
    return store.write("bulk", lambda tx: _apply(tx, command_id, progress, found))


def _apply(tx: Tx, command_id: int, expected: dict[str, Any], found: Found) -> bool:
    locked = sa.select(commands).where(commands.c.id == command_id, commands.c.status == CommandStatus.PENDING)
    command = tx.row(locked.with_for_update(skip_locked=True))
    if command is None or (command["progress"] or {}) != expected:
        return True  # another engine has just gone on with it
    by = command["requested_by"] or "operator"
    done, refused = _change(tx, command["type"], found.ids, by, command["job_id"])
    progress = {
        "seen": expected.get("seen", 0) + len(found.ids),
        "done": expected.get("done", 0) + done,
        "refused": dict(Counter(expected.get("refused", {})) + Counter(refused)),
        "cursor": found.cursor,
    }
    values: dict[str, Any] = {"progress": progress}
    if found.cursor is None:
        progress["stopped"] = command["stop_requested_at"] is not None
        values |= {"status": CommandStatus.APPLIED, "applied_at": tx.now}
        told = {key: progress[key] for key in ("seen", "done", "refused", "stopped")}
        event = Event(f"{command['type']}_applied", by, command["job_id"], data={"command": command_id, **told})
        tx.hot.insert_events(tx, [event])
    tx.conn.execute(sa.update(commands).where(commands.c.id == command_id).values(**values))
    tx.announce("applied")
    return found.cursor is not None


def _change(tx: Tx, kind: str, ids: Sequence[int], by: str, job_id: int | None) -> tuple[int, Counter[str]]:
    """Job by job, in order of their numbers, which is the order of locks."""
    query = sa.select(items.c.id, items.c.job_id).where(items.c.id.in_(ids)).order_by(items.c.job_id, items.c.id)
    by_job: dict[int, list[int]] = {}
    for row in tx.rows(query) if ids else ():
        by_job.setdefault(row["job_id"], []).append(row["id"])
    done, refused = 0, Counter[str]()
    for job, own in by_job.items():
        if job_id is not None and job != job_id:
            refused["another_job"] += len(own)
            continue
        if kind == "bulk_cancel":
            changed, why = cancel_chosen(tx, job, own, by)
        else:
            changed, why = retry_items(tx, job, own, by, force=kind == "bulk_force_retry")
        done += changed
        refused.update(why)
    return done, refused


def cancel_chosen(tx: Tx, job_id: int, ids: Sequence[int], by: str) -> tuple[int, Counter[str]]:
    """pending or interrupted → canceled for some items of a job; returns how many, and why the others were not."""
    job = lock_job(tx, job_id)
    stages_of = {stage["id"]: stage for stage in lock_stages(tx, job_id)}
    if job["cancel_requested_at"] is not None:
        return 0, Counter({"being_canceled": len(ids)})
    # What a claim has in its hands is skipped: it is about to begin.
    rows = tx.rows(
        sa.select(items.c.id, items.c.stage_id, items.c.seq, items.c.status, items.c.returned, items.c.due_at)
        .where(items.c.id.in_(ids))
        .order_by(items.c.id)
        .with_for_update(skip_locked=True)
    )
    refused = Counter(str(row["status"]) for row in rows if row["status"] not in CANCELABLE)
    refused["claimed"] += len(ids) - len(rows)
    chosen = [row for row in rows if row["status"] in CANCELABLE]
    if not chosen:
        return 0, +refused
    numbers = [row["id"] for row in chosen]
    parked = set(tx.conn.execute(sa.select(waits.c.item_id).where(waits.c.item_id.in_(numbers))).scalars())
    tx.conn.execute(
        sa.update(items)
        .where(items.c.id.in_(numbers), items.c.status.in_(sorted(CANCELABLE)))
        .values(status=ItemStatus.CANCELED, returned=False, due_at=None, finished_at=tx.now)
    )
    tx.conn.execute(sa.delete(waits).where(waits.c.item_id.in_(numbers)))
    deltas: dict[int, Delta] = {}
    for row in chosen:
        delta = deltas.setdefault(row["stage_id"], Delta())
        delta.move(row["status"], ItemStatus.CANCELED)
        fresh = row["seq"] > stages_of[row["stage_id"]]["low_seq"] and row["due_at"] is None and row["id"] not in parked
        if row["status"] == ItemStatus.PENDING and (row["returned"] or fresh):
            delta.ready -= 1
            delta.returned -= bool(row["returned"])
    quiet = tx.hot.adjust(tx, deltas)
    tx.hot.insert_events(tx, [Event("item_canceled", by, job_id, row["stage_id"], row["id"]) for row in chosen])
    if quiet:
        advance(tx, sorted(quiet))
    return len(chosen), +refused


def _reject(store: Store, command_id: int, code: str, message: str) -> None:
    def work(tx: Tx) -> None:
        values = {"status": CommandStatus.REJECTED, "applied_at": tx.now, "error_code": code, "error_message": message}
        pending = commands.c.status == CommandStatus.PENDING
        tx.conn.execute(sa.update(commands).where(commands.c.id == command_id, pending).values(**values))
        tx.announce("applied")

    store.write("reject", work)


ACTIONS = {
    "bulk_retry": frozenset(map(str, RETRIABLE)),
    "bulk_force_retry": frozenset(map(str, RETRIABLE | {ItemStatus.SUCCEEDED, ItemStatus.SKIPPED})),
    "bulk_cancel": frozenset(map(str, CANCELABLE)),
}
"""The states from which each leads."""
