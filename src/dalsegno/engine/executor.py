"""The executor: worker threads that take claimed items, run the service, and hand its outcome to the settler."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dalsegno.clock import Clock
from dalsegno.engine.crowd import LOOK, Crowd
from dalsegno.engine.item import Item
from dalsegno.engine.service import Service
from dalsegno.model.outcome import Done, Outcome, Release, Retry, outcome_of

if TYPE_CHECKING:
    from dalsegno.engine.flow import Flow

logger = logging.getLogger("dalsegno.engine")

current_item: contextvars.ContextVar[Item | None] = contextvars.ContextVar("dalsegno_item", default=None)
"""The item this thread or task works on: what the log bridge files lines under."""

FIRST_GUESS = 0.05
"""Seconds an item is thought to take before the first one has told."""
AHEAD = 0.25
"""Prefetch what the workers can do in this many seconds: short items come in hundreds, long ones one by one."""
MOST_AHEAD = 2000
MOST_FRAMES = 30
LIBRARIES = ("/site-packages/", "/dist-packages/", "<frozen ", f"{Path(os.__file__).parent}/")
QUICK = 0.005
"""Seconds; items that take longer are begun one by one when they come back after a crash."""
SOON = 0.05
"""Those that take less are written down as begun this long before they run: as late as a first delivery is."""
MOST_SOON = 250
TO_SPARE = 10
"""Interruptions that an item must be allowed for it to be written down while it still waits: should the process die
then, it pays with one for a crash that its handler had no part in. Of twenty that is nothing, of three too much."""
SUSPECT = 2
"""Interruptions in a row after which an item may be what kills the process."""


class Pool:
    """The workers of one service in this process, and the items that wait for them."""

    def __init__(
        self,
        service: Service,
        clock: Clock,
        settle: Callable[[Item, Outcome], None],
        begin: Callable[[Sequence[Item], Callable[[], list[Item]]], bool],
        hungry: Callable[[], None],
        loop: AsyncLoop,
        alone: threading.Lock | None = None,
    ) -> None:
        self.service = service
        self.waiting: deque[Item] = deque()
        self.running: dict[str, Item] = {}
        self.processed = 0
        self.errors = 0
        self.flow: Flow | None = None
        self.crowd = Crowd()
        self.guarded = False
        """A limit or a breaker stands before its calls; the claimer finds out."""
        self._clock = clock
        self._settle = settle
        self._begin = begin
        self._hungry = hungry
        self._loop = loop
        self._alone = alone or threading.Lock()
        self._ready = threading.Condition()
        self._ending = threading.Lock()
        self._stopping = False
        self._mean = FIRST_GUESS
        self._threads: dict[str, threading.Thread] = {}
        self._low = 1
        self._asked = False
        self._worker_no = 0

    # --- what the claimer asks ----------------------------------------------------------------

    def appetite(self) -> int:
        """How many more items to claim now."""
        ahead = min(MOST_AHEAD, int(self.service.workers * AHEAD / max(self._mean, 1e-6)))
        target = self.service.workers + ahead
        self._low = max(1, target // 2)
        self._asked = False
        if len(self.waiting) > self._low:  # many at a time, not one by one
            return 0
        return max(0, target - len(self.waiting) - len(self.running))

    def look_again(self) -> None:
        """More may work than before. Whoever waits for that looks by itself."""

    def unentered(self) -> int:
        """Items in hand whose call has not begun: each will want a permit."""
        return len(self.waiting) + sum(not item.begun or item.started_at is None for _, item in self.in_work())

    def feed(self, items: Iterable[Item]) -> None:
        before = len(self.waiting)
        self.waiting.extend(items)
        with self._ready:
            self._ready.notify(len(self.waiting) - before)

    def take_back(self, unwanted: Callable[[Item], bool]) -> list[Item]:
        """Items that wait and shall not begin; they leave the queue."""
        back: list[Item] = []
        for _ in range(len(self.waiting)):
            try:
                item = self.waiting.popleft()
            except IndexError:
                break
            if unwanted(item):
                back.append(item)
            else:
                self.waiting.append(item)
        return back

    # --- workers ------------------------------------------------------------------------------

    def start(self) -> None:
        for _ in range(self.service.workers):
            self._hire()

    def _hire(self) -> None:
        self._worker_no += 1
        name = f"{self.service.name}-{self._worker_no}"
        thread = threading.Thread(target=self._work, args=(name,), name=name, daemon=True)
        self._threads[name] = thread
        thread.start()

    def worker_names(self) -> list[str]:
        return list(self._threads)

    def replace(self, worker: str, item: Item) -> bool:
        """Its handler does not come back: leave that thread to itself and hire another.

        False: it came back at this very moment, and may be at its next item already.
        """
        with self._ending:
            if self.running.get(worker) is not item:
                return False
            del self.running[worker]
        self._threads.pop(worker, None)
        self._hire()
        return True

    def stop(self) -> None:
        with self._ready:
            self._stopping = True
            self._ready.notify_all()

    def idle(self) -> bool:
        return not self.running

    def in_work(self) -> list[tuple[str, Item]]:
        """Every item whose handler runs now, with its worker: what can begin, progress and time out."""
        return list(self.running.items())

    def phases(self) -> list[dict[str, Any]]:
        """How the pools of a service made of phases stand; empty for all others."""
        return []

    def abandon(self) -> list[Item]:
        """Disown what still runs, for the end: whatever its handlers say from now on does not count."""
        with self._ending:
            left = list(self.running.values())
            self.running.clear()
        return left

    def _next(self) -> Item | None:
        while len(self.running) >= self.crowd.limit and not self._stopping:
            time.sleep(LOOK)
        try:
            return self.waiting.popleft()
        except IndexError:
            pass
        self._hungry()
        with self._ready:
            while not self._stopping:
                try:
                    return self.waiting.popleft()
                except IndexError:
                    self._ready.wait()
        return None

    def _work(self, name: str) -> None:
        clock, settle, running = self._clock, self._settle, self.running
        while name in self._threads:
            item = self._next()
            if item is None:
                break
            item.worker = name
            suspect = item.claimed.interruptions >= SUSPECT
            if suspect and not self._wait_alone():
                settle(item, Release("shutting down"))
                break
            running[name] = item
            item.started_at = clock.now()
            start = clock.monotonic()
            # Most items are at their first delivery and meet no limit: for them there is nothing to do before.
            plain = item.claimed.lease == 1 and not self.guarded
            outcome = None
            if not plain:
                outcome = self._enter([item])
                if not self.guarded:
                    start = clock.monotonic()  # waiting to be written down says nothing about the service
            outcome = outcome or self._attempt(item)
            with self._ending:
                ours = running.get(name) is item
                if ours:
                    del running[name]
            if ours:
                settle(item, outcome)
            if suspect:
                self._wait_written(item)
                self._alone.release()
            if not ours:
                return  # timed out and replaced: the settler has spoken for this item
            self.processed += 1
            if isinstance(outcome, Retry):
                self.errors += 1
            self._mean += 0.05 * (clock.monotonic() - start - self._mean)
            if not self._asked and len(self.waiting) <= self._low:
                self._asked = True
                self._hungry()
        self._threads.pop(name, None)

    def _wait_alone(self) -> bool:
        """Items that were interrupted again and again run one at a time: the one that kills the process is then found
        without taking the others along. False: the pool was stopped meanwhile."""
        while not self._alone.acquire(timeout=0.1):
            if self._stopping:
                return False
        return True

    def _wait_written(self, item: Item) -> None:
        """The next suspect may kill us: what became of this one must be safe by then, or that death would count."""
        while not item.settled and not self._stopping:
            time.sleep(0.005)

    def _enter(self, items: Sequence[Item]) -> Outcome | None:
        """Before a call with these items; an outcome means that they do not run now.

        A first delivery begins lazily; one that came back is written down before its handler may crash us.
        """
        try:
            if self.flow is not None and self.guarded:
                return self.flow.enter(self.service, items)
            again = [item for item in items if item.claimed.lease > 1]
            if again and not self._begin(again, self._soon) and again == items:
                return Done()  # the leases are lost: whatever we say is refused
        except Exception as error:
            return Release(f"could not be begun: {type(error).__name__}")
        return None

    def _soon(self) -> list[Item]:
        """What waits, will run in a moment and is to be written down before: in one commit instead of one for each.

        Should the process die again, each of them counts as interrupted although it only waited: it has enough
        `TO_SPARE` for once, and what was interrupted before is not among them.
        """
        if self._mean > QUICK:
            return []
        soon = []
        for place in range(min(MOST_SOON, int(self.service.workers * SOON / max(self._mean, 1e-6)))):
            try:
                item = self.waiting[place]
            except IndexError:
                break
            again = item.claimed.lease > 1 and not item.begun
            if again and item.claimed.interruptions == 0 and item.stage.max_interruptions >= TO_SPARE:
                soon.append(item)
        return soon

    def _leave(self, items: Sequence[Item], error: BaseException | None) -> Outcome | None:
        """After the call; an outcome here is what becomes of all of them instead of what the service said."""
        if self.flow is None or (error is None and items[0].entry is None):
            return None
        return self.flow.leave(self.service, items, error)

    def _withdraw(self, items: Sequence[Item]) -> None:
        """Their call was let in and ends without having come to anything."""
        if self.flow is not None and items[0].entry is not None:
            self.flow.withdraw(items)

    def give_up_on(self, item: Item) -> None:
        """It took too long, and its handler may never come back."""
        if self.flow is not None and item.entry is not None:
            self.flow.timed_out(self.service, item)

    def _attempt(self, item: Item) -> Outcome:
        token = current_item.set(item)
        try:
            returned = self._call(item)
        except BaseException as error:  # even SystemExit: a service must not take the worker with it
            return self._leave([item], error) or failure(error)
        finally:
            current_item.reset(token)
        if item.entry is not None and (instead := self._leave([item], None)) is not None:
            return instead
        return outcome_of(returned)

    def _call(self, item: Item) -> Any:
        if self.service.is_async:
            return self._loop.run(self.service.handler, [item], item)
        return self.service.handler(item)


def failure(error: BaseException) -> Retry:
    """An exception as an outcome: its type is the code, its last lines the message."""
    logger.debug("service raised", exc_info=error)
    text = "".join(traceback.format_exception_only(error)).strip() or type(error).__name__
    where = _own(traceback.extract_tb(error.__traceback__))
    place = f" (at {where.filename}:{where.lineno})" if where else ""
    whole = "".join(traceback.format_exception(error, limit=-MOST_FRAMES))
    return Retry(f"{text}{place}"[:4000], code=type(error).__name__, trace=whole)


def _own(frames: traceback.StackSummary) -> traceback.FrameSummary | None:
    """The innermost frame that is not of a library: that is where somebody can do something about it."""
    own = [frame for frame in frames if not any(part in frame.filename for part in LIBRARIES)]
    return (own or frames)[-1] if frames else None


class AsyncLoop:
    """One event loop for all async services of a process, started when the first needs it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._futures: dict[int, Future[Any]] = {}

    def run(self, handler: Callable[..., Any], items: Sequence[Item], *args: Any) -> Any:
        """Await `handler(*args)` there on behalf of these items."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run_loop, args=(self._loop,), name="dalsegno-async", daemon=True).start()
        future = asyncio.run_coroutine_threadsafe(_call(handler, items[0], args), self._loop)
        self._futures.update((item.id, future) for item in items)
        try:
            return future.result()
        finally:
            for item in items:
                self._futures.pop(item.id, None)

    def cancel(self, item: Item) -> None:
        """Cancel the item's task, if it runs here. Code in a thread can only be asked."""
        future = self._futures.get(item.id)
        if future is not None:
            future.cancel()

    def stop(self) -> None:
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._loop = None


async def _call(handler: Callable[..., Any], item: Item, args: tuple[Any, ...]) -> Any:
    current_item.set(item)
    return await handler(*args)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Until it is stopped; then what still runs is cancelled and the loop's sockets are closed."""
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=1.0))
    finally:
        loop.close()
