"""Log lines of jobs and items."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import sqlalchemy as sa

from dalsegno.model.records import LogRecord
from dalsegno.model.states import Level
from dalsegno.store.schema import logs
from dalsegno.store.store import Store, Tx

PAGE = 500
OVERLAP = 20
"""Looks back at which a line may still turn up late: ids are not commit order on PostgreSQL."""
SEVERITY = list(Level)


def list_logs(
    tx: Tx,
    *,
    job_id: int | None = None,
    item_id: int | None = None,
    level: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[LogRecord]:
    """The last lines, oldest first; `level` and anything worse."""
    query = _about(job_id, item_id, level).order_by(logs.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(logs.c.id < before)
    return _records(tx, query)[::-1]


class LogTail:
    """Follows the log. Each look reads a little of the past again, for lines that were committed late."""

    def __init__(self, *, job_id: int | None = None, item_id: int | None = None, level: str | None = None) -> None:
        self._query = _about(job_id, item_id, level).order_by(logs.c.id)
        self._tops: deque[int] = deque([0], maxlen=OVERLAP)
        self._seen: set[int] = set()

    def start(self, store: Store, lines: list[LogRecord]) -> None:
        """Begin after what was shown already."""
        top = store.read(lambda tx: tx.conn.execute(sa.select(sa.func.max(logs.c.id))).scalar()) or 0
        self._tops.append(max([top, *(line.id for line in lines)]))
        self._tops.popleft()
        self._seen = {line.id for line in lines}

    def look(self, store: Store) -> Iterator[LogRecord]:
        """Whatever is new since the last look."""
        floor, top = self._tops[0], self._tops[-1]
        for line in store.read(lambda tx: _records(tx, self._query.where(logs.c.id > floor))):
            top = max(top, line.id)
            if line.id not in self._seen:
                self._seen.add(line.id)
                yield line
        self._tops.append(top)
        self._seen = {seen for seen in self._seen if seen > self._tops[0]}


def _about(job_id: int | None, item_id: int | None, level: str | None) -> sa.Select[tuple[object]]:
    query = sa.select(logs)
    if job_id is not None:
        query = query.where(logs.c.job_id == job_id)
    if item_id is not None:
        query = query.where(logs.c.item_id == item_id)
    if level is not None:
        query = query.where(logs.c.level.in_(SEVERITY[SEVERITY.index(Level(level)) :]))
    return query


def _records(tx: Tx, query: sa.Select[tuple[object]]) -> list[LogRecord]:
    return [LogRecord.model_validate(dict(row)) for row in tx.rows(query)]
