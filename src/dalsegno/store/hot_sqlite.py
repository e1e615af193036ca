"""The hot statements for SQLite. There is one writer, so reading first and writing after is safe here.

A batch is one step of one statement: values go in as one JSON text and come out as one. Python lets go of its
interpreter lock at every step, so a statement per item (or a row per item) means waiting for busy handlers per item.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dalsegno.clock import Clock, SystemClock
from dalsegno.errors import InputInvalid
from dalsegno.model.states import ItemStatus
from dalsegno.store.hot import Claimed, Delta, Event, Hot, NewItem, Settled, Settlement
from dalsegno.store.schema import to_text

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

OPEN_STAGES = """
SELECT id, ready, returned, low_seq, high_seq
FROM stages
WHERE service = ? AND claimable
ORDER BY priority, order_seq, id
LIMIT ?
"""

# Only while a lane is held: a look at the job of every stage that would be next.
OPEN_STAGES_ELSEWHERE = """
SELECT id, ready, returned, low_seq, high_seq
FROM stages
WHERE service = ? AND claimable
    AND (SELECT lane FROM jobs WHERE jobs.id = stages.job_id) NOT IN (SELECT value FROM json_each(?))
ORDER BY priority, order_seq, id
LIMIT ?
"""

CLAIM_RETURNED = """
UPDATE items
SET status = 'claimed', lease = lease + 1, returned = 0
WHERE id IN (
    SELECT id
    FROM items
    WHERE stage_id = ? AND returned
    ORDER BY seq
    LIMIT ?
)
RETURNING id, stage_id, job_id, seq, key, lease, attempt, interruptions, forced, parent_id, params
"""

CLAIM_FRESH = """
UPDATE items
SET status = 'claimed', lease = lease + 1
WHERE stage_id = ? AND seq > ? AND seq <= ? AND status = 'pending'
"""

INSERT_LEASE = "INSERT INTO leases (item_id, number, process_id, stage_id, claimed_at) VALUES (?, ?, ?, ?, ?)"

# Whatever is claimed in a range that was never handed out before, this claim has claimed.
LEASE_FRESH = """
INSERT INTO leases (item_id, number, process_id, stage_id, claimed_at)
SELECT id, lease, ?, stage_id, ?
FROM items
WHERE stage_id = ? AND seq > ? AND seq <= ? AND status = 'claimed'
"""

TELL_FRESH = """
INSERT INTO events (at, type, level, source, job_id, stage_id, item_id)
SELECT ?, 'item_claimed', 'info', 'engine', job_id, stage_id, id
FROM items
WHERE stage_id = ? AND seq > ? AND seq <= ? AND status = 'claimed'
"""

FETCH_FRESH = """
SELECT json_group_array(
    json_array(id, stage_id, job_id, seq, key, lease, attempt, interruptions, forced, parent_id, params)
)
FROM items
WHERE stage_id = ? AND seq > ? AND seq <= ? AND status = 'claimed'
"""

STAGE_CLAIMED = """
UPDATE stages
SET ready = ready - :taken,
    returned = returned - :returned,
    pending = pending - :taken,
    claimed = claimed + :taken,
    low_seq = :low_seq,
    claimable = open AND ready > :taken
WHERE id = :id
"""

INSERT_EVENT = """
INSERT INTO events (at, type, level, source, job_id, stage_id, item_id, message, data)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

INSERT_ITEM_EVENT = """
INSERT INTO events (at, type, level, source, job_id, stage_id, item_id) VALUES (?, ?, 'info', 'engine', ?, ?, ?)
"""

BEGIN_LEASE = """
UPDATE leases SET begun_at = ?, worker = ? WHERE item_id = ? AND number = ? AND begun_at IS NULL
RETURNING stage_id
"""

BEGIN_ITEM = """
UPDATE items SET status = 'running', started_at = ? WHERE id = ? AND lease = ? AND status = 'claimed'
RETURNING job_id
"""

# Asked before the leases end: SQLite 3.40 answers 1 to `RETURNING begun_at IS NOT NULL` whatever the column holds.
LIVE_LEASES = """
SELECT json_group_array(json_array(item_id, number, begun_at))
FROM json_each(?) AS v
JOIN leases ON item_id = json_extract(v.value, '$[0]') AND number = json_extract(v.value, '$[1]')
"""

END_LEASES = """
DELETE FROM leases
WHERE (item_id, number) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))
"""

FINISH_PLAIN = """
UPDATE items
SET status = 'succeeded', lease = lease + 1, result = json_extract(v.value, '$[2]'),
    started_at = json_extract(v.value, '$[3]'), finished_at = ?
FROM json_each(?) AS v
WHERE items.id = json_extract(v.value, '$[0]')
    AND items.lease = json_extract(v.value, '$[1]')
    AND (items.status = 'claimed' OR items.status = 'running')
"""

FINISH = """
UPDATE items
SET status = :status, lease = lease + 1,
    result = CASE WHEN :status IN ('succeeded', 'skipped') THEN :result ELSE result END,
    started_at = coalesce(:started_at, started_at), finished_at = :finished_at,
    attempt = :attempt, interruptions = :interruptions, due_at = :due_at, returned = :returned,
    forced = CASE WHEN :finished_at IS NULL THEN forced ELSE 0 END,
    error_code = :error_code, error_message = :error_message, fingerprint = :fingerprint
WHERE id = :id AND lease = :lease AND (status = 'claimed' OR status = 'running')
"""

TELL_STARTED = """
INSERT INTO events (at, type, level, source, job_id, stage_id, item_id)
SELECT started_at, 'item_started', 'info', 'engine', job_id, stage_id, id
FROM items
WHERE id IN (SELECT value FROM json_each(?))
"""

TELL_SUCCEEDED = """
INSERT INTO events (at, type, level, source, job_id, stage_id, item_id)
SELECT ?, 'item_succeeded', 'info', 'engine', job_id, stage_id, id
FROM items
WHERE id IN (SELECT json_extract(value, '$[0]') FROM json_each(?))
"""

STAGE_ADJUSTED = """
UPDATE stages
SET total = total + :total,
    pending = pending + :pending,
    claimed = claimed + :claimed,
    running = running + :running,
    succeeded = succeeded + :succeeded,
    failed = failed + :failed,
    skipped = skipped + :skipped,
    interrupted = interrupted + :interrupted,
    canceled = canceled + :canceled,
    ready = ready + :ready,
    returned = returned + :returned,
    open = open AND NOT (on_failure = 'stop' AND :failed > 0),
    claimable = open AND ready + :ready > 0 AND NOT (on_failure = 'stop' AND :failed > 0)
WHERE id = :id
RETURNING job_id, claimed + running = 0 AND (pending = 0 OR NOT open)
"""

INSERT_ITEM = """
INSERT INTO items (job_id, stage_id, seq, key, params, parent_id, input_hash) VALUES (?, ?, ?, ?, ?, ?, ?)
"""

INSERT_MISSING = INSERT_ITEM + " ON CONFLICT (stage_id, key) DO NOTHING RETURNING id, key"

RENEW = "UPDATE processes SET heartbeat_at = ?, lease_until = ? WHERE id = ?"


PENDING, CLAIMED, RUNNING = ItemStatus.PENDING, ItemStatus.CLAIMED, ItemStatus.RUNNING


class SqliteHot(Hot):
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def claim(
        self,
        tx: Tx,
        service: str,
        process_id: int,
        want: int,
        held_lanes: Collection[str] = (),
        known: Sequence[int] = (),  # noqa: ARG002 - here a look costs nothing
    ) -> list[Claimed]:
        claimed: list[Claimed] = []
        raw = tx.raw
        now = to_text(tx.now)
        if held_lanes:
            found = raw.execute(OPEN_STAGES_ELSEWHERE, (service, json.dumps(sorted(held_lanes)), want))
        else:
            found = raw.execute(OPEN_STAGES, (service, want))
        for stage_id, ready, returned, mark, high in found.fetchall():
            low = mark
            left = want - len(claimed)
            if left <= 0:
                break
            back = min(returned, left)
            rows = self._claim_returned(raw, stage_id, back, process_id, now) if back else []
            fresh = min(ready - returned, left - back)
            while fresh > 0 and low < high:  # more than once only where numbers are missing
                top = min(low + fresh, high)
                raw.execute(CLAIM_FRESH, (stage_id, low, top))
                raw.execute(LEASE_FRESH, (process_id, now, stage_id, low, top))
                raw.execute(TELL_FRESH, (now, stage_id, low, top))
                taken = json.loads(raw.execute(FETCH_FRESH, (stage_id, low, top)).fetchone()[0])
                rows += taken
                low = top
                fresh -= len(taken)
            rows.sort(key=_seq)
            raw.execute(STAGE_CLAIMED, {"id": stage_id, "taken": len(rows), "returned": back, "low_seq": low})
            claimed += map(Claimed._make, rows)
        return claimed

    def _claim_returned(self, raw: Any, stage_id: int, limit: int, process_id: int, now: str) -> list[Any]:
        rows: list[Any] = raw.execute(CLAIM_RETURNED, (stage_id, limit)).fetchall()
        raw.executemany(INSERT_LEASE, [(row[0], row[5], process_id, stage_id, now) for row in rows])
        raw.executemany(INSERT_ITEM_EVENT, [(now, "item_claimed", row[2], stage_id, row[0]) for row in rows])
        return rows

    def begin(self, tx: Tx, begun: Sequence[tuple[int, int, datetime, str | None]]) -> set[int]:
        accepted: set[int] = set()
        deltas: dict[int, Delta] = {}
        events = []
        raw = tx.raw
        for item_id, lease, at, worker in begun:
            moment = to_text(at)
            found = raw.execute(BEGIN_LEASE, (moment, worker, item_id, lease)).fetchone()
            if found is None:
                continue
            (job_id,) = raw.execute(BEGIN_ITEM, (moment, item_id, lease)).fetchone()
            accepted.add(item_id)
            deltas.setdefault(found[0], Delta()).move(ItemStatus.CLAIMED, ItemStatus.RUNNING)
            events.append((moment, "item_started", job_id, found[0], item_id))
        raw.executemany(INSERT_ITEM_EVENT, events)
        self.adjust(tx, deltas)
        return accepted

    def settle(self, tx: Tx, rows: Sequence[Settled]) -> Settlement:
        raw = tx.raw
        wanted = json.dumps([(row[0], row[1]) for row in rows])
        live = json.loads(raw.execute(LIVE_LEASES, (wanted,)).fetchone()[0])
        begun_at = {(item, number): begun for item, number, begun in live}
        raw.execute(END_LEASES, (wanted,))
        now = to_text(tx.now)
        accepted: set[int] = set()
        plain: list[tuple[object, ...]] = []
        begins: list[int] = []
        full: list[dict[str, object]] = []
        told: list[tuple[object, ...]] = []
        deltas: dict[int, Delta] = {}
        for row in rows:
            held = (row[0], row[1])
            if held not in begun_at:
                continue
            begun = begun_at.pop(held) is not None
            started = to_text(row.started_at) if row.started_at else None
            if started and not begun:
                begins.append(row.id)
            if row.plain:
                plain.append((row.id, row.lease, row.result, started))
            else:
                full.append(_finish_params(row, started, now))
                told.append(_finish_event(row, now))
            delta = deltas.get(row.stage_id)
            if delta is None:
                delta = deltas[row.stage_id] = Delta()
            delta.counts[RUNNING if begun else CLAIMED] -= 1
            delta.counts[row.status] += 1  # type: ignore[index]  # a StrEnum member and its value are one key
            if row.status == PENDING and row.returned:
                delta.ready += 1
                delta.returned += 1
            accepted.add(row.id)
        finished = json.dumps(plain)
        raw.execute(FINISH_PLAIN, (now, finished))
        raw.executemany(FINISH, full)
        raw.execute(TELL_STARTED, (json.dumps(begins),))
        raw.execute(TELL_SUCCEEDED, (now, finished))
        raw.executemany(INSERT_EVENT, told)
        return Settlement(accepted, self.adjust(tx, deltas))

    def adjust(self, tx: Tx, deltas: dict[int, Delta]) -> set[int]:
        quiet = set()
        for stage_id, delta in sorted(deltas.items()):
            job_id, is_quiet = tx.raw.execute(
                STAGE_ADJUSTED,
                {
                    **delta.by_name(),
                    "id": stage_id,
                    "total": delta.total,
                    "ready": delta.ready,
                    "returned": delta.returned,
                },
            ).fetchone()
            if is_quiet:
                quiet.add(job_id)
        return quiet

    def insert_items(self, tx: Tx, job_id: int, stage_id: int, rows: Iterable[NewItem]) -> int:
        try:
            cursor = tx.raw.executemany(INSERT_ITEM, ((job_id, stage_id, *row) for row in rows))
        except sqlite3.IntegrityError:
            raise InputInvalid(problem="two items of one step have the same key.") from None
        return int(cursor.rowcount)

    def insert_missing(self, tx: Tx, job_id: int, stage_id: int, rows: Sequence[NewItem]) -> list[tuple[int, str]]:
        inserted = []
        for row in rows:
            found = tx.raw.execute(INSERT_MISSING, (job_id, stage_id, *row)).fetchone()
            if found is not None:
                inserted.append(found)
        return inserted

    def insert_events(self, tx: Tx, events: Sequence[Event]) -> None:
        now = to_text(tx.now)
        tx.raw.executemany(
            INSERT_EVENT,
            [
                (
                    now,
                    event.type,
                    event.level,
                    event.source,
                    event.job_id,
                    event.stage_id,
                    event.item_id,
                    event.message,
                    None if event.data is None else json.dumps(event.data, ensure_ascii=False),
                )
                for event in events
            ],
        )

    def renew(self, tx: Tx, process_id: int, seconds: float) -> bool:
        until = tx.now + timedelta(seconds=seconds)
        return bool(tx.raw.execute(RENEW, (to_text(tx.now), to_text(until), process_id)).rowcount)

    def new_job_id(self, tx: Tx) -> int:
        (newest,) = tx.raw.execute("SELECT coalesce(max(id), 0) FROM jobs").fetchone()
        return int(newest) + 1

    def tell_inside(self, tx: Tx) -> None:
        """The engine notices by itself: a commit changes the file."""

    def database_now(self, _tx: Tx) -> datetime:
        return self._clock.now()

    def safe_tx(self, _tx: Tx) -> int:
        return 1  # one writer: ids are commit order and every `tx` is 0


def _seq(row: Sequence[int]) -> int:
    return row[3]


def _finish_params(row: Settled, started: str | None, now: str) -> dict[str, object]:
    back = row.status in (ItemStatus.PENDING, ItemStatus.INTERRUPTED)
    return {
        "id": row.id,
        "lease": row.lease,
        "status": row.status,
        "result": row.result,
        "started_at": started,
        "finished_at": None if back else now,
        "attempt": row.attempt,
        "interruptions": row.interruptions,
        "due_at": to_text(row.due_at) if row.due_at else None,
        "returned": row.returned,
        "error_code": row.error_code,
        "error_message": row.error_message,
        "fingerprint": row.fingerprint,
    }


def _finish_event(row: Settled, now: str) -> tuple[object, ...]:
    level = {"failed": "error", "interrupted": "warn"}.get(row.status, "warn" if row.error_code else "info")
    kind = "item_returned" if row.status == ItemStatus.PENDING else f"item_{row.status}"
    return (now, kind, level, "engine", row.job_id, row.stage_id, row.id, row.error_message, row.data)
