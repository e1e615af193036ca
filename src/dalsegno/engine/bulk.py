"""Commands about many items: applied bit by bit, each bit one transaction, until all are through or somebody stops it.

Which items a query finds is not the engine's business: whoever makes an engine gives it a `Finder`. An item is met
once at most: a command walks in one direction, keeps its place with every bit, and what it has changed is written down
(`bulk_items`, which is also how `bulk:12` finds it again). Whether an item may be changed, the change itself asks.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import sqlalchemy as sa

from dalsegno.engine.chosen import Changed, choose, take_out
from dalsegno.engine.planner import advance
from dalsegno.engine.priority import checked_priority, prioritise
from dalsegno.engine.retry import FORCED, RETRIABLE, retry_items
from dalsegno.engine.skip import SKIPPABLE, skip_items
from dalsegno.errors import CommandRefused, DalSegnoError, InputInvalid, NotFound
from dalsegno.model.states import CommandStatus, ItemStatus
from dalsegno.store.hot import Event
from dalsegno.store.schema import BULK, bulk_items, bulk_jobs, commands, items

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.engine")

BATCH = 500
MOST_NAMED = 10_000
"""Items that a command may name one by one."""
PENDING = commands.c.status == sa.literal_column("'pending'")
"""In the very words of the index on pending commands: SQLite compares the words."""
CANCELABLE = frozenset({ItemStatus.PENDING, ItemStatus.INTERRUPTED})
PRIORITY = "bulk_priority"
"""The one that is about the jobs of the items: its counts are of jobs."""
ACTIONS = {
    "bulk_retry": frozenset(map(str, RETRIABLE)),
    "bulk_force_retry": frozenset(map(str, FORCED)),
    "bulk_cancel": frozenset(map(str, CANCELABLE)),
    "bulk_skip": frozenset(map(str, SKIPPABLE)),
    PRIORITY: frozenset(map(str, ItemStatus)),
}
"""The states from which each leads."""
AWAY = ("database_", "schema_", "engine_")
"""Errors that say nothing about the command: it is tried again when the database is back."""


class Found(NamedTuple):
    ids: list[int]
    """Of items; of jobs where those were asked for."""
    cursor: str | None
    """Where to go on; None: that was all."""


class Finder(Protocol):
    def __call__(
        self, tx: Tx, query: str, as_of: datetime, cursor: str | None, limit: int, /, *, jobs: bool = False
    ) -> Found:
        """The next items that a query finds, as of a moment, after a cursor, at most so many.

        `jobs`: the jobs of such items that are not over; where a query asks nothing that only an item knows, also
        those that have no items yet. The same one may come again.
        """
        ...


def check_bulk(kind: str, payload: dict[str, Any] | None) -> None:
    """A bulk command says which items it is about: by a query, or by their numbers."""
    payload = payload or {}
    if kind == PRIORITY:
        checked_priority(payload.get("priority"))
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
            if error.code.startswith(AWAY):
                raise
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
    check_bulk(command["type"], payload)
    if "query" in payload and find is None:
        if store.shared:
            return False  # another engine knows how
        raise InputInvalid(problem="This engine cannot find items by a query.")
    progress, whole = command["progress"] or {}, command["type"] == PRIORITY
    if command["stop_requested_at"] is not None:
        found = Found([], None)
    elif "items" in payload:
        begun = int(progress.get("cursor") or 0)
        some = sorted(set(payload["items"]), reverse=True)[begun : begun + BATCH]
        whose = store.read(lambda tx: owners(tx, some)) if whole else some
        found = Found(whose, str(begun + BATCH) if len(some) == BATCH else None)
    else:
        assert find is not None
        at = progress.get("cursor")
        found = store.read(lambda tx: find(tx, payload["query"], command["created_at"], at, BATCH, jobs=whole))
    return store.write("bulk", lambda tx: _apply(tx, command_id, progress, found))


def _apply(tx: Tx, command_id: int, expected: dict[str, Any], found: Found) -> bool:
    locked = sa.select(commands).where(commands.c.id == command_id, commands.c.status == CommandStatus.PENDING)
    command = tx.row(locked.with_for_update(skip_locked=True))
    if command is None or (command["progress"] or {}) != expected:
        return True  # another engine has just gone on with it
    by = command["requested_by"] or "operator"
    seen, done, refused = (_move if command["type"] == PRIORITY else _change)(tx, command, found.ids, by)
    progress = {
        "seen": expected.get("seen", 0) + seen,
        "done": expected.get("done", 0) + done,
        "refused": dict(Counter(expected.get("refused", {})) + refused),
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


class Bit(NamedTuple):
    """What one transaction did."""

    seen: int
    done: int
    refused: Counter[str]


def _change(tx: Tx, command: sa.RowMapping, ids: Sequence[int], by: str) -> Bit:
    """Job by job, in order of their numbers, which is the order of locks."""
    refused = Counter[str]()
    changed: list[int] = []
    for job, own in _by_job(tx, command["id"], ids).items():
        if command["job_id"] is not None and job != command["job_id"]:
            refused["another_job"] += len(own)
            continue
        done = _change_some(tx, command["type"], job, own, by, {"bulk": command["id"]})
        refused.update(done.refused)
        changed += done.ids
        if done.ids:
            tx.conn.execute(sa.insert(bulk_jobs).from_select(*_unless_there(command["id"], job)))
    if changed:
        places = sa.select(sa.literal(command["id"]), items.c.stage_id, items.c.seq).where(items.c.id.in_(changed))
        tx.conn.execute(sa.insert(bulk_items).from_select(["command_id", "stage_id", "seq"], places))
    return Bit(len(ids), len(changed), refused)


def _by_job(tx: Tx, command_id: int, ids: Sequence[int]) -> dict[int, list[int]]:
    """Those that the command has not changed yet."""
    there = sa.select(bulk_items.c.seq).where(
        bulk_items.c.command_id == command_id,
        bulk_items.c.stage_id == items.c.stage_id,
        bulk_items.c.seq == items.c.seq,
    )
    query = sa.select(items.c.id, items.c.job_id).where(items.c.id.in_(ids), ~there.exists())
    found: dict[int, list[int]] = {}
    for row in tx.rows(query.order_by(items.c.job_id, items.c.id)) if ids else ():
        found.setdefault(row["job_id"], []).append(row["id"])
    return found


def _unless_there(command_id: int, job_id: int) -> tuple[list[str], Any]:
    there = sa.select(bulk_jobs.c.job_id).where(bulk_jobs.c.command_id == command_id, bulk_jobs.c.job_id == job_id)
    return ["command_id", "job_id"], sa.select(sa.literal(command_id), sa.literal(job_id)).where(~there.exists())


def _change_some(tx: Tx, kind: str, job_id: int, ids: list[int], by: str, note: dict[str, Any]) -> Changed:
    """Of one job. That it is gone shows before anything is written."""
    try:
        return _changed(tx, kind, job_id, ids, by, note)
    except DalSegnoError as error:
        if error.code not in ("job_pruned", NotFound.code):
            raise
        return Changed([], Counter({"pruned": len(ids)}))


def _changed(tx: Tx, kind: str, job_id: int, ids: list[int], by: str, note: dict[str, Any]) -> Changed:
    match kind:
        case "bulk_cancel":
            return cancel_chosen(tx, job_id, ids, by, note)
        case "bulk_skip":
            return skip_items(tx, job_id, ids, by, note)
        case _:
            return retry_items(tx, job_id, ids, by, force=kind == "bulk_force_retry", note=note)


def owners(tx: Tx, ids: Sequence[int]) -> list[int]:
    """The jobs of items."""
    return sorted(tx.conn.execute(sa.select(items.c.job_id).where(items.c.id.in_(ids)).distinct()).scalars())


def _move(tx: Tx, command: sa.RowMapping, ids: Sequence[int], by: str) -> Bit:
    """Jobs, each once. One that has the priority already is passed by, however often it is met."""
    there = sa.select(bulk_jobs.c.job_id).where(bulk_jobs.c.command_id == command["id"], bulk_jobs.c.job_id.in_(ids))
    met = set(tx.conn.execute(there).scalars())
    found = [each for each in sorted(ids) if each not in met and command["job_id"] in (None, each)]
    note = {"bulk": command["id"]}
    done = prioritise(tx, found, command["payload"]["priority"], by, note) if found else Changed([], Counter())
    if done.ids:
        tx.conn.execute(sa.insert(bulk_jobs), [{"command_id": command["id"], "job_id": job} for job in done.ids])
    done.refused.pop("same_priority", None)
    return Bit(len(done.ids) + done.refused.total(), len(done.ids), done.refused)


def cancel_chosen(tx: Tx, job_id: int, ids: Sequence[int], by: str, note: dict[str, Any]) -> Changed:
    """pending or interrupted → canceled for some items of a job. What a claim has in its hands is about to begin."""
    chosen = choose(tx, job_id, ids, CANCELABLE, busy="claimed")
    if chosen.rows:
        _, quiet = take_out(tx, chosen, ItemStatus.CANCELED)
        events = [
            Event("item_canceled", by, job_id, row["stage_id"], row["id"], data=dict(note)) for row in chosen.rows
        ]
        tx.hot.insert_events(tx, events)
        if quiet:
            advance(tx, sorted(quiet))
    return Changed(chosen.ids, chosen.refused)


def _reject(store: Store, command_id: int, code: str, message: str) -> None:
    def work(tx: Tx) -> None:
        values = {"status": CommandStatus.REJECTED, "applied_at": tx.now, "error_code": code, "error_message": message}
        pending = commands.c.status == CommandStatus.PENDING
        tx.conn.execute(sa.update(commands).where(commands.c.id == command_id, pending).values(**values))
        tx.announce("applied")

    store.write("reject", work)
