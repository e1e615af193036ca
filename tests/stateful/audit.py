"""What must be true of the database between any two transactions, checked from the rows alone.

Nothing here trusts a counter, a mark or a flag that the engine keeps: each is recounted from the items.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from dalsegno import Store
from dalsegno.model.states import ITEM_LEASED, JOB_ACTIVE, TRANSITIONS, ItemStatus
from dalsegno.store.schema import events, holds, items, jobs, lanes, leases, processes, stages
from dalsegno.store.store import Tx

Row = dict[str, Any]

ITEM_TARGETS = {
    "started": "running",
    **dict.fromkeys(("returned", "requeued", "retried", "force_retried", "reset"), "pending"),
}
"""Where an item's event (without its `item_`) leads, if not to the status of its own name."""
NO_CHANGE = {
    "item": {"phase"},
    "stage": {"planned", "pause_set", "resumed"},
    "job": {"submitted", "cancel_requested", "priority_changed", "pause_set"},
}


@dataclass(frozen=True)
class Picture:
    """Every row that matters, on one snapshot."""

    jobs: dict[int, Row]
    stages: dict[int, Row]
    items: dict[int, Row]
    leases: dict[int, Row]
    lanes: dict[str, Row]
    holds: dict[str, Row]
    processes: dict[int, Row]
    events: int

    def items_of(self, stage_id: int) -> list[Row]:
        return [item for item in self.items.values() if item["stage_id"] == stage_id]

    def held(self, now: datetime, *, lane: str, service: str | None = None) -> bool:
        """Whether everything, this lane or this service is held."""
        rows = (self.lanes[lane], self.holds.get("all"), self.holds.get(f"service:{service}"))
        return any(row and row["held_at"] and (row["held_until"] is None or row["held_until"] > now) for row in rows)


def look(store: Store) -> Picture:
    def keyed(tx: Tx, table: sa.Table, key: str = "id") -> dict[Any, Row]:
        return {row[key]: dict(row) for row in tx.rows(sa.select(table).order_by(table.c[key]))}

    return store.read(
        lambda tx: Picture(
            jobs=keyed(tx, jobs),
            stages=keyed(tx, stages),
            items=keyed(tx, items),
            leases=keyed(tx, leases, "item_id"),
            lanes=keyed(tx, lanes, "name"),
            holds=keyed(tx, holds, "name"),
            processes=keyed(tx, processes),
            events=tx.conn.execute(sa.select(sa.func.count()).select_from(events)).scalar_one(),
        )
    )


LEFT = ("pending", "running", "pause_requested", "paused", "failed")


def check(picture: Picture) -> None:
    check_leases(picture)
    check_counters(picture)
    check_open(picture)
    check_pauses(picture)
    check_lanes(picture)


def check_leases(picture: Picture) -> None:
    """A lease row for every item in claimed or running, with its number, and for no other."""
    leased = {key: item for key, item in picture.items.items() if item["status"] in ITEM_LEASED}
    assert leased.keys() == picture.leases.keys()
    for key, item in leased.items():
        lease = picture.leases[key]
        assert lease["number"] == item["lease"], item
        assert lease["stage_id"] == item["stage_id"], item
        assert (lease["begun_at"] is not None) == (item["status"] == ItemStatus.RUNNING), item


def check_counters(picture: Picture) -> None:
    by_stage: dict[int, list[Row]] = defaultdict(list)
    for item in picture.items.values():
        by_stage[item["stage_id"]].append(item)
    for stage in picture.stages.values():
        mine = by_stage[stage["id"]]
        counted = Counter(item["status"] for item in mine)
        kept = {status: stage[status] for status in ItemStatus}
        assert kept == {status: counted[status] for status in ItemStatus}, stage
        assert stage["total"] == len(mine), stage
        # Lists look for what waits or is at work only where something is left.
        assert stage["status"] in LEFT or not (stage["pending"] + stage["claimed"] + stage["running"]), stage
        ready = [item for item in mine if item["status"] == ItemStatus.PENDING and item["due_at"] is None]
        returned = [item for item in ready if item["returned"]]
        assert stage["ready"] == len(ready), stage
        assert stage["returned"] == len(returned), stage
        assert stage["claimable"] == (stage["open"] and bool(ready)), stage
        for item in ready:  # what is ready and did not come back must lie in the range that claims look at
            assert item["returned"] or stage["low_seq"] < item["seq"] <= stage["high_seq"], (stage, item)
        assert stage["priority"] == picture.jobs[stage["job_id"]]["priority"], stage


def is_open(picture: Picture, stage: Row) -> bool:
    """Whether a claim may take from this stage, from first principles.

    Except for one thing that rows do not tell: under policy stop a failure closes the stage and a retry opens it
    again, and which of them came last is history. Without a failure it must be open.
    """
    job = picture.jobs[stage["job_id"]]
    failed = stage["on_failure"] == "stop" and any(i["status"] == "failed" for i in picture.items_of(stage["id"]))
    return (
        job["status"] == "running"
        and job["cancel_requested_at"] is None
        and stage["status"] == "running"
        and (stage["open"] or not failed)
    )


def check_open(picture: Picture) -> None:
    for stage in picture.stages.values():
        assert stage["open"] == is_open(picture, stage), (stage, picture.jobs[stage["job_id"]])


def check_pauses(picture: Picture) -> None:
    """Who, why and since when stand where something is paused, and nowhere else."""
    for job in picture.jobs.values():
        paused = job["status"] in ("pause_requested", "paused")
        assert [job["pause_reason"] is not None, job["paused_at"] is not None] == [paused] * 2, job
    for stage in picture.stages.values():
        by_itself = stage["pause_reason"] is not None
        assert (stage["paused_at"] is not None) == by_itself, stage
        assert not by_itself or stage["status"] in ("pending", "pause_requested", "paused"), stage
        job = picture.jobs[stage["job_id"]]
        goes_on = job["status"] == "running" and job["cancel_requested_at"] is None
        assert by_itself or not goes_on or stage["status"] not in ("pause_requested", "paused"), stage


def check_lanes(picture: Picture) -> None:
    active = Counter(job["lane"] for job in picture.jobs.values() if job["status"] in JOB_ACTIVE)
    for name, lane in picture.lanes.items():
        assert lane["max_active"] is None or active[name] <= lane["max_active"], lane


@dataclass
class Trail:
    """Replays the events of everything, each as a step along TRANSITIONS.

    Only for writers that take turns: then (tx, id) is the order in which things happened.
    """

    tx: int = -1
    id: int = 0
    state: dict[str, dict[int, str]] = field(default_factory=lambda: {"job": {}, "stage": {}, "item": {}})

    def follow(self, store: Store) -> None:
        after = sa.or_(events.c.tx > self.tx, sa.and_(events.c.tx == self.tx, events.c.id > self.id))
        query = sa.select(events).where(after).order_by(events.c.tx, events.c.id)
        for row in store.read(lambda tx: tx.rows(query)):
            self.tx, self.id = row["tx"], row["id"]
            self.step(row)

    def replay(self, store: Store) -> None:
        """From the beginning, by id: for concurrent writers whose ids are not handed out in advance.

        An event gets its number under its subject's row lock, so per subject ids are in the order of what happened.
        """
        for row in store.read(lambda tx: tx.rows(sa.select(events).order_by(events.c.id))):
            self.step(row)

    def step(self, event: Any) -> None:
        kind, _, name = event["type"].partition("_")
        if kind not in self.state:
            return
        subject = event[f"{kind}_id"]
        assert subject is not None, dict(event)
        if event["type"] == "job_submitted":
            assert subject not in self.state["job"], f"submitted twice: {dict(event)}"
            self.state["job"][subject] = "queued"
        if name in NO_CHANGE[kind]:
            return
        target = ITEM_TARGETS.get(name, name) if kind == "item" else name
        source = self.state[kind].get(subject, "pending")
        legal = {(step.source, step.target) for step in TRANSITIONS[kind]}
        assert (source, target) in legal, f"{kind} {subject}: {source} → {target} by {dict(event)}"
        self.state[kind][subject] = target

    def check(self, picture: Picture) -> None:
        """Every change had its event: the replay ends where the rows stand."""
        for kind, rows in (("job", picture.jobs), ("stage", picture.stages), ("item", picture.items)):
            told = {key: self.state[kind].get(key, "pending") for key in rows}
            assert told == {key: row["status"] for key, row in rows.items()}, f"{kind}: told {told}"


@dataclass
class Tail:
    """Reads events as a live stream does: by (tx, id), never past the oldest running writer."""

    tx: int = -1
    id: int = 0
    places: list[tuple[int, int]] = field(default_factory=list)

    def read(self, store: Store, limit: int) -> int:
        def page(tx: Tx) -> list[Any]:
            after = sa.or_(events.c.tx > self.tx, sa.and_(events.c.tx == self.tx, events.c.id > self.id))
            return tx.rows(
                sa.select(events.c.tx, events.c.id)
                .where(after, events.c.tx < tx.hot.safe_tx(tx))
                .order_by(events.c.tx, events.c.id)
                .limit(limit)
            )

        rows = store.read(page)
        for row in rows:
            assert (row["tx"], row["id"]) > (self.tx, self.id)
            self.tx, self.id = row["tx"], row["id"]
            self.places.append((self.tx, self.id))
        return len(rows)


def event_places(store: Store) -> list[tuple[int, int]]:
    query = sa.select(events.c.tx, events.c.id).order_by(events.c.tx, events.c.id)
    return [(row["tx"], row["id"]) for row in store.read(lambda tx: tx.rows(query))]
