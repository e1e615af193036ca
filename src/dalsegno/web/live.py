"""The live stream: one look at the database four times a second, told to everyone who listens.

Everything but the look itself happens on the server's event loop, so nothing here needs a lock. A subscriber keeps
what it has not sent yet, once per topic; when even that becomes too much it forgets all of it and says `resync`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from dalsegno.errors import DalSegnoError
from dalsegno.insight.events import Cursor
from dalsegno.insight.pulse import (
    Fingerprints,
    Happened,
    between,
    happened,
    known,
    position,
    quick_marks,
    slow_marks,
    written,
)
from dalsegno.model.records import EventRecord
from dalsegno.store.store import Store, Tx
from dalsegno.web.answers import without
from dalsegno.web.topics import changed_by

T = TypeVar("T")
logger = logging.getLogger("dalsegno.web")

TICK = 0.25
"""Seconds between two looks; also how long changes of a topic are gathered."""
SOFT = {"playlists": 5.0, "logs": 1.0}
"""Seconds between two tellings of what changes with every item; 2 where nothing is said."""
SLOW = 1.0
BEAT = 15.0
STALE = 5.0
"""Seconds without a look after which the page should say so."""
IDLE = 5.0
"""Seconds for which it goes on looking when nobody listens: a page that is left for the next one comes back."""
PAGE = 500
KEPT = 1000
"""Messages a subscriber may be behind."""
RETRY = 2000
ALWAYS = frozenset({"stale", "fresh", "beat"})


def message(name: str, data: dict[str, Any], cursor: Cursor | None = None, *, more: str = "") -> bytes:
    """One message as it goes over the wire. JSON has no line breaks of its own."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    place = "" if cursor is None else f"id: {written(cursor)}\n"
    return f"{more}event: {name}\n{place}data: {text}\n\n".encode("utf-8", "replace")


@dataclass(slots=True, eq=False)
class Subscriber:
    """One open stream."""

    topics: frozenset[str] | None
    """None: all, except those of single items."""
    full: bool = False
    """It gets the events themselves."""
    after: Cursor = field(default_factory=Cursor)
    """Events up to here it has had."""
    ended: bool = False
    _waiting: dict[str, bytes] = field(default_factory=dict)
    _lost: str | None = None
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def wants(self, topic: str) -> bool:
        return not topic.startswith("item:") if self.topics is None else topic in self.topics

    def offer(self, key: str, text: bytes) -> None:
        """`key` is what a later message about the same makes this one needless by."""
        if self._lost is not None and key not in ALWAYS:
            return  # it is about to say that everything may have changed
        self._waiting.pop(key, None)
        self._waiting[key] = text
        if len(self._waiting) > KEPT:
            self.lose("overflow")
        self._wake.set()

    def lose(self, reason: str) -> None:
        """Whatever was waiting is forgotten: one message says so."""
        self._waiting = {key: text for key, text in self._waiting.items() if key in ALWAYS}
        self._lost = reason
        self._wake.set()

    def end(self) -> None:
        self.ended = True
        self._wake.set()

    async def next(self) -> tuple[str | None, bytes]:
        """Why some were lost, if they were, and what there is to send."""
        await self._wake.wait()
        self._wake.clear()
        lost, text = self._lost, b"".join(self._waiting.values())
        self._lost = None
        self._waiting.clear()
        return lost, text


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look found."""

    first: bool
    happened: Happened
    events: list[EventRecord]
    marks: Fingerprints


class Live:
    """Looks while somebody listens."""

    def __init__(self, store: Store, secrets: Sequence[str], env_file: Path | None = None) -> None:
        self._store = store
        self._secrets = secrets
        self._env_file = env_file
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="dalsegno-live")
        self._subscribers: set[Subscriber] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()
        self._closed = False
        self._forget()

    def _forget(self) -> None:
        self.cursor: Cursor | None = None
        """How far the log was looked through; None: not at all yet."""
        self._seen = Cursor()
        self._full: Cursor | None = None
        """How far the events themselves were told; None: nobody wants them."""
        self._marks: Fingerprints = {}
        self._due: dict[str, float] = {}
        self._told: dict[str, float] = {}
        self._looked_slowly = 0.0
        self._stale_since: float | None = None
        self._last_look = time.monotonic()
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
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _end_all(self) -> None:
        for subscriber in self._subscribers:
            subscriber.end()
        for task in (self._task, self._watch):
            if task is not None:
                task.cancel()

    # --- reading ------------------------------------------------------------------------------

    async def read(self, work: Callable[[Tx], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._store.read, work)

    async def missed(self, after: Cursor, topics: frozenset[str] | None) -> set[str] | None:
        """The topics that changed since `after`; None: that cannot be told, look at everything again."""

        def work(tx: Tx) -> Happened | None:
            if not known(tx, after):
                return None
            found = happened(tx, after, after, _items(topics))
            return None if found.too_many or found.end < after else found

        try:
            found = await self.read(work)
        except DalSegnoError:
            return None
        if found is None:
            return None
        changed = changed_by(found.kinds)
        names = changed.hard | changed.soft | {f"item:{each}" for each in found.items}
        # What writes no event may have changed too, and nobody remembers.
        return names | {"workers", "limits", "breakers", "commands", "logs", "config", "workflows"} if names else names

    async def replay(self, after: Cursor) -> list[EventRecord] | None:
        """The next page of events; None: this reader cannot go on from where it was."""
        try:
            return await self.read(lambda tx: between(tx, after, limit=PAGE) if known(tx, after) else None)
        except DalSegnoError:
            return None

    async def position(self) -> Cursor:
        try:
            return await self.read(position)
        except DalSegnoError:
            return self.cursor or Cursor()

    # --- the look -----------------------------------------------------------------------------

    async def _look_forever(self) -> None:
        idle_since: float | None = None
        while not self._closed:
            began = time.monotonic()
            idle_since = None if self._subscribers else idle_since or began
            if idle_since is not None and began - idle_since > IDLE:
                break
            wait = TICK
            try:
                found = await self.read(self._questions())
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

    def _questions(self) -> Callable[[Tx], _Look]:
        cursor, seen, full = self.cursor, self._seen, self._full
        items = {number for each in self._subscribers for number in _items(each.topics)}
        now = time.monotonic()
        slowly = now - self._looked_slowly >= SLOW
        if slowly:
            self._looked_slowly = now

        def look(tx: Tx) -> _Look:
            if cursor is None:
                end = position(tx)
                found = Happened(end, end, [], [], False)
            else:
                found = happened(tx, cursor, seen, items)
            told = between(tx, full, found.end, PAGE) if full is not None else []
            marks = quick_marks(tx)
            if slowly:
                marks |= slow_marks(tx)
                marks["file"] = _state_of(self._env_file)
            return _Look(cursor is None, found, told, marks)

        return look

    def _tell(self, look: _Look) -> None:
        now = time.monotonic()
        self._last_look = now
        found, first = look.happened, look.first
        replaced = self.cursor is not None and found.end < self.cursor
        self.cursor, self._seen = found.end, found.head
        self._looked.set()
        if self._stale_since is not None:
            self._stale_since = None
            self._offer("fresh", message("fresh", self._data(), self.cursor))
        if replaced or found.too_many:
            reason = "replaced" if replaced else "too_many"
            for subscriber in self._subscribers:
                if replaced or not subscriber.full:
                    subscriber.lose(reason)
            if replaced and self._full is not None:
                self._full = found.end
        hard, soft = changed_by(() if found.too_many else found.kinds)
        hard |= {f"item:{each}" for each in found.items}
        if not first:
            hard |= self._differing(look.marks)
        self._marks |= look.marks
        if "logs" in hard:
            hard.remove("logs")
            soft.add("logs")
        for topic in soft:
            pace = SOFT.get(topic, 2.0)
            self._due.setdefault(topic, self._told.get(topic, now - pace) + pace)
        ready = {topic for topic, due in self._due.items() if due <= now}
        for topic in sorted(hard | ready):
            self._due.pop(topic, None)
            self._told[topic] = now
            self._offer_topic(topic)
        self._changes += bool(hard or ready or replaced or found.too_many)
        if len(self._told) > KEPT:
            self._told = {topic: at for topic, at in self._told.items() if now - at < 10}
        self._tell_events(look.events)

    def _differing(self, marks: Fingerprints) -> set[str]:
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
                if place > subscriber.after and concerns(subscriber, topics):
                    subscriber.offer(written(place), text)
        self._full = max(self._full, Cursor(events[-1].tx, events[-1].id))

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
        cursor = subscriber.after = self.cursor or Cursor()
        return message("resync", {"reason": reason, **self._data(cursor)}, cursor)

    def _data(self, cursor: Cursor | None = None) -> dict[str, Any]:
        place = cursor or self.cursor
        return {"at": self._store.clock.now().isoformat(), "id": None if place is None else written(place)}

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
                    beat = message("beat", self._data(), cursor, more=": still here\n")
                    subscriber.offer("beat", beat)


def topics_of(event: EventRecord) -> set[str]:
    changed = changed_by([(event.type, event.job_id)])
    own = set() if event.item_id is None else {f"item:{event.item_id}"}
    return changed.hard | changed.soft | own


def concerns(subscriber: Subscriber, topics: Iterable[str]) -> bool:
    return subscriber.topics is None or not subscriber.topics.isdisjoint(topics)


def _items(topics: frozenset[str] | None) -> set[int]:
    return {int(name[5:]) for name in topics or () if name.startswith("item:")}


def _state_of(file: Path | None) -> tuple[int, ...]:
    try:
        state = None if file is None else file.stat()
    except OSError:
        return (0,)
    return () if state is None else (state.st_mtime_ns, state.st_size, state.st_ino)
