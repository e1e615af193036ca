"""The claimer: keeps every pool fed, in the global order, and takes back what a pause or cancel unbegins."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.engine import breakers
from dalsegno.engine.executor import Pool
from dalsegno.engine.flow import AHEAD
from dalsegno.engine.holds import held
from dalsegno.engine.item import Item, StageInfo
from dalsegno.engine.limits import setting
from dalsegno.engine.looper import Looper
from dalsegno.engine.meters import METERS
from dalsegno.model.breaker import Breaker
from dalsegno.model.outcome import Release
from dalsegno.store.hot import Claimed
from dalsegno.store.schema import items, jobs, leases, processes, stages

if TYPE_CHECKING:
    from dalsegno.engine.flow import Flow
    from dalsegno.engine.settler import Settler
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.engine")

BATCH = 500
"""Most items in one claim."""
USUAL = Breaker()
"""How the trouble of somebody a service calls is read where neither the call nor the service says."""
MOST_UNSETTLED = 4000
"""Back-pressure: with this many outcomes not yet written, nothing new is claimed."""


DRY = 0.25
"""Seconds for which a service that had nothing more to claim is not asked again unless told: whoever wakes the claimer
is mostly another one."""


GLANCE = 0.25
"""Seconds for which the stages that came first a moment ago are taken to come first still, unless told otherwise: as
long as what is claimed ahead lasts. A look at all of them takes the longer, the older a transaction somebody holds."""


class Claimer(Looper):
    name = "claimer"

    def __init__(
        self, store: Store, pools: dict[str, Pool], settler: Settler, flow: Flow, process_id: Callable[[], int]
    ) -> None:
        super().__init__()
        self.interval = store.poll_seconds
        self._store = store
        self._pools = pools
        self._settler = settler
        self._flow = flow
        self._process_id = process_id
        self._infos: dict[int, StageInfo] = {}
        self._look_for_closed = False
        self._looked_at = 0.0
        self._uncertain = False
        self._dry: dict[str, float] = {}
        self._told: set[str] = set()
        """Services that have work, as far as anybody said."""
        self._known: dict[str, tuple[float, list[int]]] = {}
        self._tellings = 0
        self._clock = store.clock
        self.draining = False

    def closed(self) -> None:
        """Some stage may have been closed or canceled: look before anything else begins."""
        self._look_for_closed = True
        self.wake()

    def tick(self) -> float | None:
        if self._uncertain:
            self._give_back_unknown()
        if self._look_for_closed or self._clock.monotonic() - self._looked_at > self.interval:
            self._look_for_closed = False
            self._take_back_closed()
            self._looked_at = self._clock.monotonic()
        if self.draining:
            return None
        more = False
        self._patience = self.interval
        for pool in self._worth_asking():
            if self._settler.unsettled() > MOST_UNSETTLED:
                return 0.005
            more |= self._claim(pool)
        return 0 if more else self._patience

    def _worth_asking(self) -> list[Pool]:
        """Pools that want work and may find some. A claim is a transaction; one glance tells for all of them."""
        now, tellings = time.monotonic(), self._tellings
        hungry = {}
        for name, pool in self._pools.items():
            if (rest := self._dry.get(name, 0.0) - now) > 0:
                self._patience = min(self._patience, rest)
            elif pool.appetite() > 0:
                hungry[name] = pool
        if unsure := hungry.keys() - self._told - self._known.keys():
            ready = self._store.glance(self._ready, {})[0]
            for name in unsure:
                if not ready[name]:
                    del hungry[name]
                    self._ran_dry(name, tellings)
        return list(hungry.values())

    @cached_property
    def _ready(self) -> sa.Select[Any]:
        """Whether each service has anything to claim. In the words of the index on what is claimable."""
        claimable: sa.ColumnElement[bool] = sa.literal_column("claimable")
        found: list[Any] = [sa.exists().where(stages.c.service == name, claimable).label(name) for name in self._pools]
        return sa.select(*found)

    def _ran_dry(self, service: str, tellings: int) -> None:
        self._dry[service] = time.monotonic() + DRY
        if self._tellings != tellings:  # what we were told of came after our look
            self._dry.pop(service, None)

    def told(self, service: str | None = None) -> None:
        """There is work for it; for any of them."""
        self._tellings += 1
        for name in self._pools if service is None else (service,):
            self._told.add(name)
            self._dry.pop(name, None)
            self._known.pop(name, None)
        self.wake()

    def _claim(self, pool: Pool) -> bool:
        """Feed one pool; True when there may be more for it right away."""
        want = min(BATCH, pool.appetite())
        if want == 0:
            return False
        process_id = self._process_id()
        began, tellings = self._clock.monotonic(), self._tellings
        self._told.discard(pool.service.name)
        looked, known = self._known.pop(pool.service.name, (0.0, []))
        if time.monotonic() - looked > GLANCE:
            looked, known = time.monotonic(), []
        try:
            claimed, infos = self._store.write("claim", lambda tx: self._take(tx, pool, want, known))
        except Exception:
            self._uncertain = True  # the commit may have happened: find out before claiming again
            raise
        if not claimed and known:
            self._told.add(pool.service.name)
            return True  # those have no more: look at all
        if len(claimed) < want and not known and not pool.guarded:
            self._ran_dry(pool.service.name, tellings)
        if not claimed:
            return False
        if len(claimed) == want and self._tellings == tellings:
            self._known[pool.service.name] = looked, known or list(dict.fromkeys(row.stage_id for row in claimed))
        METERS.claim(pool.service.name, len(claimed), self._clock.monotonic() - began)
        self._infos |= infos
        work = [self._item(row) for row in claimed]
        self._settler.hold(work)
        if process_id != self._process_id():
            return True  # declared dead in between: these leases are no longer ours
        pool.feed(work)
        more = (len(claimed) == want or bool(known)) and pool.appetite() > 0
        if more:
            self._told.add(pool.service.name)
        return more

    def _take(self, tx: Tx, pool: Pool, want: int, known: list[int]) -> tuple[list[Claimed], dict[int, StageInfo]]:
        still = held(tx)
        if still.everything or pool.service.name in still.services:
            return [], {}
        if self._store.shared and tx.row(_REGISTERED, {"process": self._process_id()}) is None:
            return [], {}  # declared dead: what it took now would be taken from it again; its heart will notice
        if pool.service.batch_setting is not None:
            pool.service.batch_size = setting(tx, pool.service.batch_setting)
        unentered = pool.unentered()  # before the gate is asked: who enters in between is counted there
        gate = self._flow.gate(tx, pool.service)
        pool.guarded = gate.guarded
        if gate.calls is not None:
            want = min(want, gate.calls * pool.service.batch_size - unentered)
            if gate.calls == 0 and gate.delay is not None:
                early = gate.delay - AHEAD  # a breaker lets nobody in before its time
                self._patience = min(self._patience, early if early > 0 else max(0.005, gate.delay))
        if want <= 0:
            return [], {}
        known = [] if still.lanes else known
        claimed = tx.hot.claim(tx, pool.service.name, self._process_id(), want, still.lanes, known)
        missing = {item.stage_id for item in claimed} - self._infos.keys()
        return claimed, _stage_infos(tx, missing) if missing else {}

    def _item(self, claimed: Claimed) -> Item:
        item = Item(claimed, self._infos[claimed.stage_id])
        if claimed.parent_id is not None:
            item.fetch_input = self._fetch_input
        item.on_phase = self._settler.phase
        item.open_passage = self._open_passage
        return item

    def _open_passage(self, item: Item, name: str, breaker: Breaker | None) -> Any:
        service = self._pools[item.stage.service].service
        return self._flow.permit(item, name, breaker or service.breaker or USUAL)

    def _fetch_input(self, parent_id: int) -> Any:
        return self._store.read(
            lambda tx: tx.conn.execute(sa.select(items.c.result).where(items.c.id == parent_id)).scalar()
        )

    # --- taking back --------------------------------------------------------------------------

    def _take_back_closed(self) -> None:
        self._look_at_gates()
        in_hand = self._settler.stages_in_hand()
        for stage_id in self._infos.keys() - in_hand:
            del self._infos[stage_id]  # a resumed job may come with other settings: read them again
        if not in_hand:
            return
        closed, canceled, shut = self._store.read(lambda tx: self._closed(tx, in_hand))
        for stage_id in closed:
            self._infos.pop(stage_id, None)  # the same, where an item of it is still running
        if canceled:
            self._settler.cancel(canceled)

        def unwanted(item: Item) -> bool:
            # Behind an open breaker nothing begins; a call that was let in goes on, a probe above all.
            return self.draining or item.stage.id in closed or (item.stage.service in shut and item.entry is None)

        if closed or shut or self.draining:
            for pool in self._pools.values():
                for item in pool.take_back(unwanted):
                    self._settler.put(item, Release("paused" if not self.draining else "shutting down"))

    def _look_at_gates(self) -> None:
        """Also for pools that are full: what waits in them must not pass by a limit that was set meanwhile."""
        unguarded = [pool for pool in self._pools.values() if not pool.guarded and pool.waiting]
        if unguarded:
            names = self._store.read(self._flow.guards)
            for pool in unguarded:
                pool.guarded = pool.guarded or bool(names & self._flow.names_of(pool.service))

    def _closed(self, tx: Tx, in_hand: set[int]) -> tuple[set[int], set[int], set[str]]:
        """Of these stages those from which nothing more may begin and those whose job is canceled; shut services."""
        still = held(tx)
        closed = sa.or_(
            stages.c.open.is_(False),
            stages.c.service.in_(sorted(still.services)),
            jobs.c.lane.in_(sorted(still.lanes)),
            sa.literal(still.everything),
        )
        rows = tx.rows(
            sa.select(stages.c.id, closed.label("closed"), jobs.c.cancel_requested_at)
            .join(jobs, jobs.c.id == stages.c.job_id)
            .where(stages.c.id.in_(in_hand), sa.or_(closed, jobs.c.cancel_requested_at.is_not(None)))
        )
        canceled = {row["id"] for row in rows if row["cancel_requested_at"] is not None}
        return {row["id"] for row in rows if row["closed"]}, canceled, breakers.shut_services(tx)

    def _give_back_unknown(self) -> None:
        """Leases that the database says are ours and that we know nothing of: a claim whose answer was lost."""
        process_id = self._process_id()
        known = self._settler.in_hand()  # before the look: what is settled meanwhile is no stranger
        rows = self._store.read(
            lambda tx: tx.rows(
                sa.select(items.c.id, items.c.stage_id, items.c.job_id, items.c.seq, items.c.key, items.c.lease,
                          items.c.attempt, items.c.interruptions, items.c.forced, items.c.parent_id)
                .join(leases, leases.c.item_id == items.c.id)
                .where(leases.c.process_id == process_id)
            )
        )  # fmt: skip
        strangers = [Claimed(**row, params=None) for row in rows if row["id"] not in known]
        if strangers:
            logger.warning("giving back %d items whose claim was cut off", len(strangers))
            infos = self._store.read(lambda tx: _stage_infos(tx, {row.stage_id for row in strangers}))
            for row in strangers:
                self._settler.put(Item(row, infos[row.stage_id]), Release("claim was cut off"))
        self._uncertain = False


_REGISTERED = sa.select(processes.c.id).where(processes.c.id == sa.bindparam("process"))
_INFOS = (
    sa.select(stages, jobs.c.snapshot, jobs.c.overrides, jobs.c.options, jobs.c.scope)
    .join(jobs, jobs.c.id == stages.c.job_id)
    .where(stages.c.id.in_(sa.bindparam("ids", expanding=True)))
)


def _stage_infos(tx: Tx, stage_ids: set[int]) -> dict[int, StageInfo]:
    """What the items of these stages share, with the stages that follow each of them."""
    found = {}
    for row in tx.rows(_INFOS, {"ids": sorted(stage_ids)}):
        followers: tuple[int, ...] = ()
        if row["followed_by"]:
            followers = tuple(
                tx.conn.execute(
                    sa.select(stages.c.id).where(stages.c.job_id == row["job_id"], stages.c.key.in_(row["followed_by"]))
                ).scalars()
            )
        found[row["id"]] = StageInfo(
            id=row["id"],
            job_id=row["job_id"],
            key=row["key"],
            service=row["service"],
            params=row["params"] or {},
            snapshot={**(row["snapshot"] or {}), **(row["overrides"] or {})},
            options=row["options"] or {},
            scope=row["scope"],
            followed_by=followers,
            max_attempts=row["max_attempts"],
            max_interruptions=row["max_interruptions"],
            timeout=row["timeout"],
        )
    return found
