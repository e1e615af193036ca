"""What a service gets: the item, its parameters, and the few things it can say while it works."""

from __future__ import annotations

import hashlib
import json
import logging
import mimetypes
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dalsegno.errors import InputInvalid
from dalsegno.store.hot import Claimed

if TYPE_CHECKING:
    import sqlalchemy as sa

logger = logging.getLogger("dalsegno.item")

CHUNK = 1 << 20


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
    text: str | None = None
    progressed = False
    current_phase: str | None = None
    on_phase: Callable[[Item], None] | None = None
    artifacts: Sequence[Artifact] = ()
    writes: Sequence[Callable[[sa.Connection], None]] = ()
    fetch_input: Callable[[int], Any] | None = None
    _params: dict[str, Any] | None = None

    def __init__(self, claimed: Claimed, stage: StageInfo) -> None:
        self.claimed = claimed
        self.stage = stage

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

    # --- what it can say ----------------------------------------------------------------------

    def progress(self, fraction: float | None = None, text: str | None = None) -> None:
        """Say how far along it is, as often as you like: it is written at most once a second."""
        if fraction is not None:
            self.fraction = min(1.0, max(0.0, float(fraction)))
        if text is not None:
            self.text = storable(text)[:500]
        self.progressed = True

    def phase(self, name: str) -> None:
        """Enter a named phase; written at once."""
        name = storable(name)[:100]
        if name != self.current_phase:
            self.current_phase = name
            self.progressed = True
            if self.on_phase is not None:
                self.on_phase(self)

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

    def also(self, write: Callable[[sa.Connection], None]) -> None:
        """Run `write` in the transaction that settles this item, after the lease was checked."""
        self.writes = [*self.writes, write]

    def __repr__(self) -> str:
        return f"<item {self.id} {self.stage.key}/{self.key}>"
