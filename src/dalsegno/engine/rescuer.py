"""The rescuer: finds processes that died, ends their leases, and decides by lane how work goes on.

A sweep, not a start-up step: it runs on every node for ever, and doing it twice changes nothing.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.clock import this_host
from dalsegno.engine import limits
from dalsegno.engine.grouping import note_errors
from dalsegno.engine.holds import hold
from dalsegno.engine.looper import Looper
from dalsegno.engine.pauses import pause_job
from dalsegno.engine.planner import advance
from dalsegno.engine.scheduler import requeue_job
from dalsegno.engine.verdict import grouped, interrupted
from dalsegno.model.states import JOB_ACTIVE, ItemStatus, JobStatus
from dalsegno.store.hot import Event, Settled
from dalsegno.store.schema import items, jobs, lanes, leases, processes, stages

if TYPE_CHECKING:
    from collections.abc import Callable

    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.engine")

BATCH = 500
LOOK_FOR_ORPHANS = 3
"""Rounds: all leases are looked at for that, with those that are dead and cannot be removed yet."""
GRACE = 15.0
"""Seconds after an outage in which nobody is declared dead for being late: all hearts had stopped, and what a process
has in hand counts once it has beaten again."""


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


class Rescuer(Looper):
    name = "rescuer"

    def __init__(self, store: Store, process_id: Callable[[], int], interval: float) -> None:
        super().__init__()
        self.interval = interval
        self._store = store
        self._process_id = process_id
        self._rounds = 0

    def tick(self) -> float | None:
        rescue_all(self._store, self._process_id(), orphans=self._rounds % LOOK_FOR_ORPHANS == 0)
        self._rounds += 1
        return None


def rescue_all(store: Store, own: int, *, alone: bool = False, orphans: bool = True) -> int:
    """Rescue what dead processes held; returns how many processes those were.

    `alone`: no other process can be alive (SQLite lets one engine in), so there is nothing to wait for. `orphans`: look
    for leases of processes that nobody knows any more.
    """
    ended = store.outages.ended
    lately = ended is not None and time.monotonic() - ended < GRACE
    dead = store.read(lambda tx: _dead(tx, own, alone, lately, orphans))
    for process_id in dead:
        rescue(store, process_id)
    if store.read(limits.has_dead):
        store.write("permit.rescue", _give_back_permits)
    return len(dead)


def _give_back_permits(tx: Tx) -> None:
    """Of the dead, and of those who were declared dead and took one more before they knew."""
    limits.give_back_of_the_dead(tx)
    for topic in ("flow", "work"):
        tx.announce(topic)


def _dead(tx: Tx, own: int, alone: bool, lately: bool, orphans: bool) -> list[int]:
    now = tx.hot.database_now(tx)
    host = this_host()
    rows = tx.rows(sa.select(processes).order_by(processes.c.id))
    late = {row["id"] for row in rows if row["lease_until"] < now and not lately}
    orphaned: list[int] = []
    if orphans:  # a process that was declared dead may have claimed once more before it learned of it
        known = [row["id"] for row in rows]
        query = sa.select(leases.c.process_id).where(leases.c.process_id.not_in(known)).distinct()
        orphaned = list(tx.conn.execute(query).scalars())
    return [
        row["id"]
        for row in rows
        if row["id"] != own and (alone or row["id"] in late or (row["host"] == host and _gone(row["pid"])))
    ] + [process_id for process_id in orphaned if process_id != own]


def rescue(store: Store, process_id: int) -> None:
    """End every lease of a dead process, then forget the process."""
    touched: set[int] = set()
    while True:
        jobs_hit = store.write("rescue", lambda tx: _rescue_some(tx, process_id))
        if not jobs_hit:
            break
        touched |= jobs_hit
    store.write("recover", lambda tx: _recover(tx, process_id, touched))


def _rescue_some(tx: Tx, process_id: int) -> set[int]:
    held = tx.rows(
        sa.select(
            leases.c.item_id,
            leases.c.number,
            leases.c.begun_at,
            items.c.stage_id,
            items.c.job_id,
            items.c.attempt,
            items.c.interruptions,
            items.c.error_code,
            items.c.error_message,
            items.c.fingerprint,
            stages.c.max_interruptions,
            stages.c.service,
        )
        .join(items, items.c.id == leases.c.item_id)
        .join(stages, stages.c.id == leases.c.stage_id)
        .where(leases.c.process_id == process_id)
        .order_by(leases.c.item_id)
        .limit(BATCH)
    )
    if not held:
        return set()
    rows = [_verdict(row) for row in held]
    done = tx.hot.settle(tx, rows)
    begun = [(was["service"], row) for was, row in zip(held, rows, strict=True) if was["begun_at"] is not None]
    note_errors(tx, [(service, row) for service, row in begun if row.id in done.accepted])
    return {row["job_id"] for row in held}


def _verdict(row: sa.RowMapping) -> Settled:
    settled = Settled(
        row["item_id"],
        row["number"],
        row["stage_id"],
        row["job_id"],
        ItemStatus.PENDING,
        attempt=row["attempt"],
        interruptions=row["interruptions"],
        error_code=row["error_code"],
        error_message=row["error_message"],
        fingerprint=row["fingerprint"],
        data='{"released": "its process died before it began"}',
    )
    if row["begun_at"] is None:
        return settled
    lost = interrupted(settled, "its process died", "worker_lost", row["max_interruptions"])
    return grouped(lost, row["service"])


def _recover(tx: Tx, process_id: int, touched: set[int]) -> None:
    """What the lane's policy says about jobs that lost a worker."""
    gone = tx.conn.execute(sa.delete(processes).where(processes.c.id == process_id)).rowcount
    if not gone and not touched:
        return  # another node was faster
    rows = tx.rows(
        sa.select(jobs.c.id, jobs.c.lane, jobs.c.status, lanes.c.recovery)
        .join(lanes, lanes.c.name == jobs.c.lane)
        .where(
            sa.or_(
                jobs.c.id.in_(touched),
                # A lane that pauses does so even if its job held nothing at the moment of the crash.
                sa.and_(lanes.c.recovery == "pause", jobs.c.status.in_(sorted(JOB_ACTIVE))),
            )
        )
        .order_by(jobs.c.id)
    )
    tx.hot.insert_events(
        tx, [Event("recovery", "rescuer", row["id"], level="warn", data={"process": process_id}) for row in rows]
    )
    for row in rows:
        if row["recovery"] == "pause":
            hold(tx, f"lane:{row['lane']}", "crash recovery", "rescuer")
            if row["status"] in JOB_ACTIVE:
                pause_job(tx, row["id"], "crash recovery", "rescuer")
        elif row["status"] == JobStatus.RUNNING:
            requeue_job(tx, row["id"])
    advance(tx, [row["id"] for row in rows])
    tx.announce("jobs")
