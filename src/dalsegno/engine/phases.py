"""Phases: one service as pools joined by bounded hand-off queues, such as resolve → download.

A thread is not tied to a pool. It takes a place, works one phase of one item under that pool's next free name, and
then takes whatever may start, downstream first. So a place that one pool leaves idle serves the other, as in a mixed
pool, and no item waits for a thread of the right kind. `Elastic` says how many places each pool may have, and `Places`
who has them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from dalsegno.engine.elastic import TIMES_WORKERS, Elastic, split
from dalsegno.engine.executor import AHEAD, MOST_AHEAD, SUSPECT, Pool, current_item, failure
from dalsegno.engine.item import Item
from dalsegno.engine.places import Places, Turn
from dalsegno.engine.serial import SerialPool, call_phase
from dalsegno.engine.service import Service
from dalsegno.model.outcome import Done, Outcome, Release, Retry, outcome_of

FIRST_GUESS = 0.25
"""Seconds a phase is thought to take before the first one has told: prefetch little, it may be 80 s."""
LINGER = 10.0
"""Seconds without work after which a thread ends."""


def families(service: Service, others: Iterable[Service]) -> tuple[str, ...]:
    """What the workers of each phase are called: after the phase, unless another service here uses that name."""
    taken = {name for each in others if each.name != service.name for name in (each.name, *_phase_names(each))}
    return tuple(f"{service.name}-{name}" if name in taken else name for name in _phase_names(service))


def _phase_names(service: Service) -> list[str]:
    return [phase.name for phase in service.phases]


class PhasedPool(Pool):
    """The workers of a service made of phases."""

    def __init__(self, *args: Any, most: int | None = None, families: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*args, **more)
        self._phases = self.service.phases
        self._last = len(self._phases) - 1
        workers = self.service.workers
        sizes = split(workers, len(self._phases))
        self.capacities = (0, *(2 * size for size in sizes[1:]))
        """Most answers that wait before each phase."""
        rule = Elastic(workers, most or TIMES_WORKERS * workers, self.capacities[-1] // 2)
        self.places = Places(self._clock, rule, tuple(families) or tuple(_phase_names(self.service)), sizes)
        self._queues: list[deque[tuple[Item, Any]]] = [deque() for _ in self._phases]
        self._idle: list[threading.Event] = []
        self._hands = 0
        self._called: threading.Event | None = None
        self._blocked = 0
        self._heirs = 0

    # --- what the claimer asks ----------------------------------------------------------------

    def appetite(self) -> int:
        """What may begin now, and what the workers can begin in a moment: with resolves of 80 s, next to nothing."""
        with self._ready:
            self._call_another()  # time alone can have shown that more resolvers are needed
            free = self.places.resolvers(sum(self.handed()))
            now = self._clock.monotonic()
            resolve, transfer = self.places.seconds()
            # Before anything is measured, what runs already takes at least as long as it does.
            resolve = resolve or max(FIRST_GUESS, *(pace.age(now) for pace in self.places.paces[:-1]))
            ahead = min(MOST_AHEAD, int(AHEAD * self.places.rule.per_second(resolve, transfer or FIRST_GUESS)))
            self._low = ahead // 2
            self._asked = False
            if len(self.waiting) > max(self._low, free):
                return 0
            return max(0, max(0, free) + ahead - len(self.waiting))

    def feed(self, items: Iterable[Item]) -> None:
        with self._ready:
            self.waiting.extend(items)
            self._call_another()

    def look_again(self) -> None:
        with self._ready:
            self._call_another()

    def take_back(self, unwanted: Callable[[Item], bool]) -> list[Item]:
        """What waits, before the first phase or between two. What is being resolved is released when it comes back,
        even if its job was resumed by then: nothing is handed on after a pause was seen."""
        handed: list[Item] = []
        with self._ready:
            back = super().take_back(unwanted)
            for queue in self._queues[1:]:
                for _ in range(len(queue)):
                    pair = queue.popleft()
                    if unwanted(pair[0]):
                        handed.append(pair[0])
                    else:
                        queue.append(pair)
            for turn in self.places.turns.values():
                turn.unwanted = turn.unwanted or (turn.phase < self._last and unwanted(turn.item))
            self._ready.notify_all()
            self._call_another()
        for item in handed:
            self._withdraw([item])
        return back + handed

    def handed(self) -> list[int]:
        """How many answers wait before each phase."""
        return [len(queue) for queue in self._queues]

    def phases(self) -> list[dict[str, Any]]:
        with self._ready:
            now = self._clock.monotonic()
            places, rule = self.places, self.places.rule
            most = (*[rule.most] * self._last, rule.transfers)
            lines = zip(places.families, places.busy, most, self.handed(), self.capacities, places.paces, strict=True)
            return [
                {"name": name, "busy": busy, "most": limit, "queued": queued, "capacity": capacity,
                 "seconds": float(f"{pace.seconds(now):.3g}")}
                for name, busy, limit, queued, capacity, pace in lines
            ]  # fmt: skip

    # --- workers ------------------------------------------------------------------------------

    def start(self) -> None:
        """Threads come with the first items."""
        self._hungry()

    def worker_names(self) -> list[str]:
        with self._ready:
            return self.places.names()

    def replace(self, worker: str, item: Item) -> bool:
        with self._ready:
            turn = self.places.turns.get(worker)
            if turn is None or turn.item is not item or self.running.get(worker) is not item:
                return False
            self.places.measure(turn, counts=False)
            self._vacate(turn)
            self._hands -= 1
            self._ready.notify_all()
            self._call_another()
        return True

    def stop(self) -> None:
        with self._ready:
            self._stopping = True
            self._ready.notify_all()
            for hand in self._idle:
                hand.set()

    def idle(self) -> bool:
        return not self.running and not any(self.handed())

    def abandon(self) -> list[Item]:
        with self._ready:  # what a thread is about to say is either said before this, or never
            return super().abandon()

    def _live(self, hand: threading.Event) -> None:
        """A thread: turn after turn until there has been nothing to do for a while."""
        while (turn := self._wait_for_turn(hand)) is not None:
            following: Turn | None = turn
            while following is not None:
                outcome, value = self._do(following)
                stays, following = self._end(following, outcome, value)
                if not stays:
                    return

    def _wait_for_turn(self, hand: threading.Event) -> Turn | None:
        while True:
            with self._ready:
                if self._called is hand:
                    self._called = None
                turn = None if self._stopping else self._take()
                if turn is None and self._stopping:
                    self._hands -= 1
                    return None
                if turn is None:
                    hand.clear()
                    self._idle.append(hand)
                hungry = self._is_hungry(turn)
            if hungry:
                self._hungry()
            if turn is not None:
                return turn
            if not hand.wait(LINGER):
                with self._ready:
                    if hand in self._idle:
                        self._idle.remove(hand)
                        self._hands -= 1
                        return None

    # --- one turn -----------------------------------------------------------------------------

    def _do(self, turn: Turn) -> tuple[Outcome | None, Any]:
        """Run one phase: an outcome ends the item, None hands the value on."""
        item, phase = turn.item, self._phases[turn.phase]
        item.worker = turn.name
        if turn.phase == 0:
            if item.claimed.interruptions >= SUSPECT and not self._wait_alone_in(turn):
                return Release("stopped before it began"), None
            item.started_at = self._clock.now()
            refused = self._enter([item])
            if refused is not None:
                return refused, None
        elif item.cancelled:
            self._withdraw([item])
            return Release(f"stopped before {phase.name}"), None
        item.enter(phase.name, transfers=phase.transfers)
        token = current_item.set(item)
        try:
            value = call_phase(self._loop, phase, item, *((turn.value,) if turn.phase else ()))
        except BaseException as error:  # even SystemExit: a service must not take the worker with it
            return self._leave([item], error) or failure(error), None
        finally:
            current_item.reset(token)
        if turn.phase < self._last and not isinstance(value, Outcome):
            return None, value
        return self._leave([item], None) or outcome_of(value), None

    def _wait_alone_in(self, turn: Turn) -> bool:
        while not self._alone.acquire(timeout=0.1):
            if self._stopping or turn.unwanted:
                return False
        with self._ready:
            turn.suspect = turn.started = True
            self.running[turn.name] = turn.item
        return True

    def _end(self, turn: Turn, outcome: Outcome | None, value: Any) -> tuple[bool, Turn | None]:
        """Give up the place, and take the next turn in the same breath. False: this thread was replaced."""
        item = turn.item
        released, following = False, None
        with self._ready:
            counts = outcome is None or (turn.phase == self._last and type(outcome) is Done)
            self.places.measure(turn, counts=counts)
            if outcome is None:
                self._wait_for_room(turn)
                if self._is_unwanted(turn):
                    outcome, released = Release(f"stopped before {self._phases[turn.phase + 1].name}"), True
            here = self._is_here(turn)
            if here:
                self._vacate(turn)
                if outcome is not None:
                    self.processed += 1
                    self.errors += isinstance(outcome, Retry)
                elif turn.suspect:  # it stays alone, so it keeps its thread
                    following = self._begin_turn(turn.phase + 1, item, value)
                    following.suspect = True
                else:
                    queue = self._queues[turn.phase + 1]
                    queue.append((item, value))
                    if len(queue) > self.capacities[turn.phase + 1]:  # never for longer than this breath
                        following = self._start_turn(turn.phase + 1)
                following = following or (None if self._stopping else self._take())
            hungry = here and self._is_hungry(following)
        if (outcome is None and not here) or released:
            self._withdraw([item])
        if here and outcome is not None:
            self._settle(item, outcome)
        if turn.suspect and not (here and outcome is None):
            self._wait_written(item)
            self._alone.release()
        if hungry:
            self._hungry()
        return here, following

    def _is_here(self, turn: Turn) -> bool:
        """Whether it was neither replaced nor, at a stop, spoken for by the engine."""
        if self.places.turns.get(turn.name) is not turn:
            return False
        return not turn.started or self.running.get(turn.name) is turn.item

    def _is_unwanted(self, turn: Turn) -> bool:
        return turn.unwanted or turn.item.cancelled or self._stopping

    def _wait_for_room(self, turn: Turn) -> None:
        """The queue is full and every transfer worker busy: the answer waits in the resolver's hands.

        While a transfer worker may still start there is room, because this very thread goes on with the oldest answer.
        """
        following = turn.phase + 1
        if following < self._last:
            return
        queue, most = self._queues[following], self.capacities[following]
        self._blocked += 1
        self._heirs += turn.suspect
        while (
            self.places.busy[self._last] >= self.places.rule.transfers
            and (turn.suspect or len(queue) >= most)
            and not self._is_unwanted(turn)
            and self._is_here(turn)
        ):
            self._ready.wait()
        self._heirs -= turn.suspect
        self._blocked -= 1

    # --- places; the lock is held --------------------------------------------------------------

    def _may_resolve(self) -> bool:
        return self.places.resolvers(sum(self.handed())) > 0

    def _first_to_start(self) -> int | None:
        """Downstream first: what is resolved is worth more than what is not."""
        if sum(self.places.busy) >= self.crowd.limit:
            return None
        for phase in range(self._last, 0, -1):
            if self._queues[phase] and self.places.may_go_on(phase, self._heirs):
                return phase
        return 0 if self.waiting and self._may_resolve() else None

    def _take(self) -> Turn | None:
        """The next turn, if one may start; and somebody else is called if yet another may."""
        phase = self._first_to_start()
        return None if phase is None else self._start_turn(phase)

    def _start_turn(self, phase: int) -> Turn:
        item, value = self._queues[phase].popleft() if phase else (self.waiting.popleft(), None)
        turn = self._begin_turn(phase, item, value)
        if phase and self._blocked:
            self._ready.notify_all()
        self._call_another()
        return turn

    def _begin_turn(self, phase: int, item: Item, value: Any) -> Turn:
        turn = self.places.take(phase, item, value)
        if phase or item.claimed.interruptions < SUSPECT:
            turn.started = True
            self.running[turn.name] = item
        return turn

    def _vacate(self, turn: Turn) -> None:
        self.places.vacate(turn)
        self.running.pop(turn.name, None)
        if self._blocked:
            self._ready.notify_all()

    def _call_another(self) -> None:
        """Wake or hire a thread if one more turn may start. One at a time, each calls the next: many at once would
        only quarrel over short turns."""
        if self._called is not None or self._stopping or (not self._idle and self._hands >= self.places.rule.places):
            return
        if self._first_to_start() is None:
            return
        if self._idle:
            self._called = self._idle.pop()
            self._called.set()
        else:
            self._called = threading.Event()
            self._hands += 1
            threading.Thread(target=self._live, args=(self._called,), name=self.service.name, daemon=True).start()

    def _is_hungry(self, turn: Turn | None) -> bool:
        """Whether to ask for more after this turn was taken: little is left, or nothing and somebody could begin."""
        if turn is not None and self._asked:
            return False
        if turn is not None and turn.phase == 0:
            hungry = len(self.waiting) <= self._low
        else:
            hungry = not self.waiting and self._may_resolve()
        self._asked = self._asked or hungry
        return hungry


def pool_of_phases(service: Service, others: Iterable[Service], most: int | None) -> Callable[..., Pool]:
    """What to make the service's pool with."""
    if service.workers == 1:
        return SerialPool
    return partial(PhasedPool, most=most, families=families(service, others))
