"""Looking at the log for the live stream: small questions, asked in threads that no page can keep busy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dalsegno.doctor.rounds import Rounds
from dalsegno.errors import DalSegnoError, DatabaseUnavailable
from dalsegno.insight.events import Cursor
from dalsegno.insight.pulse import (
    Happened,
    Marks,
    between,
    known,
    look,
    position,
)
from dalsegno.model.records import EventRecord
from dalsegno.store.store import Store, Tx
from dalsegno.web.subscriber import Subscriber
from dalsegno.web.topics import changed_by

T = TypeVar("T")

PAGE = 500
MARKED = frozenset({"workers", "limits", "breakers", "commands", "logs", "config", "workflows", "health"})
"""Topics that change without an event: nobody remembers when they did."""


@dataclass(frozen=True, slots=True)
class Question:
    after: Cursor | None
    """How far the last look came; None: this is the first."""
    seen: Cursor
    full: Cursor | None
    """After which the events themselves are wanted; None: they are not."""
    items: frozenset[int]
    slowly: bool
    """Also at what changes all the time."""


@dataclass(frozen=True, slots=True)
class Look:
    after: Cursor | None
    happened: Happened
    full: Cursor | None
    events: list[EventRecord]
    """After `full`."""
    marks: Marks


class Reader:
    def __init__(self, store: Store, env_file: Path | None, rounds: Rounds | None = None) -> None:
        self._store = store
        self._env_file = env_file
        self._rounds = rounds
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="dalsegno-live")
        self._closed = False

    def close(self) -> None:
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise _closing()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except asyncio.CancelledError:
            if self._was_meant():
                raise
            raise _closing() from None

    def _was_meant(self) -> bool:
        """Whether it was the asking task that was canceled, and not only a look whose turn had not come."""
        task = asyncio.current_task()
        return not self._closed or (task is not None and task.cancelling() > 0)

    async def _read(self, work: Callable[[Tx], T]) -> T:
        return await self._ask(lambda: self._store.read(work))

    async def look(self, asked: Question) -> Look:
        def work() -> Look:
            found, marks = look(self._store, asked.after, asked.seen, asked.items, slowly=asked.slowly)
            full = asked.full
            events = [] if full is None else self._store.read(lambda tx: between(tx, full, found.end, PAGE))
            if asked.slowly:
                marks["file"] = state_of(self._env_file)
                if self._rounds is not None:
                    marks["health"] = self._rounds.mark()
            return Look(asked.after, found, asked.full, events, marks)

        return await self._ask(work)

    async def missed(self, after: Cursor, subscriber: Subscriber) -> set[str] | None:
        """The topics that may have changed since `after`; None: that cannot be told, look at everything again."""

        def work() -> Happened | None:
            if not self._store.read(lambda tx: known(tx, after)):
                return None
            found, _ = look(self._store, after, after, subscriber.items())
            return None if found.too_many or found.end < after else found

        try:
            found = await self._ask(work)
        except DalSegnoError:
            return None
        if found is None:
            return None
        changed = changed_by(found.kinds)
        return changed.hard | changed.soft | {f"item:{each}" for each in found.items} | MARKED

    async def page(self, after: Cursor) -> list[EventRecord] | None:
        """The next events; None: this reader cannot go on from where it was."""
        try:
            return await self._read(lambda tx: between(tx, after, limit=PAGE) if known(tx, after) else None)
        except DalSegnoError:
            return None

    async def position(self) -> Cursor | None:
        """Where the log ends; None while the database does not say."""
        try:
            return await self._read(position)
        except DalSegnoError:
            return None


def _closing() -> DatabaseUnavailable:
    return DatabaseUnavailable(problem="the console is closing")


def state_of(file: Path | None) -> tuple[int, ...]:
    """What changes when a file does."""
    try:
        state = None if file is None else file.stat()
    except OSError:
        return (0,)
    return () if state is None else (state.st_mtime_ns, state.st_size, state.st_ino)
