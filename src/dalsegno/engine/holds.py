"""Holds: a service, a lane or everything stands still, with who, why and until when.

A hold is named `all`, `service:NAME` or `lane:NAME`. It closes no stage and moves no job: claims, admission and
planning ask `held` and pass by, so holding a service with a million items ready is one row. What has begun finishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from dalsegno.errors import InputInvalid, NotFound
from dalsegno.store.hot import Event
from dalsegno.store.schema import UtcTime, holds, lanes

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

EVERYTHING = "all"
CLOCK = "clock"
"""Who ends what had an `until`."""
ENGINE = ("rescuer", "scheduler", "service")
"""Who holds a lane without being asked: after a crash, an interruption, a full disk."""
UNSAID = "paused by an operator"
"""The reason where none was given."""
_SERVICE = "service:"
_LANE = "lane:"

_NOW = sa.bindparam("now", type_=UtcTime)


class Held(NamedTuple):
    """What stands still now."""

    everything: bool
    services: frozenset[str]
    lanes: frozenset[str]


def in_force(until: sa.ColumnElement[Any], now: Any = _NOW) -> sa.ColumnElement[bool]:
    """Its time has not passed: a hold ends at `until`, whether or not somebody has removed it yet."""
    return sa.or_(until.is_(None), until > now)


_HELD = sa.union_all(
    sa.select(holds.c.name).where(in_force(holds.c.held_until)),
    sa.select((sa.literal(_LANE) + lanes.c.name).label("name")).where(
        lanes.c.held_at.is_not(None), in_force(lanes.c.held_until)
    ),
)


def held(tx: Tx) -> Held:
    """One small statement, because every claim asks it."""
    names = list(tx.conn.execute(_HELD, {"now": tx.now}).scalars())
    return Held(
        EVERYTHING in names,
        frozenset(name.removeprefix(_SERVICE) for name in names if name.startswith(_SERVICE)),
        frozenset(name.removeprefix(_LANE) for name in names if name.startswith(_LANE)),
    )


def hold(tx: Tx, name: str, reason: str, by: str, until: datetime | None = None) -> None:
    """Nothing of it starts until `until`, or until someone releases it. Again: the newer reason and time count."""
    table, key = _place(name)
    row = tx.row(sa.select(table).where(table.c.name == key).with_for_update())
    if row is None and table is lanes:
        raise NotFound(what="lane", id=key)
    values: dict[str, Any] = {"held_at": tx.now, "held_by": by, "held_reason": reason, "held_until": until}
    if row is None:
        tx.insert_new(holds, {"name": key, **values})
    elif row["held_at"] is not None and (row["held_until"] is None or row["held_until"] > tx.now):
        values["held_at"] = row["held_at"]
        if all(row[column] == value for column, value in values.items()):
            return
    tx.conn.execute(sa.update(table).where(table.c.name == key).values(**values))
    _tell(tx, name, "hold_set", "lane_held", by, reason, until)
    tx.announce("closed")
    tx.announce("jobs")  # who sleeps until the next `until` must hear of this one


def release(tx: Tx, name: str, by: str, *, held_by: Sequence[str] | None = None) -> bool:
    """Let it go on; False: it was not held, or not by one of `held_by`."""
    table, key = _place(name)
    if table is holds:
        change: sa.Delete | sa.Update = sa.delete(holds)
    else:
        change = sa.update(lanes).values(held_at=None, held_by=None, held_reason=None, held_until=None)
    change = change.where(table.c.name == key, table.c.held_at.is_not(None))
    if held_by is not None:
        change = change.where(table.c.held_by.in_(held_by))
    if by == CLOCK:
        change = change.where(table.c.held_until <= tx.now)  # somebody may have prolonged it just now
    released = tx.conn.execute(change).rowcount
    if released:
        _tell(tx, name, "hold_released", "lane_released", by)
        for topic in ("jobs", "work", "plan"):
            tx.announce(topic)
    return bool(released)


_OVER = sa.union_all(
    sa.select(holds.c.name).where(holds.c.held_until <= _NOW),
    sa.select((sa.literal(_LANE) + lanes.c.name).label("name")).where(lanes.c.held_until <= _NOW),
)


def release_over(tx: Tx) -> None:
    """Remove the holds whose time has passed."""
    for name in list(tx.conn.execute(_OVER, {"now": tx.now}).scalars()):
        release(tx, name, CLOCK)


def _place(name: str) -> tuple[sa.Table, str]:
    """The table a hold of this name lives in, and its key there."""
    if name.startswith(_LANE):
        return lanes, name.removeprefix(_LANE)
    if name == EVERYTHING or name.startswith(_SERVICE):
        return holds, name
    raise InputInvalid(problem=f'"{name}" cannot be held: it is neither "all" nor "service:NAME" nor "lane:NAME".')


def _tell(tx: Tx, name: str, of_all: str, of_lane: str, by: str, reason: str | None = None, until: Any = None) -> None:
    lane = name.startswith(_LANE)
    data = {"lane": name.removeprefix(_LANE)} if lane else {"hold": name}
    if until is not None:
        data["until"] = until.isoformat()
    event = Event(of_lane if lane else of_all, by, level="warn" if reason else "info", message=reason, data=data)
    tx.hot.insert_events(tx, [event])
