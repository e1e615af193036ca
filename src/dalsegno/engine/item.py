"""What a service gets: the item, its parameters, and the few things it can say while it works."""

from __future__ import annotations

import hashlib
import json
import logging
import mimetypes
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dalsegno.errors import InputInvalid
from dalsegno.store.hot import Claimed

if TYPE_CHECKING:
    import sqlalchemy as sa

    from dalsegno.model.breaker import Breaker

logger = logging.getLogger("dalsegno.item")

CHUNK = 1 << 20
SPEED_OVER = 5.0
"""Seconds a transfer's speed is taken over: short enough to show a stall, long enough not to flicker."""
SPEED_EVERY = 0.25
"""Seconds between two marks of it: a service may report every chunk."""


def storable(text: str) -> str:
    """Text that both databases take: no NUL, no half characters (file names can have those)."""
    if text.isascii() and "\x00" not in text:
        return text
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


class StageInfo(NamedTuple):
    """What all items of a stage share, read once per process."""

    id: int
    job_id: int
    key: str
    service: str
    params: dict[str, Any]
    snapshot: dict[str, Any]
    options: dict[str, Any]
    scope: Any
    followed_by: tuple[int, ...]
    max_attempts: int
    max_interruptions: int
    timeout: float | None


class Artifact(NamedTuple):
    kind: str
    key: str
    size_bytes: int
    content_type: str | None
    checksum: str


class Transfer:
    """Bytes moved by one item, and how fast lately."""

    def __init__(self, done: int, now: float) -> None:
        self.done = done
        self.total: int | None = None
        self._marks = deque([(now, done)])
        self._told = done

    def moved(self, done: int, total: int | None, now: float) -> None:
        if done < self.done:  # it started over
            self._marks = deque([(now, done)])
            self._told = done
        self.done, self.total = done, total if total is not None else self.total
        if now - self._marks[-1][0] >= SPEED_EVERY:
            self._marks.append((now, done))
            while len(self._marks) > 1 and self._marks[1][0] <= now - SPEED_OVER:
                self._marks.popleft()

    def news(self) -> int:
        """Bytes moved since this was last asked."""
        moved, self._told = self.done - self._told, self.done
        return max(0, moved)

    def speed(self, now: float | None = None) -> float:
        """Bytes per second over the last few seconds; 0 when nothing moved in them."""
        now = time.monotonic() if now is None else now
        marks = list(self._marks)
        old = [mark for mark in marks if mark[0] <= now - SPEED_OVER]
        since, before = old[-1] if old else marks[0]
        lapse = min(now - since, SPEED_OVER)
        return (self.done - before) / lapse if lapse > 0 and self.done > before else 0.0

    def __str__(self) -> str:
        known = f"/{self.total / CHUNK:.2f}MB" if self.total else ""
        return f"{self.done / CHUNK:.2f}MB{known}"


class Item:
    """One unit of work under a live lease."""

    # Defaults live on the class: thousands of items a second are made, and most never set any of these.
    cancelled = False
    """True once the job was canceled, the attempt timed out, or the lease was lost: stop when you can."""
    begun = False
    lost = False
    settled = False
    started_at: datetime | None = None
    worker = ""
    fraction: float | None = None
    progressed = False
    current_phase: str | None = None
    entered = False
    """Its phase changed since it was last written."""
    transfer: Transfer | None = None
    transfers = True
    """Whether what it moves counts as a transfer; not while it is being resolved."""
    _said: str | None = None
    _beside: str | None = ""
    """What stays when the text gives way to the count of bytes. None: the text stays too."""
    _counts = False
    on_phase: Callable[[Item], None] | None = None
    artifacts: Sequence[Artifact] = ()
    writes: Sequence[Callable[[sa.Connection], object]] = ()
    records: Sequence[tuple[Callable[[sa.Connection, list[Any]], None], Any]] = ()
    notes: Sequence[Callable[[sa.Connection], None]] = ()
    farewells: Sequence[Callable[[], None]] = ()
    fetch_input: Callable[[int], Any] | None = None
    open_passage: Callable[[Item, str, Breaker | None], Any] | None = None
    entry: Any = None
    _params: dict[str, Any] | None = None

    def __init__(self, claimed: Claimed, stage: StageInfo) -> None:
        self.claimed = claimed
        self.stage = stage
        self.since = time.monotonic()
        """When it was ours, or a little later."""

    # --- what it is ---------------------------------------------------------------------------

    @property
    def id(self) -> int:
        return self.claimed.id

    @property
    def key(self) -> str:
        return self.claimed.key

    @property
    def job_id(self) -> int:
        return self.claimed.job_id

    @property
    def attempt(self) -> int:
        """How often it has failed so far."""
        return self.claimed.attempt

    @property
    def forced(self) -> bool:
        """An operator wants it done again even if its result is there already."""
        return self.claimed.forced

    @property
    def params(self) -> dict[str, Any]:
        """The step's default parameters, overlaid with the job's and the item's own."""
        if self._params is None:
            own = json.loads(self.claimed.params) if self.claimed.params else {}
            self._params = {**self.stage.params, **own}
        return self._params

    @property
    def snapshot(self) -> dict[str, Any]:
        """The settings frozen when the job was submitted, with the overrides of its last resume."""
        return self.stage.snapshot

    @property
    def input(self) -> Any:
        """The result of the item this one follows, in a step that follows `each`."""
        if self.claimed.parent_id is None or self.fetch_input is None:
            return None
        return self.fetch_input(self.claimed.parent_id)

    @property
    def log(self) -> logging.Logger:
        """Lines logged here (or anywhere in this thread) are kept with the item."""
        return logger

    @property
    def text(self) -> str | None:
        """What it is doing: as it was said, or how many bytes have moved. Bytes move far more often than it is read."""
        moved, beside = self.transfer, self._beside
        doing = str(moved) if self._counts and moved is not None else self._said
        return f"{doing} {beside}" if doing and beside else doing

    # --- what it can say ----------------------------------------------------------------------

    def progress(self, fraction: float | None = None, text: str | None = None, *, beside: str | None = None) -> None:
        """Say how far along it is, as often as you like: it is written at most once a second.

        A text with something `beside` it gives way to the count of bytes once they move; what is beside it stays.
        """
        if fraction is not None:
            self.fraction = min(1.0, max(0.0, float(fraction)))
        if text is not None:
            self._said, self._counts = storable(text)[:500], False
            self._beside = beside and storable(beside)[:500]
        self.progressed = True

    def transferred(self, done: int, total: int | None = None) -> None:
        """Say how many bytes have moved, and of how many: speed and share follow. As often as you like."""
        now = time.monotonic()
        if self.transfer is None:
            self.transfer = Transfer(done, now)
        self.transfer.moved(done, total, now)
        if self.transfer.total:
            self.fraction = min(1.0, max(0.0, done / self.transfer.total))
        if self._beside is not None:
            self._counts = True
        self.progressed = True

    def enter(self, phase: str, *, transfers: bool) -> None:
        """Begin one of the service's own phases. Not by itself a sign of progress: an item that kills its process in
        the second phase must still be found out."""
        self.current_phase, self.entered, self.transfers = phase, True, transfers
        self.fraction = self._said = self.transfer = None
        self._beside, self._counts = "", False

    def phase(self, name: str) -> None:
        """Enter a named phase; written at once."""
        name = storable(name)[:100]
        if name != self.current_phase:
            self.current_phase = name
            self.progressed = True
            if self.on_phase is not None:
                self.on_phase(self)

    def permit(self, name: str, *, breaker: Breaker | None = None) -> Any:
        """`with item.permit("source:qq"):` (or `async with`) around one call to somebody who may limit or refuse us.

        Takes a permit of the limit `name`, if there is one, and passes its breaker. While none is free for long, or the
        breaker is open, the item goes back in line: the block is not entered and it costs no attempt. An exception
        that leaves the block tells the breaker; `breaker` says how to read it, else the service's own, else the usual.
        """
        if self.open_passage is None:
            return nullcontext(self)
        return self.open_passage(self, name, breaker)

    def artifact(self, kind: str, path: str | Path, *, content_type: str | None = None) -> str:
        """Record a file this item read or wrote (`input`, `output`, `log`); returns its SHA-256.

        It is stored together with the item's success, or not at all.
        """
        if kind not in ("input", "output", "log"):
            raise InputInvalid(problem=f'An artifact is "input", "output" or "log", not "{kind}".')
        file = Path(path)
        digest = hashlib.sha256()
        size = 0
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                digest.update(chunk)
                size += len(chunk)
        guessed = content_type or mimetypes.guess_type(file.name)[0]
        self.artifacts = [*self.artifacts, Artifact(kind, str(file), size, guessed, digest.hexdigest())]
        return digest.hexdigest()

    def also(self, write: Callable[[sa.Connection], object]) -> None:
        """Run `write` in the transaction that settles this item as done, after the lease was checked."""
        self.writes = [*self.writes, write]

    def record(self, write_all: Callable[[sa.Connection, list[Any]], None], row: Any) -> None:
        """Like `also`, in bulk: `write_all` is called once with the rows of all items that are settled together."""
        self.records = [*self.records, (write_all, row)]

    def note(self, write: Callable[[sa.Connection], None]) -> None:
        """Run `write` in the transaction that settles this attempt, however it ended."""
        self.notes = [*self.notes, write]

    def afterwards(self, call: Callable[[], None]) -> None:
        """Call once this item is done and that is durable. Not after a crash in between: it may only tidy up."""
        self.farewells = [*self.farewells, call]

    def __repr__(self) -> str:
        return f"<item {self.id} {self.stage.key}/{self.key}>"
