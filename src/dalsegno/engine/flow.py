"""Flow: what stands before every call of a limited or guarded service, and after it.

Permits and the breaker are asked in one transaction that also writes down that the items have begun; only then the
call is made. A service whose name has no limit and that declares no breaker passes without any of this.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import sqlalchemy as sa

from dalsegno.engine import breakers, limits
from dalsegno.engine.breakers import Shut, Way
from dalsegno.engine.desk import Ask, Desk
from dalsegno.engine.item import Item, storable
from dalsegno.engine.limits import Denied, Permit, Pulse, Room
from dalsegno.engine.logbridge import masked
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

logger = logging.getLogger("dalsegno.engine")

PATIENCE = 2.0
"""Seconds a worker waits for a permit before its item goes back in line."""
AHEAD = 1.0
"""Claims come this many seconds before their permits: the worker is there when one gets free."""
MOMENT = 0.25
"""Seconds for which a name that nobody limits is taken to stay so, unless something is heard."""
MOST_OPEN = 1000
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


_name: sa.BindParameter[str] = sa.bindparam("name")
_GUARD = sa.select(
    sa.exists(sa.select(limit_rows.c.name).where(limit_rows.c.name == _name)).label("limited"),
    *(
        sa.select(column).where(breaker_rows.c.name == _name).scalar_subquery().label(column.name)
        for column in (breaker_rows.c.state, breaker_rows.c.failures, breaker_rows.c.epoch, breaker_rows.c.trips)
    ),
)


class Gate(NamedTuple):
    """What the limits and the breaker of a service say to its claims."""

    guarded: bool
    calls: int | None = None
    delay: float | None = None


class Entry(NamedTuple):
    """A call that was let in: what it holds, and how the breaker let it through."""

    permits: list[Permit]
    breaker: str
    way: Way


class Flow:
    def __init__(self, store: Store, node: str, process_id: Callable[[], int], secrets: Sequence[str] = ()) -> None:
        self._store = store
        self._node = node
        self._process_id = process_id
        self._secrets = secrets
        self._pulse = Pulse(store.clock)
        self._desks: dict[tuple[str, ...], Desk] = {}
        self._open_ways: dict[str, tuple[Way, float]] = {}
        self._suspects: Counter[str] = Counter()
        self._moves = 0
        self._making = threading.Lock()
        self._stopped = False
        self._unsaid: deque[Callable[[Tx], None]] = deque()
        self._disowned: deque[Callable[[Tx], None]] = deque()
        self._disowning = threading.Lock()
        self.on_unsaid: Callable[[], None] = lambda: None
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
        with self._making:
            self._moves += 1
            self._open_ways.clear()

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
            self._later(lambda tx: self._end(tx, answer))
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
            self._later(lambda tx: self._end(tx, entry))
            return outcome
        policy = service.breaker or Breaker()
        trouble = error if service.breaker is not None else None  # without a breaker every failure is the item's own
        judged = self._judge(entry, policy, trouble)
        if isinstance(judged, Shut):
            return Release(f"breaker {judged.name}: {judged.reason}")
        return self._nudge(judged.reason) if isinstance(judged, Trip) else None

    def timed_out(self, service: Service, item: Item) -> None:
        """Its call does not come back. The permit stays taken while it runs; the breaker must not wait for it."""
        entry: Entry | None = item.entry
        if entry is not None and service.breaker is not None:
            self._judge(entry._replace(permits=[]), service.breaker, TimeoutError("took too long"))
        elif entry is not None:
            self._later(lambda tx: self._end(tx, entry._replace(permits=[])))

    def withdraw(self, items: Sequence[Item]) -> None:
        """The call ends without a word about the other side: its items are given back before it came to anything."""
        entry: Entry | None = items[0].entry
        for item in items:
            item.entry = None
        if entry is not None:
            self._later(lambda tx: self._end(tx, entry))

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
        self._give_up_disowned()  # or it would take away what these are given now
        try:
            now, entries, begun, refused = self._store.write("permit", lambda tx: self._let_in(tx, names, begins, asks))
        except BaseException:  # they may have been let in all the same
            ids = [item.id for ask in asks for item in ask.items]
            self._disowned.append(lambda tx: self._disown(tx, names, ids))
            self.on_unsaid()
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

    def _end(self, tx: Tx, entry: Entry) -> None:
        """Give back what the call held, with no word about the other side."""
        breakers.came_to_nothing(tx, entry.breaker, entry.way)
        self._give_back(tx, entry)

    def _judge(self, entry: Entry, policy: Breaker, error: BaseException | None) -> Shut | Trip | None:
        """Tell the breaker how the call went. The error is read here: outside, whatever reading it takes or breaks."""
        if error is None:
            self._later(lambda tx: self._went_well(tx, entry))
            return None
        if says_nothing(error):
            self._later(lambda tx: self._end(tx, entry))
            return None
        now = self._now()
        try:
            # With the call's own epoch, `trips` cannot have moved since it began.
            trouble = policy.judge(error, now, trips=entry.way.trips)
            if trouble is not None:
                trouble = replace(trouble, reason=storable(str(trouble.reason)))
        except Exception:
            logger.exception("an error could not be judged; it counts as the item's own")
            trouble = None
        text = storable(masked("".join(traceback.format_exception_only(error)).strip(), self._secrets))[:4000]
        if trouble is None:
            self._later(lambda tx: self._went_well(tx, entry))
            return None
        found = trouble
        judged: Shut | Trip | None = self._later(lambda tx: self._went_badly(tx, entry, policy, found, now, text))
        return judged or trouble  # if the breaker can hear of it only later, the item need not pay for that

    def _now(self) -> datetime:
        """The database's time, by which breakers go; ours while it is away."""
        try:
            return self._store.read(lambda tx: tx.hot.database_now(tx))
        except DalSegnoError:
            return self._store.clock.now()

    def _went_well(self, tx: Tx, entry: Entry) -> None:
        if entry.way.probe or entry.way.failures:
            breakers.went_well(tx, entry.breaker, entry.way)
        self._give_back(tx, entry)

    def _went_badly(
        self, tx: Tx, entry: Entry, policy: Breaker, trouble: Trip, now: datetime, text: str
    ) -> Shut | Trip:
        judged = breakers.went_badly(tx, entry.breaker, entry.way, policy, trouble, now, text)
        self._give_back(tx, entry)
        return judged

    def _give_back(self, tx: Tx, entry: Entry) -> None:
        limits.give_back(tx, entry.permits)
        if entry.permits:
            tx.announce("flow")
            for permit in entry.permits:
                tx.announce(f"work:{permit.name[8:]}" if permit.name.startswith("service:") else "work")

    # --- calls in the middle of a service's work ----------------------------------------------

    def permit(self, item: Item, name: str, policy: Breaker) -> Passage:
        if len(name) > 200 or name.split() != [name]:
            raise InputInvalid(problem=f"A limit's name has 1 to 200 characters and no spaces: {name!r}.")
        return Passage(self, item, name, policy)

    def pass_in(self, item: Item, name: str) -> Entry:
        try:
            if item.claimed.lease == 1 and not self._stopped and (way := self._open_way(name)) is not None:
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

    def _open_way(self, name: str) -> Way | None:
        """Nobody limits it and all is well there: then there is nothing to write down before the call, nor after it.

        Where no other process makes calls, what was read counts until somebody is heard to change a limit or a breaker,
        and no longer than a moment.
        """
        now = time.monotonic()
        with self._making:
            if name in self._suspects:
                return None
            known, moves = self._open_ways.get(name), self._moves
        if known is not None and now < known[1]:
            return known[0]
        (found,) = self._store.glance(_GUARD, {"name": name})
        if found["limited"] or found["failures"] or found["state"] not in (None, breakers.CLOSED):
            return None
        way = Way(found["epoch"] or 0, trips=found["trips"] or 0)
        with self._making:
            if moves != self._moves:
                return None
            if not self._store.shared and len(self._open_ways) < MOST_OPEN:
                self._open_ways[name] = (way, now + MOMENT)
        return way

    @contextmanager
    def _suspected(self, name: str | None) -> Iterator[None]:
        """While an error of its is judged, nobody passes it but through the database."""
        if name is None:
            yield
            return
        with self._making:
            self._moves += 1
            self._open_ways.pop(name, None)
            self._suspects[name] += 1
        try:
            yield
        finally:
            with self._making:
                self._suspects[name] -= 1
                if not self._suspects[name]:
                    del self._suspects[name]

    def pass_out(self, name: str, entry: Entry, policy: Breaker, error: BaseException | None) -> None:
        plain = not entry.permits and not entry.way.probe
        if isinstance(_unwrapped(error), MustWait | Troubled | GeneratorExit):
            if not plain:
                self._later(lambda tx: self._end(tx, entry))
            return
        if plain and error is None and not entry.way.failures:
            return
        with self._suspected(name if error is not None else None):
            judged = self._judge(entry, policy, error)
        if isinstance(judged, Shut):
            raise MustWait(name, f"breaker open: {judged.reason}") from error
        if isinstance(judged, Trip):
            raise Troubled(judged.reason) from error

    # --- what could not be said ---------------------------------------------------------------

    def _later(self, work: Callable[[Tx], Any]) -> Any:
        """Now if the database answers, else as soon as it does: a permit that is not given back is lost for long."""
        try:
            return self._store.write("permit.return", work)
        except DalSegnoError as error:
            logger.warning("a permit is given back later: %s", error)
            self._unsaid.append(work)
            self.on_unsaid()
            return None

    def _disown(self, tx: Tx, names: Sequence[str], item_ids: list[int]) -> None:
        """Calls of ours whose beginning we never heard of: they do not take place."""
        # Behind the locks of the transaction whose answer was lost: it may still be about to commit.
        tx.rows(sa.select(breaker_rows.c.name).where(breaker_rows.c.name == names[0]).with_for_update())
        held = sa.select(limit_rows.c.name).where(limit_rows.c.name.in_(sorted(names))).order_by(limit_rows.c.name)
        tx.rows(held.with_for_update())
        limits.give_back_of_items(tx, self._process_id(), item_ids, names)
        breakers.forget_probe(tx, self._process_id(), item_ids, names[0])
        tx.announce("flow")

    def _give_up_disowned(self) -> None:
        if self._disowned:
            with self._disowning:
                while self._disowned:
                    self._store.write("permit.return", self._disowned[0])
                    self._disowned.popleft()

    def catch_up(self) -> None:
        self._give_up_disowned()
        while self._unsaid:
            work = self._unsaid.popleft()
            try:
                self._store.write("permit.return", work)
            except DalSegnoError:
                self._unsaid.appendleft(work)
                raise
            except Exception:  # it would stand in the way of everything else for ever
                logger.exception("what a call held could not be given back")


def says_nothing(error: BaseException) -> bool:
    """A stop, or our own trouble: it says neither good nor bad of the other side."""
    return not isinstance(error, Exception) or isinstance(error, DalSegnoError | futures.CancelledError)


def _unwrapped(error: BaseException | None) -> BaseException | None:
    """What task groups wrap: if one of theirs had to wait, all of them have to."""
    if isinstance(error, BaseExceptionGroup):
        found = error.subgroup(lambda inner: isinstance(inner, MustWait | Troubled))
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        return found or error
    return error


class Passage:
    """`with item.permit("source:qq"):` or `async with`: one call to somebody who may limit or refuse us."""

    def __init__(self, flow: Flow, item: Item, name: str, policy: Breaker) -> None:
        self._flow = flow
        self._item = item
        self._name = name
        self._policy = policy
        self._entry: Entry | None = None
        self._lock = threading.Lock()
        self._gone = False

    def __enter__(self) -> Self:
        self._entry = self._flow.pass_in(self._item, self._name)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._entry is not None:
            entry, self._entry = self._entry, None
            self._flow.pass_out(self._name, entry, self._policy, error)

    def _enter_unless_gone(self) -> None:
        entry = self._flow.pass_in(self._item, self._name)
        with self._lock:
            if not self._gone:
                self._entry = entry
                return
        self._flow.pass_out(self._name, entry, self._policy, GeneratorExit())  # nobody is there any more

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._flow.entering, self._enter_unless_gone)
        except asyncio.CancelledError as error:
            with self._lock:
                self._gone = True
            if self._entry is not None:
                await self.__aexit__(None, error, None)
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._flow.leaving, self.__exit__, kind, error, trace)
