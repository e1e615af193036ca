"""The engine: all loops of one process, started in order, stopped in reverse, with nothing lost in between."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dalsegno.engine.batches import BatchPool
from dalsegno.engine.bulk import Finder
from dalsegno.engine.claimer import Claimer
from dalsegno.engine.commander import Commander
from dalsegno.engine.crowd import Crowd
from dalsegno.engine.executor import AsyncLoop, Pool
from dalsegno.engine.flow import Flow
from dalsegno.engine.forgetting import Keep, make_months
from dalsegno.engine.heart import Heart, Roster
from dalsegno.engine.holds import hold
from dalsegno.engine.item import Item
from dalsegno.engine.logbridge import LogBridge
from dalsegno.engine.looper import Looper
from dalsegno.engine.orders import Order, Prepare, as_stored
from dalsegno.engine.pauses import pause_job
from dalsegno.engine.phases import pool_of_phases
from dalsegno.engine.planner import Planner
from dalsegno.engine.pruner import Policies, Pruner, default_policy, keep_all
from dalsegno.engine.rescuer import Rescuer, rescue_all
from dalsegno.engine.scheduler import Scheduler
from dalsegno.engine.service import Service, Services
from dalsegno.engine.settler import Settler
from dalsegno.engine.submit import load_workflow
from dalsegno.engine.timekeeper import Timekeeper
from dalsegno.engine.usher import Usher
from dalsegno.engine.verdict import Rules
from dalsegno.engine.waiting import wait_for_job
from dalsegno.errors import DalSegnoError, WorkflowUnknown
from dalsegno.model.backoff import Backoff
from dalsegno.model.outcome import Interrupted, Release
from dalsegno.model.states import JobStatus
from dalsegno.store.notes import MOVED, read_note
from dalsegno.store.schema import jobs

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.engine")

SWITCH_INTERVAL = 0.001
"""Python's default of 5 ms lets a busy handler keep the claimer and the settler waiting that long at every step."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    node: str = field(default_factory=socket.gethostname)
    labels: Mapping[str, Any] = field(default_factory=dict)
    lease_seconds: float = 60.0
    drain_seconds: float = 30.0
    backoff: Backoff = field(default_factory=Backoff)
    concurrency: Mapping[str, int] = field(default_factory=dict)
    """Workers per service in this process, where it differs from what the service says."""
    phase_workers_max: Mapping[str, int] = field(default_factory=dict)
    """Most workers at once in the phases before the last, per service made of phases; four times its workers."""
    keep_logs: bool = True
    secrets: Sequence[str] = ()
    find: Finder | None = None
    """How items are found by a query, for commands about many of them."""
    prepare: Prepare | None = as_stored
    """How what a schedule orders is made ready; None: schedules are left to other engines. On a shared database
    `as_stored` leaves to them what they may know more about: workflows of which it has not every service."""
    retention: Policies | None = default_policy
    """How long what is over is kept; None: that is left to other engines. On a shared database so is the default:
    those who were told how long may be at work there."""
    archive: Keep | None = None
    """Where months of events and logs are put before they go; None: they stay."""


class Engine:
    """Runs services on a store until stopped. Use it as a context manager, or start() and stop().

    On PostgreSQL an engine that was given no `retention` takes nothing away, and of the schedules it starts only those
    whose workflow is stored and made of services that it has: `dalsegno serve` may be at work beside it, and knows the
    settings.
    """

    def __init__(self, store: Store, services: Iterable[Service], options: EngineOptions | None = None) -> None:
        self.store = store
        self.options = options or EngineOptions()
        self.services = Services(services)
        self._loop = AsyncLoop()
        self.pools: dict[str, Pool] = {}
        self._heart = Heart(store, self.options.node, dict(self.options.labels), self.options.lease_seconds, self._died)
        self._roster = Roster(store, self.pools, self._process_id)
        rules = Rules(self.options.backoff, secrets=self.options.secrets)
        self._settler = Settler(store, self.pools, self._loop, rules, _pause_by_service, self._roster.report)
        self._flow = Flow(store, self.options.node, self._process_id, self.options.secrets)
        self._usher = Usher(store, self._flow)
        self._flow.unsaid.tell = self._usher.wake
        self._claimer = Claimer(store, self.pools, self._settler, self._flow, self._process_id)
        self._scheduler = Scheduler(store)
        self._commander = Commander(store, self.options.find, self._settler.in_hand)
        self._timekeeper = None
        if self.options.prepare is not None:
            ours = self._ours if self.options.prepare is as_stored and store.shared else None
            self._timekeeper = Timekeeper(store, self.options.prepare, self.options.secrets, ours)
        self._pruner = None
        if self.options.retention is not None:
            untold = self.options.retention is default_policy and store.shared
            policies = keep_all if untold else self.options.retention  # its months are made ahead all the same
            self._pruner = Pruner(store, policies, self.options.archive)
        self._planner = Planner(store, self.services, self._process_id)
        self._rescuer = Rescuer(store, self._process_id, self.options.lease_seconds / 3)
        self._logs = LogBridge(store, self.options.secrets) if self.options.keep_logs else None
        alone = threading.Lock()
        self._crowd = Crowd()
        self._settler.crowd = self._crowd
        self._roster.minutes = self._settler.minutes
        self._heart.loops, self._heart.secrets = self._loops, self.options.secrets
        begin = self._settler.beginning.begin
        for service in self.services:
            workers = self.options.concurrency.get(service.name, service.workers)
            pool_service = replace(service, workers=workers)
            kind: Callable[..., Pool] = BatchPool if service.is_batch else Pool
            if service.phases:
                kind = pool_of_phases(pool_service, self.services, self.options.phase_workers_max.get(service.name))
            self.pools[service.name] = kind(
                pool_service, store.clock, self._settler.put, begin, self._claimer.wake, self._loop, alone
            )
            self.pools[service.name].flow = self._flow
            self.pools[service.name].crowd = self._crowd
        self._watch_stop = threading.Event()
        self._watcher: threading.Thread | None = None
        self._unlisten: Callable[[], None] = lambda: None
        self._release: Callable[[], None] = lambda: None
        self._state_lock = threading.Lock()
        self._started = False

    def _process_id(self) -> int:
        return self._heart.process_id

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> Engine:
        """Take the database (SQLite lets one engine in), recover what a crash left, and begin."""
        self._release = self.store.hold_engine()
        try:
            self._warn_if_moved()
            make_months(self.store)
            self._heart.register({pool.service.name: pool.service.workers for pool in self.pools.values()})
            rescue_all(self.store, self._process_id(), alone=not self.store.shared)
            self._flow.declare(self.services)
        except BaseException:
            self._release()
            raise
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_INTERVAL))
        self._unlisten = self.store.listen(self._heard)
        self._watcher = threading.Thread(
            target=self.store.watch, args=(self._watch_stop,), name="dalsegno-watch", daemon=True
        )
        self._watcher.start()
        for loop in self._loops():
            loop.start()
        for pool in self.pools.values():
            pool.start()
        self._started = True
        return self

    def stop(self, drain_seconds: float | None = None) -> bool:
        """Claim nothing more, give back what has not begun, let the rest finish until the deadline.

        What is still running then is interrupted, without cost to it. True: everything finished in time.
        """
        with self._state_lock:
            if not self._started:
                return True
            self._started = False
        limit = self.options.drain_seconds if drain_seconds is None else drain_seconds
        deadline = time.monotonic() + limit
        self._claimer.draining = True
        self._flow.stop()
        self._claimer.closed()
        if self._timekeeper is not None:
            self._timekeeper.stop(timeout=5)
        if self._pruner is not None:
            self._pruner.stop(timeout=5)
        self._drain(deadline)
        for loop in (self._claimer, self._planner, self._scheduler, self._commander, self._rescuer, self._usher):
            loop.stop(timeout=5)
        # A claim that was under way when we looked has arrived by now: give it back, and let finish what it began.
        for pool in self.pools.values():
            self._give_back(pool)
        clean = self._drain(deadline)
        for pool in self.pools.values():
            pool.stop()
            self._give_back(pool)
            for item in pool.abandon():
                item.cancelled = True
                self._loop.cancel(item)
                self._settler.put(item, Interrupted("still running when its process stopped", "stopped"))
        self._settler.stop(timeout=10)
        self._watch_stop.set()
        try:
            self._settler.flush()
            self._roster.report()
            self._flow.unsaid.catch_up()
            self._heart.stop(timeout=5)
            self._heart.unregister()
        except DalSegnoError as error:
            logger.error("stopped without the database; the next start recovers: %s", error)
            clean = False
        if self._logs is not None:
            self._logs.stop(timeout=5)
        self._unlisten()
        self._loop.stop()
        self._flow.close()
        for service in self.services:
            _close(service)
        self._release()
        return clean

    def wait(self, job_id: int, timeout: float | None = None) -> JobStatus:
        """Block until a job has finished or is paused; its status then, or whatever it is at the timeout."""
        return wait_for_job(self.store, job_id, timeout)

    def __enter__(self) -> Engine:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _loops(self) -> list[Looper]:
        loops: list[Looper] = [self._heart, self._settler, self._claimer, self._planner, self._scheduler]
        loops += [self._commander, self._rescuer, self._usher]
        if self._timekeeper is not None:
            loops.append(self._timekeeper)
        if self._pruner is not None:
            loops.append(self._pruner)
        return [*loops, self._logs] if self._logs is not None else loops

    def _drain(self, deadline: float) -> bool:
        while time.monotonic() < deadline and not self._quiet():
            time.sleep(0.01)
        return self._quiet()

    def _give_back(self, pool: Pool) -> None:
        """Never begun, so it costs nothing."""
        for item in pool.take_back(_everything):
            self._settler.put(item, Release("shutting down"))

    def _quiet(self) -> bool:
        return not self._settler.in_hand() and not self._settler.unsettled()

    # --- what wakes whom ----------------------------------------------------------------------

    def _heard(self, topics: set[str]) -> None:
        for topic in topics:
            match topic:
                case "jobs" | "due":
                    self._scheduler.wake()
                case "commands":
                    self._commander.wake()
                case "schedules" if self._timekeeper is not None:
                    self._timekeeper.wake()
                case "closed":
                    self._flow.changed()
                    self._claimer.told()
                    self._claimer.closed()
                case "flow":
                    self._flow.moved()
                    self._usher.wake()
                    self._claimer.told()
                case "plan":
                    self._planner.wake()
                case "work":
                    self._claimer.told()
                case "back":  # an outage is over: nobody sleeps on until its next try
                    self._claimer.told()
                    for loop in self._loops():
                        loop.wake()
                case _ if topic.startswith("lane:"):
                    self._scheduler.told(topic[5:])
                case _ if topic.startswith("work:") and topic[5:] in self.services:
                    self._claimer.told(topic[5:])

    def _ours(self, order: Order) -> bool:
        """Whether a workflow that is ordered is stored, and has no step but of services that are here."""
        try:
            workflow = self.store.read(lambda tx: load_workflow(tx, order.workflow))[1]
        except (WorkflowUnknown, ValueError):  # the words of a newer version, perhaps
            return False
        return all(step.service in self.services for step in workflow.steps)

    def _warn_if_moved(self) -> None:
        moved = self.store.read(lambda tx: read_note(tx, MOVED))
        if moved is not None:
            where, when = moved.get("to"), moved.get("at")
            logger.warning("everything in this database was moved to %s at %s; use that one: DATABASE_URL", where, when)

    def _died(self) -> None:
        """Another node declared this process dead: its leases are gone, so nothing in hand may count."""
        for pool in self.pools.values():
            pool.take_back(_everything)
        self._settler.forget()


def _close(service: Service) -> None:
    try:
        if service.closing is not None:
            service.closing()
    except Exception:
        logger.exception("service %s could not be closed", service.name)


def _everything(_: Item) -> bool:
    return True


def _pause_by_service(tx: Tx, job_id: int, reason: str, code: str) -> None:
    """A service asked for its job to pause. A full disk stops the whole lane: the next job would meet it too."""
    pause_job(tx, job_id, f"{code}: {reason}", "service")
    if code == "disk_full":
        lane = tx.conn.execute(jobs.select().where(jobs.c.id == job_id)).mappings().one()["lane"]
        hold(tx, f"lane:{lane}", f"{code}: {reason}", "service")
