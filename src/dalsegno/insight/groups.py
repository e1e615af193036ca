"""Errors in groups: what goes wrong, how often, since when, and which items to try again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from dalsegno.errors import InputInvalid, NotFound
from dalsegno.insight.grammar import Grammar, Key, age, containing, grammar, number, word
from dalsegno.insight.query import Query
from dalsegno.insight.walk import Page, by_index, cursor_of, place_of
from dalsegno.model.records import ErrorGroupRecord
from dalsegno.model.states import ItemStatus
from dalsegno.store.schema import UtcTime, error_groups, error_hours, items
from dalsegno.store.store import Tx

TREND = 24
"""Hours shown."""
CAP = 200
"""Items that still have the error are counted up to here."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class GroupLine:
    group: ErrorGroupRecord
    trend: list[int]
    """How often in each of the last 24 hours, the current one last."""
    items: int
    """How many items failed with it and were not tried again since, at most 200."""
    more: bool
    """There are more of them."""
    query: str
    """Finds those items."""


GROUPS = grammar(
    "exceptions",
    containing(error_groups.c.template, error_groups.c.code, error_groups.c.sample_error),
    Key("code", "The code of the error.", word(error_groups.c.code)),
    Key("service", "The service that met it.", word(error_groups.c.service)),
    Key("group", "Its fingerprint.", word(error_groups.c.fingerprint)),
    Key("count", "How often it was met.", number(error_groups.c.count), kind="number"),
    Key("age", "Since it was last met.", age(error_groups.c.last_at), kind="age"),
)


def find_groups(
    tx: Tx, query: Query, *, among: Grammar = GROUPS, cursor: str | None = None, limit: int = 50
) -> Page[GroupLine]:
    """A page of groups, those met last first. There are a few thousand at most: each may be asked anything."""
    newest_first = (error_groups.c.last_at.desc(), error_groups.c.fingerprint.desc())
    path = sa.select(error_groups).where(*among.where(query, tx.now)).order_by(*newest_first).limit(limit + 1)
    if cursor is not None:
        at, name = _after(cursor)
        place = sa.tuple_(sa.literal(at, UtcTime), sa.literal(name))
        path = path.where(sa.tuple_(error_groups.c.last_at, error_groups.c.fingerprint) < place)
    rows = tx.rows(path)
    more = _cursor(rows[limit - 1]) if len(rows) > limit else None
    return Page(_lines(tx, rows[:limit]), more, looked=len(rows))


def get_group(tx: Tx, fingerprint: str) -> GroupLine:
    row = tx.row(sa.select(error_groups).where(error_groups.c.fingerprint == fingerprint))
    if row is None:
        raise NotFound(what="group of errors", id=f'"{fingerprint}"')
    return _lines(tx, [row])[0]


def _lines(tx: Tx, rows: Sequence[sa.RowMapping]) -> list[GroupLine]:
    by_index(tx)
    trends = _trends(tx, [row["fingerprint"] for row in rows])
    return [_line(tx, row, trends[row["fingerprint"]]) for row in rows]


def _line(tx: Tx, row: sa.RowMapping, trend: list[int]) -> GroupLine:
    name = row["fingerprint"]
    some = (
        sa.select(items.c.id)
        .where(items.c.fingerprint == name, items.c.error_code.is_not(None), items.c.status == ItemStatus.FAILED)
        .limit(CAP + 1)
    )
    count = int(tx.conn.execute(sa.select(sa.func.count()).select_from(some.subquery())).scalar_one())
    record = ErrorGroupRecord.model_validate(dict(row))
    return GroupLine(record, trend, min(count, CAP), count > CAP, f"group:{name} state:failed")


def _trends(tx: Tx, names: Sequence[str]) -> dict[str, list[int]]:
    now = int(tx.now.timestamp()) // 3600
    trends = {name: [0] * TREND for name in names}
    if names:
        query = sa.select(error_hours).where(error_hours.c.fingerprint.in_(names), error_hours.c.hour > now - TREND)
        for row in tx.rows(query):
            if row["hour"] <= now:
                trends[row["fingerprint"]][row["hour"] - now - 1] = row["count"]
    return trends


def _cursor(row: sa.RowMapping) -> str:
    return cursor_of(((row["last_at"] - _EPOCH) // timedelta(microseconds=1), int(row["fingerprint"], 16)))


def _after(cursor: str) -> tuple[datetime, str]:
    place = place_of(cursor, 2) or (0, 0)
    try:
        return _EPOCH + timedelta(microseconds=place[0]), f"{place[1]:012x}"
    except OverflowError:
        raise InputInvalid(problem="This cursor is not one of ours; take next_cursor of the page before.") from None
