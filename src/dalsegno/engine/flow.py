"""Flow: what stands before every call of a limited or guarded service, and after it.

Permits and the breaker are asked in one transaction that also writes down that the items have begun; only then the
call is made. A service whose name has no limit and that declares no breaker passes without any of this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from dalsegno.engine import breakers, limits
from dalsegno.engine.breakers import Shut
from dalsegno.engine.desk import Ask, Desk
from dalsegno.engine.ending import Ending, Entry
from dalsegno.engine.item import Item
from dalsegno.engine.limits import Denied, Pulse, Room
from dalsegno.engine.passage import Passage
from dalsegno.engine.unsaid import Unsaid
from dalsegno.engine.ways import Ways
from dalsegno.errors import DalSegnoError, InputInvalid
from dalsegno.model.breaker import Breaker
from dalsegno.model.outcome import Done, Outcome, Release, Throttled, Wait
from dalsegno.model.trip import Trip
from dalsegno.store.schema import breakers as breaker_rows
from dalsegno.store.schema import limits as limit_rows
from dalsegno.store.schema import waits

if TYPE_CHECKING:
    from dalsegno.engine.service import Service
    from dalsegno.store.store import Store, Tx

PATIENCE = 2.0
"""Seconds a worker waits for a permit before its item goes back in line."""
AHEAD = 1.0
"""Claims come this many seconds before their permits: the worker is there when one gets free."""
NUDGE = 5.0
"""Seconds until an item comes back that met trouble which did not trip the breaker yet."""


class MustWait(BaseException):
    """Not an error: the call cannot begin now. A BaseException, so that no service takes it for one of its own."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason


class Troubled(BaseException):
    """The other side is in trouble, but not enough to trip its breaker: the item comes back, and it costs nothing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# Asked by every claim, so it is one small statement where nothing limits the service.
_service: sa.BindParameter[str] = sa.bindparam("service")
_node: sa.BindParameter[str] = sa.bindparam("node")
_KNOWN = sa.select(
    sa.exists(sa.select(limit_rows.c.name).where(limit_rows.c.name.in_([_service, _node]))),
    sa.exists(sa.select(breaker_rows.c.name).where(breaker_rows.c.name == _service)),
)


class Gate(NamedTuple):
    """What the limits and the breaker of a service say to its claims."""

    guarded: bool
    calls: int | None = None
    delay: float | None = None


class Flow:
    def __init__(self, store: Store, node: str, process_id: Callable[[], int], secrets: Sequence[str] = ()) -> None:
        self._store = store
        self._node = node
        self._process_id = process_id
        self._pulse = Pulse(store.clock)
        self._desks: dict[tuple[str, ...], Desk] = {}
        self._making = threading.Lock()
        self._stopped = False
        self.unsaid = Unsaid(store, process_id)
        self._ending = Ending(store, self.unsaid, secrets)
        self._ways = Ways(store)
        # Of their own: who waits for a permit must not be in the way of who gives one back, nor of the loop's lookups.
        self.entering = ThreadPoolExecutor(256, "dalsegno-permit")
        self.leaving = ThreadPoolExecutor(8, "dalsegno-permit-back")

    def stop(self) -> None:
        """Nobody waits for a permit any more."""
        with self._making:
            self._stopped = True
            for desk in self._desks.values():
                desk.close()

    def close(self) -> None:
        """No thread is left behind; what still leaves a block gives its permit back with the process."""
        self.entering.shutdown(wait=False)
        self.leaving.shutdown(wait=False)

    def declare(self, services: Iterable[Service]) -> None:
        """The limits that services come with, where no operator has said otherwise."""
        limited = [(service.name, service.limit) for service in services if service.limit is not None]

        def work(tx: Tx) -> None:
            for name, limit in limited:
                limits.set_limit(tx, f"service:{name}", limit, "service", origin="service")

        if limited:
            self._store.write("declare", work)

    def moved(self) -> None:
        """Some limit or breaker may have room: whoever waits looks again."""
        self.changed()
        for desk in list(self._desks.values()):
            desk.moved()

    def changed(self) -> None:
        """Somebody may be limited, or in trouble, who was not."""
        self._ways.changed()

    # --- claims -------------------------------------------------------------------------------

    def names_of(self, service: Service) -> set[str]:
        return {f"service:{service.name}", f"node:{self._node}"}

    def guards(self, tx: Tx) -> set[str]:
        """Every limit and breaker of services and nodes that somebody has set."""
        found: set[str] = set()
        for table in (limit_rows, breaker_rows):
            of = sa.or_(table.c.name.startswith("service:"), table.c.name.startswith("node:"))
            found.update(tx.conn.execute(sa.select(table.c.name).where(of)).scalars())
        return found

    def gate(self, tx: Tx, service: Service) -> Gate:
        names = (f"service:{service.name}", f"node:{self._node}")
        limited, broken = tx.conn.execute(_KNOWN, {"service": names[0], "node": names[1]}).one()
        calls: int | None = None
        delay: float | None = None
        if broken:
            calls, delay = breakers.calls(tx, names[0])
        if limited and calls != 0:
            room: Room = self.room(tx, names)
            if room.calls is not None and (calls is None or room.calls < calls):
                calls, delay = room.calls, room.delay
        return Gate(bool(limited or broken or service.breaker is not None), calls, delay)

    def room(self, tx: Tx, names: Sequence[str]) -> Room:
        return limits.room(tx, names, AHEAD, self._pulse)

    # --- calls of a service -------------------------------------------------------------------

    def enter(self, service: Service, items: Sequence[Item]) -> Outcome | None:
        """One call with these items. None: go on; they have begun. Otherwise what becomes of them instead."""
        for item in items:
            item.started_at = None  # it waits for its permit: neither begun nor late yet
        answer = self._desk((f"service:{service.name}", f"node:{self._node}"), begins=True).ask(items, PATIENCE)
        if isinstance(answer, Shut):
            return Release(f"breaker {answer.name}: {answer.reason}")
        if isinstance(answer, Denied):
            return Release(f"limit {answer.name} has no room")
        for item in items:
            item.entry = answer
        if all(item.lost for item in items):  # whatever we say of them is refused
            self._ending.end(answer)
            return Done()
        return None

    def leave(self, service: Service, items: Sequence[Item], error: BaseException | None) -> Outcome | None:
        """The call is over. An outcome here is what becomes of all its items, whatever the service said."""
        entry: Entry | None = items[0].entry
        for item in items:
            item.entry = None
        match _unwrapped(error):
            case MustWait(name=name, reason=reason):
                outcome: Outcome | None = Wait(name, reason)
            case Troubled(reason=reason):
                outcome = self._nudge(reason)
            case _:
                outcome = None
        if entry is None:
            return outcome
        if outcome is not None:
            self._ending.end(entry)
            return outcome
        policy = service.breaker or Breaker()
        trouble = error if service.breaker is not None else None  # without a breaker every failure is the item's own
        judged = self._ending.judge(entry, policy, trouble)
        if isinstance(judged, Shut):
            return Release(f"breaker {judged.name}: {judged.reason}")
        return self._nudge(judged.reason) if isinstance(judged, Trip) else None

    def timed_out(self, service: Service, item: Item) -> None:
        """Its call does not come back. The permit stays taken while it runs; the breaker must not wait for it."""
        entry: Entry | None = item.entry
        if entry is not None and service.breaker is not None:
            self._ending.judge(entry._replace(permits=[]), service.breaker, TimeoutError("took too long"))
        elif entry is not None:
            self._ending.end(entry._replace(permits=[]))

    def withdraw(self, items: Sequence[Item]) -> None:
        """The call ends without a word about the other side: its items are given back before it came to anything."""
        entry: Entry | None = items[0].entry
        for item in items:
            item.entry = None
        if entry is not None:
            self._ending.end(entry)

    def _nudge(self, reason: str) -> Throttled:
        return Throttled(self._store.clock.now() + timedelta(seconds=NUDGE), reason, counts=True)

    def _desk(self, names: tuple[str, ...], *, begins: bool) -> Desk:
        with self._making:
            if names not in self._desks:
                self._desks[names] = Desk(partial(self._serve, names, begins))
                if self._stopped:
                    self._desks[names].close()
            return self._desks[names]

    def _serve(self, names: tuple[str, ...], begins: bool, asks: list[Ask]) -> Denied | None:
        """Let in as many as the breaker and all limits allow."""
        self.unsaid.give_up_disowned()  # or it would take away what these are given now
        try:
            now, entries, begun, refused = self._store.write("permit", lambda tx: self._let_in(tx, names, begins, asks))
        except BaseException:  # they may have been let in all the same
            self.unsaid.disown(names, [item.id for ask in asks for item in ask.items])
            raise
        for ask, entry in zip(asks, entries, strict=False):
            if begins:
                for item in ask.items:
                    item.started_at = now
                    item.lost = item.cancelled = item.lost or (not item.begun and item.id not in begun)
                    item.begun = True
            ask.answer = entry
        if isinstance(refused, Shut):
            for ask in asks[len(entries) :]:
                ask.answer = refused
            return None
        return refused

    def _let_in(
        self, tx: Tx, names: tuple[str, ...], begins: bool, asks: list[Ask]
    ) -> tuple[datetime, list[Entry], set[int], Denied | Shut | None]:
        now = self._store.clock.now()
        first = [ask.items[0].id for ask in asks]
        way = breakers.enter(tx, names[0], self._process_id(), first[0])
        if isinstance(way, Shut):
            return now, [], set(), way
        taken, refused = limits.take_some(tx, self._pulse, names, self._process_id(), first[:1] if way.probe else first)
        if not taken:
            breakers.came_to_nothing(tx, names[0], way, tell=False)  # nothing has changed: who hears of it asks again
        entries = [Entry(permits, names[0], way) for permits in taken]
        items = [item for ask in asks[: len(entries)] for item in ask.items]
        begun: set[int] = set()
        if begins:
            rows = [(item.id, item.claimed.lease, now, item.worker) for item in items if not item.begun]
            begun = tx.hot.begin(tx, rows) if rows else begun
        elif back := [item.id for item in items if item.claimed.lease > 1]:
            tx.conn.execute(sa.delete(waits).where(waits.c.item_id.in_(back)))
        if way.probe and entries and len(asks) > 1:
            return now, entries, begun, Shut(names[0], "a probe is on its way", None)
        return now, entries, begun, refused

    # --- calls in the middle of a service's work ----------------------------------------------

    def permit(self, item: Item, name: str, policy: Breaker) -> Passage:
        if len(name) > 200 or name.split() != [name]:
            raise InputInvalid(problem=f"A limit's name has 1 to 200 characters and no spaces: {name!r}.")
        return Passage(self, item, name, policy)

    def pass_in(self, item: Item, name: str) -> Entry:
        try:
            if item.claimed.lease == 1 and not self._stopped and (way := self._ways.find(name)) is not None:
                return Entry([], name, way)
            answer = self._desk((name,), begins=False).ask([item], PATIENCE)
        except DalSegnoError as error:  # a database that is away is not the item's fault
            raise MustWait(name, f"could not ask for a permit: {error}") from error
        if isinstance(answer, Shut):
            raise MustWait(name, f"breaker open: {answer.reason}")
        if isinstance(answer, Denied):
            raise MustWait(name, "no permit is free")
        assert isinstance(answer, Entry)
        return answer

    def pass_out(self, name: str, entry: Entry, policy: Breaker, error: BaseException | None) -> None:
        plain = not entry.permits and not entry.way.probe
        if isinstance(_unwrapped(error), MustWait | Troubled | GeneratorExit):
            if not plain:
                self._ending.end(entry)
            return
        if plain and error is None and not entry.way.failures:
            return
        with self._ways.suspected(name if error is not None else None):
            judged = self._ending.judge(entry, policy, error)
        if isinstance(judged, Shut):
            raise MustWait(name, f"breaker open: {judged.reason}") from error
        if isinstance(judged, Trip):
            raise Troubled(judged.reason) from error


def _unwrapped(error: BaseException | None) -> BaseException | None:
    """What task groups wrap: if one of theirs had to wait, all of them have to."""
    if isinstance(error, BaseExceptionGroup):
        found = error.subgroup(lambda inner: isinstance(inner, MustWait | Troubled))
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        return found or error
    return error
