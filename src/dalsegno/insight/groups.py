"""Errors in groups: what goes wrong, how often, since when, and which items to try again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from dalsegno.errors import InputInvalid, NotFound
from dalsegno.insight.finding import bulk_of, select_items
from dalsegno.insight.grammar import Condition, Grammar, Key, age, containing, grammar, number, word
from dalsegno.insight.items import TROUBLE
from dalsegno.insight.query import Query, Value
from dalsegno.insight.tally import tally_items
from dalsegno.insight.walk import SECONDS, Page, begin, by_index, cursor_of, place_of
from dalsegno.model.records import ErrorGroupRecord
from dalsegno.model.states import ItemStatus
from dalsegno.store.schema import UtcTime, bulk_items, error_groups, error_hours, items
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


def _met_by(value: Value, _now: datetime) -> Condition:
    """Groups of what failed again among the items that a command has changed."""
    changed = sa.and_(bulk_items.c.stage_id == items.c.stage_id, bulk_items.c.seq == items.c.seq)
    found = sa.select(items.c.id).join(bulk_items, changed).where(
        bulk_items.c.command_id == int(value.text),
        items.c.fingerprint == error_groups.c.fingerprint,
        items.c.error_code.is_not(None),
    )  # fmt: skip
    return found.limit(1).correlate(error_groups).scalar_subquery().is_not(None)


GROUPS = grammar(
    "exceptions",
    containing(error_groups.c.template, error_groups.c.code, error_groups.c.sample_error),
    Key("code", "The code of the error.", word(error_groups.c.code)),
    Key("service", "The service that met it.", word(error_groups.c.service)),
    Key("group", "Its fingerprint.", word(error_groups.c.fingerprint)),
    Key("count", "How often it was met.", number(error_groups.c.count), kind="number"),
    Key("bulk", "The number of a command about many items of which some have it now.", _met_by, kind="id"),
    Key("age", "Since it was last met.", age(error_groups.c.last_at), kind="age"),
)


def find_groups(
    tx: Tx, query: Query, *, among: Grammar = GROUPS, cursor: str | None = None, limit: int = 50
) -> Page[GroupLine]:
    """A page of groups, those met last first. There are a few thousand at most: each may be asked anything."""
    rows, partial = _found(tx, query, among, cursor, limit + 1)
    more = _cursor(rows[limit - 1]) if len(rows) > limit else None
    return Page(_lines(tx, rows[:limit]), more, partial=partial, looked=len(rows))


def group_names(tx: Tx, query: Query, limit: int) -> tuple[list[str], bool]:
    """The fingerprints alone, and whether there are more."""
    rows, partial = _found(tx, query, GROUPS, None, limit + 1)
    return [row["fingerprint"] for row in rows[:limit]], partial or len(rows) > limit


def _found(
    tx: Tx, query: Query, among: Grammar, cursor: str | None, limit: int
) -> tuple[Sequence[sa.RowMapping], bool]:
    newest_first = (error_groups.c.last_at.desc(), error_groups.c.fingerprint.desc())
    bulk, rest = bulk_of(query)
    path = sa.select(error_groups).where(*among.where(rest, tx.now)).order_by(*newest_first).limit(limit)
    partial = False
    if bulk is not None:
        names, partial = _of_command(tx, bulk)
        path = path.where(error_groups.c.fingerprint.in_(names))
    if cursor is not None:
        at, name = _after(cursor)
        place = sa.tuple_(sa.literal(at, UtcTime), sa.literal(name))
        path = path.where(sa.tuple_(error_groups.c.last_at, error_groups.c.fingerprint) < place)
    return tx.rows(path), partial


def _of_command(tx: Tx, command_id: int) -> tuple[list[str], bool]:
    """The groups that items it has changed are in, and whether the time was up before all were looked at."""
    asked = Query().with_("bulk", str(command_id)).with_("state", *sorted(TROUBLE))
    counts, more = tally_items(tx, select_items(tx, asked), items.c.fingerprint, begin(tx, SECONDS))
    return [name for name in counts if name != "None"], more


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
