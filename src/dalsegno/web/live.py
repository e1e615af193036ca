"""The live stream: one look at the database a few times a second, told to everyone who listens.

Everything but the look itself happens on the server's event loop, so nothing here needs a lock. A subscriber keeps
what it has not sent yet, once per topic; when even that becomes too much it forgets all of it and says `resync`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dalsegno.doctor.rounds import Rounds
from dalsegno.errors import DalSegnoError
from dalsegno.insight.events import Cursor
from dalsegno.insight.pulse import Marks, written
from dalsegno.model.records import EventRecord
from dalsegno.store.store import Store
from dalsegno.web.answers import without
from dalsegno.web.look import PAGE, Look, Question, Reader
from dalsegno.web.pace import Pace
from dalsegno.web.subscriber import Subscriber, message
from dalsegno.web.topics import changed_by, topics_of

logger = logging.getLogger("dalsegno.web")

TICK = 0.25
"""Seconds between two looks while somebody acts or jobs change; also how long changes of a topic are gathered."""
CALM = 0.5
"""The same while items only flow: of those people are told every two seconds (see `pace`)."""
LIVELY = 10.0
"""Seconds after the last act or change of a job that are not calm."""
SLOW = 1.0
BEAT = 15.0
STALE = 5.0
"""Seconds without a look after which the page should say so."""
IDLE = 5.0
"""Seconds for which it goes on looking when nobody listens: a page that is left for the next one comes back."""
RETRY = 2000
COMMENT = ": still here\n"


class Live:
    """Looks while somebody listens."""

    def __init__(
        self, store: Store, secrets: Sequence[str], env_file: Path | None = None, rounds: Rounds | None = None
    ) -> None:
        self.reader = Reader(store, env_file, rounds)
        self._clock = store.clock
        self._secrets = secrets
        self._subscribers: set[Subscriber] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()
        self._closed = False
        self._forget()

    def _forget(self) -> None:
        self.cursor: Cursor | None = None
        """Up to where all was told; None: nobody has looked yet."""
        self._end: Cursor | None = None
        """How far the log was looked through."""
        self._seen = Cursor()
        self._full: Cursor | None = None
        """How far the events themselves were told; None: nobody wants them."""
        self._marks: Marks = {}
        self._pace = Pace()
        self._looked_slowly = 0.0
        self._stale_since: float | None = None
        self._last_look = self._last_act = time.monotonic()
        self._changes = 0

    # --- subscribers --------------------------------------------------------------------------

    @property
    def listening(self) -> int:
        return len(self._subscribers)

    @property
    def told(self) -> int | None:
        """Counts what was told; None while nobody looks."""
        return self._changes if self._task is not None and self._subscribers and self._stale_since is None else None

    @property
    def closed(self) -> bool:
        return self._closed

    def join(self, subscriber: Subscriber) -> None:
        """From now on it is told of everything. A full one is told what comes after its `after`."""
        self._subscribers.add(subscriber)
        if self._closed:
            subscriber.end()
            return
        if subscriber.full and self._full is None:
            self._full = subscriber.after
        self._loop = asyncio.get_running_loop()
        if self._task is None or self._task.done():
            self._forget()
            self._full = subscriber.after if subscriber.full else None
            self._looked = asyncio.Event()
            self._task = self._loop.create_task(self._look_forever())
            self._watch = self._loop.create_task(self._watch_forever())
        if self._stale_since is not None:
            subscriber.offer("stale", self._stale())

    async def ready(self) -> Cursor | None:
        """Where the stream begins, once that is known; None while the database does not say."""
        try:
            async with asyncio.timeout(2.0):
                await self._looked.wait()
        except TimeoutError:
            return None
        return self.cursor

    def leave(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)
        if not any(each.full for each in self._subscribers):
            self._full = None

    def ahead(self, cursor: Cursor) -> bool:
        """Whether events after `cursor` have been told to the others already: who joins must read them first."""
        return self._full is not None and self._full > cursor

    def close(self) -> None:
        """End all streams, from any thread."""
        self._closed = True
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._end_all)
        self.reader.close()

    def _end_all(self) -> None:
        for subscriber in self._subscribers:
            subscriber.end()
        for task in (self._task, self._watch):
            if task is not None:
                task.cancel()

    # --- the look -----------------------------------------------------------------------------

    async def _look_forever(self) -> None:
        idle_since: float | None = None
        while not self._closed:
            began = time.monotonic()
            idle_since = None if self._subscribers else idle_since or began
            if idle_since is not None and began - idle_since > IDLE:
                break
            wait = TICK if began - self._last_act < LIVELY else CALM
            try:
                found = await self.reader.look(self._question())
            except DalSegnoError as error:
                self._say_stale(error)
                wait = SLOW
            except Exception:
                logger.exception("the live stream could not look")
                self._say_stale(None)
                wait = SLOW
            else:
                self._tell(found)
                if len(found.events) == PAGE:
                    wait = 0.02  # there is more, and whoever reads it is behind
            await asyncio.sleep(max(0.01, wait - (time.monotonic() - began)))
        self._task = None

    def _question(self) -> Question:
        now = time.monotonic()
        slowly = now - self._looked_slowly >= SLOW
        if slowly:
            self._looked_slowly = now
        items = frozenset(number for each in self._subscribers for number in each.items())
        return Question(self._end, self._seen, self._full, items, slowly)

    def _tell(self, look: Look) -> None:
        now = time.monotonic()
        self._last_look = now
        found = look.happened
        replaced = look.after is not None and found.end < look.after
        self._end, self._seen = found.end, found.head
        self._looked.set()
        hard, soft = changed_by(() if found.too_many else found.kinds)
        hard |= {f"item:{each}" for each in found.items}
        if look.after is not None:
            differing = self._differing(look.marks)
            if hard or "commands" in differing:
                self._last_act = now
            soft |= differing & {"logs"}
            hard |= differing - {"logs"}
        self._marks |= look.marks
        ready = self._pace.ready(hard, soft - hard, look.after or found.end, now)
        if replaced:
            self._pace = Pace()
        self.cursor = self._pace.complete(found.end)
        if self._stale_since is not None:
            self._stale_since = None
            self._offer("fresh", message("fresh", self._data(), self.cursor))
        if replaced or found.too_many:
            self._lose("replaced" if replaced else "too_many", also_full=replaced)
        for topic in ready:
            self._offer_topic(topic)
        self._changes += bool(ready or replaced or found.too_many)
        if look.full == self._full:  # or somebody has joined meanwhile who is not as far
            self._tell_events(look.events)
        if self._full is None and any(each.full for each in self._subscribers):
            self._full = found.end

    def _lose(self, reason: str, *, also_full: bool) -> None:
        for subscriber in self._subscribers:
            if also_full or not subscriber.full:
                subscriber.lose(reason)
        if also_full and self._full is not None:
            self._full = self._end

    def _differing(self, marks: Marks) -> set[str]:
        names = {name for name, mark in marks.items() if name in self._marks and self._marks[name] != mark}
        return {"config" if name == "file" else name for name in names}

    def _offer_topic(self, topic: str) -> None:
        text = self.changed(topic)
        for subscriber in self._subscribers:
            if not subscriber.full and subscriber.wants(topic):
                subscriber.offer(topic, text)

    def _tell_events(self, events: list[EventRecord]) -> None:
        if self._full is None or not events:
            return
        takers = [each for each in self._subscribers if each.full]
        for event in events:
            place = Cursor(event.tx, event.id)
            topics = topics_of(event)
            text = self.event(event)
            for subscriber in takers:
                if (subscriber.after is None or place > subscriber.after) and subscriber.concerned(topics):
                    subscriber.offer(written(place), text)
        self._full = Cursor(events[-1].tx, events[-1].id)

    # --- messages -----------------------------------------------------------------------------

    def event(self, event: EventRecord) -> bytes:
        data = without(self._secrets, event.model_dump(mode="json"))
        return message("event", data, Cursor(event.tx, event.id))

    def hello(self, cursor: Cursor | None) -> bytes:
        return message("hello", self._data(cursor), cursor, more=f"retry: {RETRY}\n")

    def changed(self, topic: str) -> bytes:
        return message(topic, {"topic": topic, **self._data()}, self.cursor)

    def resync(self, subscriber: Subscriber, reason: str) -> bytes:
        """Said when it is sent: what came in between is covered by it, and is not told again."""
        cursor = subscriber.after = self._end
        return message("resync", {"reason": reason, **self._data(cursor)}, cursor)

    def _data(self, cursor: Cursor | None = None) -> dict[str, Any]:
        place = cursor or self.cursor
        return {"at": self._clock.now().isoformat(), "id": None if place is None else written(place)}

    def _stale(self) -> bytes:
        since = 0.0 if self._stale_since is None else time.monotonic() - self._stale_since
        return message("stale", {**self._data(), "seconds": round(since, 1)})

    def _offer(self, key: str, text: bytes) -> None:
        for subscriber in self._subscribers:
            subscriber.offer(key, text)

    def _say_stale(self, error: DalSegnoError | None) -> None:
        self._looked.set()
        if self._stale_since is None:
            self._stale_since = self._last_look
            if error is not None:
                logger.warning("the live stream waits: %s", error)
            self._offer("stale", self._stale())

    async def _watch_forever(self) -> None:
        """Says that it lives, and that it is late: also while a look hangs."""
        beaten = time.monotonic()
        while not self._closed and self._task is not None:
            await asyncio.sleep(SLOW)
            now = time.monotonic()
            if now - self._last_look > STALE:
                self._say_stale(None)
            if now - beaten >= BEAT:
                beaten = now
                for subscriber in self._subscribers:
                    cursor = None if subscriber.full else self.cursor
                    beat = message("beat", self._data(), cursor, more=COMMENT)
                    if self._stale_since is not None:  # kept open, without a word that would pass for news
                        beat = f"{COMMENT}\n".encode()
                    subscriber.offer("beat", beat)
