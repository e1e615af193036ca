"""The hot statements of PostgreSQL at work: batches in, batches out. The statements are in postgres_sql.py."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg

from dalsegno.errors import InputInvalid
from dalsegno.model.states import ItemStatus
from dalsegno.store.hot import Claimed, Delta, Event, Hot, NewItem, Raced, Settled, Settlement
from dalsegno.store.postgres_sql import (
    BEGIN,
    CLAIM_FRESH,
    CLAIM_RETURNED,
    COPY_ITEMS,
    FINISH,
    FINISH_PLAIN,
    INSERT_EVENTS,
    INSERT_MISSING,
    KNOWN_STAGES,
    LEFT_BEHIND,
    LOCK_STAGES,
    OPEN_STAGES,
    OPEN_STAGES_ELSEWHERE,
    RENEW,
    SAFE_TX,
    STAGES_ADJUSTED,
    STAGES_CLAIMED,
)

if TYPE_CHECKING:
    from dalsegno.store.store import Tx


@dataclass(slots=True)
class Share:
    """What one claim takes from one stage."""

    id: int
    back: int
    fresh: int
    mark: int
    """The low-water mark as it was when the claim began."""
    low: int
    high: int


def _seq(item: Claimed) -> int:
    return item.seq


class PostgresHot(Hot):
    def __init__(self, channel: str = "dalsegno_wake", *, given_time: bool = False) -> None:
        """`given_time`: the store's clock is none of a machine's, and what it says is so."""
        self.channel = channel
        self._given_time = given_time

    def claim(
        self,
        tx: Tx,
        service: str,
        process_id: int,
        want: int,
        held_lanes: Collection[str] = (),
        known: Sequence[int] = (),
    ) -> list[Claimed]:
        """Items first, stages last: settles need a stage's row too, and would wait for the whole claim otherwise.

        That two claims of one stage took the same range shows when its mark has moved; the loser starts over, and then
        locks first so that it cannot lose again.
        """
        raw = tx.raw
        if known:
            found = raw.execute(KNOWN_STAGES, (list(known),)).fetchall()
        elif held_lanes:
            found = raw.execute(OPEN_STAGES_ELSEWHERE, (service, sorted(held_lanes), want)).fetchall()
        else:
            found = raw.execute(OPEN_STAGES, (service, want)).fetchall()
        shares = self._shares(raw, found, want, lock=tx.attempt > 1)
        if not shares:
            return []
        claimed: list[Claimed] = []
        common = {"process": process_id, "now": tx.now}
        for share in shares:
            if share.back:
                rows = raw.execute(CLAIM_RETURNED, {**common, "stage": share.id, "limit": share.back}).fetchall()
                claimed += map(Claimed._make, rows)
                share.back = len(rows)
        claimed += self._claim_fresh(raw, shares, common)
        marks = {row[0]: row for row in raw.execute(LOCK_STAGES, ([share.id for share in shares],)).fetchall()}
        taken = dict.fromkeys(marks, 0)
        for item in claimed:
            taken[item.stage_id] = taken.get(item.stage_id, 0) + 1
        for share in shares:
            mark = marks.get(share.id)
            if mark is None or mark[3] != share.mark or mark[1] < taken[share.id] or mark[2] < share.back:
                raise Raced
            # A number without an item of ours: whoever put that one back in line before the stage was locked saw it
            # beyond the mark. Below the mark nobody would look for it.
            passed_by = share.low - share.mark > taken[share.id] - share.back
            if passed_by and raw.execute(LEFT_BEHIND, (share.id, share.mark, share.low)).fetchone():
                raise Raced
        raw.execute(
            STAGES_CLAIMED,
            (
                [marks[share.id][5] for share in shares],
                [taken[share.id] for share in shares],
                [share.back for share in shares],
                [share.low for share in shares],
            ),
        )
        if len(shares) > 1:
            place = {share.id: number for number, share in enumerate(shares)}
            claimed.sort(key=lambda item: (place[item.stage_id], item.seq))
        else:
            claimed.sort(key=_seq)
        return claimed

    def _shares(self, raw: Any, rows: list[Any], want: int, *, lock: bool) -> list[Share]:
        """How many items to take from which stages, in the global order."""
        if lock and rows:
            locked = {row[0]: row for row in raw.execute(LOCK_STAGES, ([row[0] for row in rows],)).fetchall()}
            rows = [locked[row[0]][:5] for row in rows if row[0] in locked]
        shares = []
        left = want
        for stage_id, ready, returned, low, high in rows:
            if left <= 0:
                break
            back = min(returned, left)
            fresh = min(ready - returned, left - back)
            left -= back + fresh
            shares.append(Share(stage_id, back, fresh, low, low, high))
        return shares

    def _claim_fresh(self, raw: Any, shares: list[Share], common: dict[str, Any]) -> list[Claimed]:
        """Take each stage's share from above its low-water mark. More than one round only where numbers are missing."""
        claimed: list[Claimed] = []
        while open_ := [share for share in shares if share.fresh > 0 and share.low < share.high]:
            tops = [min(share.low + share.fresh, share.high) for share in open_]
            rows = raw.execute(
                CLAIM_FRESH,
                {
                    **common,
                    "stages": [share.id for share in open_],
                    "lows": [share.low for share in open_],
                    "highs": tops,
                },
            ).fetchall()
            got: dict[int, int] = {}
            for row in rows:
                got[row[1]] = got.get(row[1], 0) + 1
            for share, top in zip(open_, tops, strict=True):
                share.fresh -= got.get(share.id, 0)
                share.low = top
            claimed += map(Claimed._make, rows)
        return claimed

    def begin(self, tx: Tx, begun: Sequence[tuple[int, int, datetime, str | None]]) -> set[int]:
        rows = tx.raw.execute(
            BEGIN,
            {
                "ids": [row[0] for row in begun],
                "leases": [row[1] for row in begun],
                "ats": [row[2].timestamp() for row in begun],
                "workers": [row[3] for row in begun],
            },
        ).fetchall()
        deltas: dict[int, Delta] = {}
        for _, stage_id in rows:
            deltas.setdefault(stage_id, Delta()).move(ItemStatus.CLAIMED, ItemStatus.RUNNING)
        self.adjust(tx, deltas)
        return {row[0] for row in rows}

    def settle(self, tx: Tx, rows: Sequence[Settled]) -> Settlement:
        plain: list[Settled] = []
        full: list[Settled] = []
        for row in rows:
            (plain if row.plain else full).append(row)
        accepted: set[int] = set()
        deltas: dict[int, Delta] = {}
        if plain:
            found = tx.raw.execute(
                FINISH_PLAIN,
                {
                    "now": tx.now,
                    "ids": _numbers([row[0] for row in plain]),
                    "leases": _numbers([row[1] for row in plain]),
                    "results": _texts([row.result for row in plain]),
                    "starts": _numbers([_seconds(row.started_at) for row in plain]),
                },
            ).fetchall()
            for stage_id, begun, count, ids in found:
                accepted.update(map(int, ids.split(",")))
                delta = deltas.setdefault(stage_id, Delta())
                delta.move(ItemStatus.RUNNING if begun else ItemStatus.CLAIMED, ItemStatus.SUCCEEDED, count)
        if full:
            returned = {row.id for row in full if row.returned}
            for item, stage_id, begun, status in tx.raw.execute(FINISH, {"now": tx.now, **_arrays(full)}).fetchall():
                accepted.add(item)
                delta = deltas.setdefault(stage_id, Delta())
                delta.move(ItemStatus.RUNNING if begun else ItemStatus.CLAIMED, status)
                if item in returned:
                    delta.ready += 1
                    delta.returned += 1
        return Settlement(accepted, self.adjust(tx, deltas))

    def adjust(self, tx: Tx, deltas: dict[int, Delta]) -> set[int]:
        quiet = set()
        for stage_id, delta in sorted(deltas.items()):
            values = {
                **delta.by_name(),
                "id": stage_id,
                "total": delta.total,
                "ready": delta.ready,
                "returned": delta.returned,
            }
            row = tx.raw.execute(STAGES_ADJUSTED, values).fetchone()
            if row is None:  # the first try has locked it: from now on nobody else writes it
                row = tx.raw.execute(STAGES_ADJUSTED, values).fetchone()
            if row is None:
                raise Raced
            if row[1]:
                quiet.add(row[0])
        return quiet

    def insert_items(self, tx: Tx, job_id: int, stage_id: int, rows: Iterable[NewItem]) -> int:
        count = 0
        try:
            with tx.raw.cursor() as cursor, cursor.copy(COPY_ITEMS) as copy:
                for row in rows:
                    copy.write_row((job_id, stage_id, *row))
                    count += 1
        except psycopg.errors.UniqueViolation:
            raise InputInvalid(problem="two items of one step have the same key.") from None
        return count

    def insert_missing(self, tx: Tx, job_id: int, stage_id: int, rows: Sequence[NewItem]) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = tx.raw.execute(
            INSERT_MISSING,
            {
                "job": job_id,
                "stage": stage_id,
                "seqs": [row.seq for row in rows],
                "keys": [row.key for row in rows],
                "params": [row.params for row in rows],
                "parents": [row.parent_id for row in rows],
                "hashes": [row.input_hash for row in rows],
            },
        ).fetchall()
        return found

    def insert_events(self, tx: Tx, events: Sequence[Event]) -> None:
        tx.raw.execute(
            INSERT_EVENTS,
            {
                "now": tx.now,
                "types": [event.type for event in events],
                "levels": [event.level for event in events],
                "sources": [event.source for event in events],
                "jobs": [event.job_id for event in events],
                "stages": [event.stage_id for event in events],
                "items": [event.item_id for event in events],
                "messages": [event.message for event in events],
                "data": [None if e.data is None else json.dumps(e.data, ensure_ascii=False) for e in events],
            },
        )

    def renew(self, tx: Tx, process_id: int, seconds: float) -> bool:
        return bool(tx.raw.execute(RENEW, (seconds, process_id)).rowcount)

    def new_job_id(self, tx: Tx) -> int:
        (value,) = tx.raw.execute("SELECT nextval(pg_get_serial_sequence('jobs', 'id'))").fetchone()
        return int(value)

    def tell_inside(self, tx: Tx) -> None:
        if tx.announced:
            tx.raw.execute("SELECT pg_notify(%s, %s)", (self.channel, " ".join(["-", *sorted(tx.announced)])))

    def database_now(self, tx: Tx) -> datetime:
        (value,) = tx.raw.execute("SELECT clock_timestamp()").fetchone()
        return value.astimezone(UTC)  # type: ignore[no-any-return]

    def common_now(self, tx: Tx) -> datetime:
        return tx.now if self._given_time else self.database_now(tx)

    def safe_tx(self, tx: Tx) -> int:
        (value,) = tx.raw.execute(f"SELECT {SAFE_TX}").fetchone()
        return int(value)


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _numbers(values: Iterable[float | None]) -> str:
    """An array literal. The driver's own goes through Python for every element: a fifth of a settle."""
    return "{" + ",".join(["NULL" if value is None else repr(value) for value in values]) + "}"


def _texts(values: Iterable[str | None]) -> str:
    return "{" + ",".join(["NULL" if value is None else _quoted(value) for value in values]) + "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _arrays(rows: Sequence[Settled]) -> dict[str, Any]:
    return {
        "ids": _numbers(row.id for row in rows),
        "leases": _numbers(row.lease for row in rows),
        "statuses": _texts(str(row.status) for row in rows),
        "results": _texts(row.result for row in rows),
        "starts": _numbers(_seconds(row.started_at) for row in rows),
        "attempts": _numbers(row.attempt for row in rows),
        "interruptions": _numbers(row.interruptions for row in rows),
        "dues": _numbers(_seconds(row.due_at) for row in rows),
        "returned": [row.returned for row in rows],
        "codes": _texts(row.error_code for row in rows),
        "messages": _texts(row.error_message for row in rows),
        "data": _texts(row.data for row in rows),
        "fingerprints": _texts(row.fingerprint for row in rows),
    }
