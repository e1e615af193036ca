"""Log lines of jobs and items."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from dalsegno.insight.grammar import Grammar, Key, age, containing, grammar, moment, number, word
from dalsegno.insight.query import Query, only
from dalsegno.insight.walk import SECONDS, TEXT_SECONDS, Page, Walk, begin, page_of, place_of, walk
from dalsegno.model.records import LogRecord
from dalsegno.model.states import Level
from dalsegno.store.schema import logs, stages
from dalsegno.store.store import Store, Tx

PAGE = 500
OVERLAP = 20
"""Looks back at which a line may still turn up late: ids are not commit order on PostgreSQL."""
SEVERITY = list(Level)
CHIPS = 2_000
"""Lines that are counted by level."""

_STAGE = sa.select(stages.c.key).where(stages.c.id == logs.c.stage_id).scalar_subquery()
_TROUBLE = sa.text("(logs.level = 'warn' OR logs.level = 'error')")
"""As its index has it."""

LOGS = grammar(
    "logs",
    containing(logs.c.message, logs.c.traceback),
    Key("level", "How bad it is.", word(logs.c.level), values=tuple(Level)),
    Key("job", "The number of its job.", number(logs.c.job_id), kind="number"),
    Key("stage", "The stage of its job.", word(_STAGE)),
    Key("item", "The number of its item.", number(logs.c.item_id), kind="number"),
    Key("worker", "Who wrote it.", word(logs.c.worker)),
    Key("logger", "Which part of the program wrote it.", word(logs.c.logger)),
    Key("age", "How long ago.", age(logs.c.at), kind="age"),
    Key("at", "When.", moment(logs.c.at), kind="moment"),
)


def find_logs(
    tx: Tx,
    query: Query,
    *,
    among: Grammar = LOGS,
    cursor: str | None = None,
    limit: int = 50,
    forward: bool = False,
) -> Page[LogRecord]:
    """A page of lines, newest first; `forward`: those after the cursor, oldest first."""
    path = Walk(sa.select(logs), (logs.c.id,), _along(query), among.where(query, tx.now), forward)
    budget = begin(tx, TEXT_SECONDS if query.of("") else SECONDS)
    found = walk(tx, path, after=place_of(cursor, 1), limit=limit + 1, budget=budget)
    lines = [LogRecord.model_validate(dict(row)) for row in found.rows]
    return page_of(lines, found, limit, lambda line: (line.id,))


def count_levels(tx: Tx, query: Query, *, among: Grammar = LOGS) -> dict[str, int]:
    """The latest lines that a query finds, whatever it says about their level, by level."""
    asked = query.without("level")
    path = Walk(sa.select(logs.c.id, logs.c.level), (logs.c.id,), _along(asked), among.where(asked, tx.now))
    found = walk(tx, path, after=None, limit=CHIPS, budget=begin(tx, SECONDS))
    return dict.fromkeys(map(str, Level), 0) | Counter(row["level"] for row in found.rows)


def _along(query: Query) -> list[Any]:
    """Which index it goes by: an item's, a job's, that of trouble, or all lines."""
    item, job = only(query, "item"), only(query, "job")
    if item is not None:
        return [logs.c.item_id == int(item)]
    if job is not None:
        return [logs.c.job_id == int(job)]
    levels = {value.text for term in query.of("level") if not term.negated for value in term.values}
    return [_TROUBLE] if levels and levels <= {Level.WARN, Level.ERROR} else []


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
