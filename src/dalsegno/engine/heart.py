"""The heart: registers this process, and beats from a thread of its own so that no handler can stop it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence, Set
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.clock import this_host
from dalsegno.engine.logbridge import masked
from dalsegno.engine.looper import Looper
from dalsegno.store.schema import nodes, processes, workers
from dalsegno.version import VERSION

if TYPE_CHECKING:
    from dalsegno.engine.executor import Pool
    from dalsegno.engine.minutes import Minutes
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.engine")


class Heart(Looper):
    """One row per process start: its id is what leases are held under."""

    name = "heart"

    def __init__(self, store: Store, node: str, labels: dict[str, Any], ttl: float, died: Callable[[], None]) -> None:
        super().__init__()
        self.interval = ttl / 3
        self.process_id = 0
        self._store = store
        self._node = node
        self._labels = labels
        self._ttl = ttl
        self._died = died
        self.secrets: Sequence[str] = ()
        self.loops: Callable[[], Iterable[Looper]] = lambda: ()
        """Those of this process; people look when each last came round."""

    def register(self, capacity: dict[str, int]) -> None:
        self._capacity = capacity
        self.process_id = self._store.write("register", self._register)

    def _register(self, tx: Tx) -> int:
        now = tx.hot.database_now(tx)
        node = {"labels": self._labels, "max_concurrency": self._capacity, "last_seen": now, "awake_state": "awake"}
        if tx.insert_new(nodes, {"name": self._node, **node}) is None:
            tx.conn.execute(sa.update(nodes).where(nodes.c.name == self._node).values(**node))
        return int(
            tx.conn.execute(
                sa.insert(processes)
                .values(
                    node=self._node,
                    host=this_host(),
                    pid=os.getpid(),
                    version=VERSION,
                    started_at=now,
                    heartbeat_at=now,
                    lease_until=now + timedelta(seconds=self._ttl),
                )
                .returning(processes.c.id)
            ).scalar_one()
        )

    def tick(self) -> float | None:
        if not self._store.write("heartbeat", self._beat):
            logger.error("this process was declared dead (too long without a heartbeat); it starts over")
            self._died()
            self.register(self._capacity)
        return None

    def _beat(self, tx: Tx) -> bool:
        alive = tx.hot.renew(tx, self.process_id, self._ttl)
        ticks = {loop.name: self._tick(loop) for loop in self.loops()}
        if self.name in ticks:  # by how much this machine's clock is ahead of the database's
            before = self._store.clock.now()
            there = tx.hot.database_now(tx)
            ticks[self.name]["skew"] = round((before - there).total_seconds(), 3)
        tx.conn.execute(sa.update(processes).where(processes.c.id == self.process_id).values(loops=ticks))
        tx.conn.execute(sa.update(nodes).where(nodes.c.name == self._node).values(last_seen=tx.now))
        return alive

    def _tick(self, loop: Looper) -> dict[str, Any]:
        ago = loop.ago
        return {
            "at": _moment(loop.ticked_at),
            "failures": loop.failures,
            "error": masked(loop.error, self.secrets),
            "ago": None if ago is None else round(ago, 3),
            "every": round(max(loop.interval, loop.rests), 3),
        }

    def unregister(self) -> None:
        self._store.write("unregister", self._unregister)

    def _unregister(self, tx: Tx) -> None:
        tx.conn.execute(sa.delete(workers).where(workers.c.process_id == self.process_id))
        tx.conn.execute(sa.delete(processes).where(processes.c.id == self.process_id))


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


class Roster:
    """What every worker is doing now, written only where it changed and at most once a second."""

    minutes: Minutes | None = None
    """What the process settled goes along: one write for both."""

    def __init__(self, store: Store, pools: dict[str, Pool], process_id: Callable[[], int]) -> None:
        self._store = store
        self._pools = pools
        self._process_id = process_id
        self._written: dict[str, dict[str, Any]] = {}
        self._written_as = 0
        self._phases: dict[str, Any] = {}

    def report(self) -> None:
        process_id = self._process_id()
        if process_id != self._written_as:  # it starts over under a new number
            self._written, self._written_as, self._phases = {}, process_id, {}
        lines = {name: self._line(pool, name) for pool in self._pools.values() for name in pool.worker_names()}
        changed = {name: line for name, line in lines.items() if self._written.get(name) != line}
        gone = self._written.keys() - lines.keys()
        phases = {name: told for name, pool in self._pools.items() if (told := pool.phases())}
        settled = self.minutes.to_write(process_id) if self.minutes is not None else []
        if changed or gone or settled or phases != self._phases:
            self._store.write("workers", lambda tx: self._write(tx, changed, gone, phases, settled))
            self._written, self._phases = lines, phases
            if self.minutes is not None:
                self.minutes.written()

    def _line(self, pool: Pool, name: str) -> dict[str, Any]:
        item = pool.running.get(name)
        moved = item.transfer if item is not None and item.transfers else None
        return {
            "service": pool.service.name,
            "status": "idle" if item is None else "busy",
            "job_id": item and item.job_id,
            "stage_id": item and item.stage.id,
            "item_id": item and item.id,
            "text": None if item is None else item.text or item.key,
            "progress": item and item.fraction,
            "phase": item and item.current_phase,
            "bytes_done": moved and moved.done,
            "bytes_total": moved and moved.total,
            "speed": moved and round(moved.speed()),
            "since": item and self._since(name, item.id),
            "processed": pool.processed,
            "errors": pool.errors,
        }

    def _since(self, name: str, item_id: int) -> datetime:
        before = self._written.get(name)
        if before is not None and before["item_id"] == item_id:
            since: datetime = before["since"]
            return since
        return self._store.clock.now()

    def _write(
        self,
        tx: Tx,
        changed: dict[str, dict[str, Any]],
        gone: Set[str],
        phases: dict[str, Any],
        settled: list[dict[str, Any]],
    ) -> None:
        process_id = self._process_id()
        if settled and self.minutes is not None:
            self.minutes.store(tx, settled)
        if phases != self._phases:
            tx.conn.execute(sa.update(processes).where(processes.c.id == process_id).values(pools=phases))
        if gone:
            tx.conn.execute(sa.delete(workers).where(workers.c.process_id == process_id, workers.c.name.in_(gone)))
        rows = [{**line, "who": name, "updated_at": tx.now} for name, line in changed.items()]
        known = [row for row in rows if row["who"] in self._written]
        if known:
            tx.conn.execute(
                sa.update(workers).where(workers.c.process_id == process_id, workers.c.name == sa.bindparam("who")),
                known,
            )
        new = [row for row in rows if row["who"] not in self._written]
        own = sa.select(processes.c.id).where(processes.c.id == process_id).with_for_update(read=True)
        if new and tx.row(own) is None:
            return  # it was declared dead: its heart will notice
        for row in new:
            name = row.pop("who")
            tx.insert_new(workers, {**row, "name": name, "process_id": process_id})
