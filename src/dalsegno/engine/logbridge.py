"""The log bridge: lines logged while an item runs are kept in the database, in batches, and go to stdout as JSON."""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.engine.executor import current_item
from dalsegno.engine.item import storable
from dalsegno.engine.looper import Looper
from dalsegno.store.schema import logs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dalsegno.store.store import Store

MOST_WAITING = 20_000
"""Lines kept in memory while the database is away; older ones are dropped and counted."""
BATCH = 500
LEVELS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warn"}


def level_of(record: logging.LogRecord) -> str:
    return LEVELS.get(record.levelno, "error" if record.levelno > logging.WARNING else "debug")


def line_of(record: logging.LogRecord, secrets: Iterable[str] = ()) -> dict[str, Any]:
    """A log record as a row of `logs`, with secrets masked."""
    item = current_item.get()
    trace = None
    if record.exc_info and record.exc_info[0] is not None:
        trace = logging.Formatter().formatException(record.exc_info)
    line: dict[str, Any] = {
        "at": datetime.fromtimestamp(record.created, UTC),
        "level": level_of(record),
        "logger": record.name,
        "message": storable(masked(record.getMessage(), secrets))[:16_000],
        "traceback": None if trace is None else storable(masked(trace, secrets))[:32_000],
        "job_id": None,
        "stage_id": None,
        "item_id": None,
        "worker": None,
    }
    if item is not None:
        line |= {"job_id": item.job_id, "stage_id": item.stage.id, "item_id": item.id, "worker": item.worker}
    return line


def masked(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


class JsonLines(logging.Handler):
    """One JSON object a line, for whoever collects stdout."""

    def __init__(self, stream: IO[str] | None = None, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._stream = stream or sys.stdout
        self._secrets = secrets

    def emit(self, record: logging.LogRecord) -> None:
        line = {key: value for key, value in line_of(record, self._secrets).items() if value is not None}
        line["at"] = line["at"].isoformat()
        self._stream.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._stream.flush()


class LogBridge(Looper):
    """A logging handler in front, a loop that writes batches behind."""

    name = "logs"
    interval = 0.5

    def __init__(self, store: Store, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self._store = store
        self._lines: deque[dict[str, Any]] = deque(maxlen=MOST_WAITING)
        self.handler = _Buffer(self._lines, secrets)

    def tick(self) -> float | None:
        while self._lines:
            some = [self._lines.popleft() for _ in range(min(BATCH, len(self._lines)))]
            try:
                self._store.write("logs", lambda tx, some=some: tx.conn.execute(sa.insert(logs), some))  # type: ignore[misc]
            except Exception:
                self._lines.extendleft(reversed(some))
                raise
        return None

    def start(self) -> None:
        logging.getLogger().addHandler(self.handler)
        super().start()

    def stop(self, timeout: float | None = None) -> None:
        logging.getLogger().removeHandler(self.handler)
        super().stop(timeout)
        self._tick_safely()


class _Buffer(logging.Handler):
    """Keeps lines of items, and the engine's own from warnings up."""

    def __init__(self, lines: deque[dict[str, Any]], secrets: Sequence[str]) -> None:
        super().__init__()
        self._lines = lines
        self._secrets = secrets

    def emit(self, record: logging.LogRecord) -> None:
        if current_item.get() is None and record.levelno < logging.WARNING:
            return
        self._lines.append(line_of(record, self._secrets))
