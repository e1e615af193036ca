"""Batches: up to so many items of one stage share a call, yet each keeps its own state.

A call that raises is repeated in halves until the item that breaks it stands alone: only that one has failed. For a
batch of N this takes at most 2N - 1 calls, when every single item fails.
"""

from __future__ import annotations

import logging
import reprlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dalsegno.engine.executor import AHEAD, MOST_AHEAD, SUSPECT, Pool, current_item, failure
from dalsegno.engine.item import Item
from dalsegno.model.outcome import Done, Fail, Outcome, Release, Retry, Skip, outcome_of

logger = logging.getLogger("dalsegno.engine")

MISSING = "missing_from_batch"
MOST_SUSPECTS = 10_000
"""Items remembered with how much company they may have; the oldest are forgotten first, at the cost of some calls."""

_CANCELED = Release("canceled before it was called")
"""Also where the lease is lost: then nobody hears it."""


class BatchPool(Pool):
    """The workers of a service that takes lists of items.

    Items wait in `waiting` until their batch goes, so that a pause can still take them back; also the halves of a
    batch that failed. Everything that waits is guarded by `_ready`, everything that runs by `_ending`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._calls: dict[str, list[Item]] = {}
        self._halves: deque[list[Item]] = deque()
        self._gathering: set[int] = set()
        self._company: dict[int, int] = {}

    # --- what the claimer asks ----------------------------------------------------------------

    def appetite(self) -> int:
        """How many more items to claim now, so that what is here makes whole batches."""
        workers, size = self.service.workers, self.service.batch_size
        ahead = min(MOST_AHEAD, int(workers * AHEAD / max(self._mean, 1e-6)))
        target = (workers + -(-ahead // size)) * size
        self._low = max(1, target // 2)
        self._asked = False
        with self._ready:
            held = len(self.waiting) + sum(map(len, self._halves))
        return max(0, target - held - len(self.in_work()))

    def feed(self, items: Iterable[Item]) -> None:
        with self._ready:
            self.waiting.extend(items)
            self._ready.notify_all()

    def take_back(self, unwanted: Callable[[Item], bool]) -> list[Item]:
        with self._ready:
            halves = [item for half in self._halves for item in half]
            back = [item for item in (*halves, *self.waiting) if unwanted(item)]
            if back:
                gone = set(map(id, back))
                self.waiting = deque(item for item in self.waiting if id(item) not in gone)
                kept = ([item for item in half if id(item) not in gone] for half in self._halves)
                self._halves = deque(half for half in kept if half)
                self._ready.notify_all()  # who gathers these must not wait for company
        return back

    # --- what the settler asks ----------------------------------------------------------------

    def in_work(self) -> list[tuple[str, Item]]:
        return [(worker, item) for worker, call in list(self._calls.items()) for item in list(call)]

    def replace(self, worker: str, item: Item) -> bool:
        """As in any pool, item by item: with the first one the worker loses the whole call."""
        with self._ending:
            call = self._calls.get(worker, [])
            if item not in call:
                return False
            lost_now = self.running.pop(worker, None) is not None
            if lost_now:
                self._keep_apart_late(call)
            call.remove(item)
            if not call:
                del self._calls[worker]
        if lost_now:
            self._threads.pop(worker, None)
            self._hire()
        return True

    def abandon(self) -> list[Item]:
        with self._ending:
            left = [item for _, item in self.in_work()]
            self._calls.clear()
            self.running.clear()
        return left

    # --- workers ------------------------------------------------------------------------------

    def _work(self, name: str) -> None:
        while name in self._threads and (batch := self._gather()):
            alone = _dangerous(batch[0])
            if alone and not self._wait_alone():
                self._settle(batch[0], Release("shutting down"))
                break
            start = self._clock.monotonic()
            self._take(name, batch)
            outcomes = self._outcomes(batch)
            with self._ending:
                ours = self.running.get(name) is batch[0]
                if ours:
                    del self.running[name], self._calls[name]
            if ours:
                for item in batch:
                    if (outcome := outcomes.get(item.id)) is not None:
                        self._finish(item, outcome, len(batch))
                self._split([item for item in batch if item.id not in outcomes])
            if alone:
                self._wait_written(batch[0])
                self._alone.release()
            if not ours:
                return  # timed out and replaced: the settler has spoken for these items
            spent = (self._clock.monotonic() - start) / len(batch)
            self._mean += (1 - 0.95 ** len(batch)) * (spent - self._mean)
            if not self._asked and len(self.waiting) <= self._low:
                self._asked = True
                self._hungry()
        self._threads.pop(name, None)

    def _take(self, name: str, batch: list[Item]) -> None:
        now = self._clock.now()  # of this call: the halves of a failed one have their whole timeout again
        for item in batch:
            item.worker = name
            item.started_at = now
        with self._ending:
            self.running[name] = batch[0]
            self._calls[name] = list(batch)

    def _finish(self, item: Item, outcome: Outcome, company: int) -> None:
        last = item.attempt + 1 >= item.stage.max_attempts
        if isinstance(outcome, Done | Skip | Fail) or (isinstance(outcome, Retry) and last):
            self._company.pop(item.id, None)
        elif isinstance(outcome, Retry) and outcome.code == MISSING:
            self._keep_apart(item, _half(company))  # an answer that was cut off is shorter for fewer
        self._settle(item, outcome)
        self.processed += 1
        if isinstance(outcome, Retry):
            self.errors += 1

    def _split(self, items: list[Item]) -> None:
        """Each half is a call of its own, by whichever worker is free."""
        if not items:
            return
        middle = _half(len(items))
        with self._ready:
            if not self._stopping:
                self._halves.extendleft(half for half in (items[middle:], items[:middle]) if half)
                self._ready.notify_all()
                return
        for item in items:
            self._settle(item, Release("shutting down"))

    # --- who goes together --------------------------------------------------------------------

    def _gather(self) -> list[Item]:
        """The items of the next call; none when the pool stops."""
        with self._ready:
            while not self._stopping:
                if self._halves:
                    return self._halves.popleft()
                first = next((item for item in self.waiting if item.stage.id not in self._gathering), None)
                if first is None:
                    self._hungry()
                    self._ready.wait()
                elif batch := self._linger(first.stage.id):
                    return batch
        return []

    def _linger(self, stage_id: int) -> list[Item]:
        """A full batch of this stage at once, or what has come of it in time. Meanwhile others leave the stage alone.

        Real time, whatever the clock says: a wait cannot be moved by hand.
        """
        until = time.monotonic() + self.service.linger
        asked = False
        self._gathering.add(stage_id)
        try:
            while not self._stopping:
                batch, full = self._pick(stage_id)
                left = until - time.monotonic()
                if full or left <= 0 or not batch:
                    for item in batch:
                        self.waiting.remove(item)
                    return batch
                if not asked:
                    asked = True
                    self._hungry()
                self._ready.wait(left)
        finally:
            self._gathering.discard(stage_id)
            if self.waiting:
                self._ready.notify_all()
        return []

    def _pick(self, stage_id: int) -> tuple[list[Item], bool]:
        """The first items of the stage that may go together, and whether that is all that may."""
        batch: list[Item] = []
        most = self.service.batch_size
        for item in self.waiting:
            if item.stage.id == stage_id and (fits := min(most, self._most_company(item))) > len(batch):
                batch.append(item)
                most = fits
                if len(batch) >= most:
                    return batch, True
        return batch, False

    def _most_company(self, item: Item) -> int:
        return 1 if _dangerous(item) else self._company.get(item.id, self.service.batch_size)

    def _keep_apart(self, item: Item, most: int) -> None:
        """Should it come back (no permit for its half), it must not meet the same company again for ever."""
        self._company[item.id] = min(most, self._company.pop(item.id, most))
        if len(self._company) > MOST_SUSPECTS:
            for oldest in list(self._company)[: MOST_SUSPECTS // 10]:
                self._company.pop(oldest, None)

    def _keep_apart_late(self, call: list[Item]) -> None:
        """A timeout costs each an attempt, so the last attempt is made alone: one that hangs takes nobody along."""
        for item in call:
            left = item.stage.max_attempts - item.attempt - 1
            if left > 0:
                self._keep_apart(item, _half(len(call)) if left > 1 else 1)
            else:
                self._company.pop(item.id, None)

    # --- one call -----------------------------------------------------------------------------

    def _outcomes(self, batch: list[Item]) -> dict[int, Outcome]:
        """What becomes of each item, by id. One that is not named there is to be called again in a smaller batch."""
        refused = self._enter(batch)
        if refused is not None:
            return {item.id: refused for item in batch}
        wanted = [item for item in batch if not item.cancelled]
        token = current_item.set(batch[0])
        try:
            outcomes = self._ask(wanted) if wanted else {}
        except BaseException as error:  # even SystemExit: a service must not take the worker with it
            return self._raised(batch, error)
        finally:
            current_item.reset(token)
        said = self._leave(batch, None)
        return {item.id: said or outcomes.get(item.id, _CANCELED) for item in batch}

    def _ask(self, batch: list[Item]) -> dict[int, Outcome]:
        if self.service.is_async:
            returned = self._loop.run(self.service.handler, batch, batch)
        else:
            returned = self.service.handler(batch)
        return answers(self.service.name, batch, returned)

    def _raised(self, batch: list[Item], error: BaseException) -> dict[int, Outcome]:
        said = self._leave(batch, error)
        if said is None:
            for item in batch:
                self._keep_apart(item, _half(len(batch)))
            if len(batch) > 1:
                what = type(error).__name__
                logger.info("a batch of %d of %s failed (%s); it is split", len(batch), self.service.name, what)
                return {item.id: _CANCELED for item in batch if item.cancelled}
        said = said or failure(error)
        return {item.id: said for item in batch}


def _half(count: int) -> int:
    return (count + 1) // 2


def _dangerous(item: Item) -> bool:
    """It may be what kills the process, and the next time may be its last: it must not take others along."""
    return item.claimed.interruptions >= max(1, min(SUSPECT, item.stage.max_interruptions - 1))


# --- what a batch service returns ---------------------------------------------------------------


def answers(service: str, batch: Sequence[Item], returned: Any) -> dict[int, Outcome]:
    """What a service said of each item of its batch: matched by id, never by position.

    None, or an outcome without a result, is said of all of them.
    """
    if returned is None or (isinstance(returned, Outcome) and getattr(returned, "result", None) is None):
        return {item.id: outcome_of(returned) for item in batch}
    wanted = {item.id for item in batch}
    found: dict[int, Outcome] = {}
    strangers: list[str] = []
    for key, value in _pairs(service, returned):
        number = _id_of(key)
        if number in wanted:
            found[number] = outcome_of(value)
        else:
            strangers.append(reprlib.repr(key))
    if strangers:
        more = f" and {len(strangers) - 10} more" if len(strangers) > 10 else ""
        logger.warning(
            "%s answered for items that are not in its batch: %s%s", service, ", ".join(strangers[:10]), more
        )
    text = f"{service} answered for {len(found)} of the {len(batch)} items of its batch, and this one is not among them"
    return {item.id: found.get(item.id) or Retry(text, code=MISSING) for item in batch}


def _pairs(service: str, returned: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(returned, Mapping):
        yield from returned.items()
        return
    for pair in returned if isinstance(returned, Iterable) else [returned]:
        match pair:
            case [Item() | int() | str() as key, value]:
                yield key, value
            case _:
                raise TypeError(
                    f'the batch service "{service}" returned {type(returned).__name__} {reprlib.repr(returned)}, not '
                    "a mapping from each item's id to its value or outcome, such as {item.id: value for item in items}."
                    " Pairs of item (or id) and value will do, and None says that all are done; an answer is never "
                    "matched by its position."
                )


def _id_of(key: Any) -> int | None:
    """Models answer in JSON, where every key is text."""
    if isinstance(key, Item):
        return key.id
    if isinstance(key, str):
        text = key.strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None
    return key if isinstance(key, int) and not isinstance(key, bool) else None
