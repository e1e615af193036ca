"""How fast things may go, what is stopped and until when: limits, breakers and system settings as they are right now.

The arithmetic is the engine's own (`engine.limits`, `engine.breakers`), asked without a lock: a figure may be old by
the time it is read, and promises nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

import sqlalchemy as sa

from dalsegno.engine.breakers import CLOSED, OPEN
from dalsegno.engine.breakers import calls as calls_of_breaker
from dalsegno.engine.limits import EPOCH, MICRO, room
from dalsegno.errors import NotFound
from dalsegno.model.limit import SYSTEM_SETTINGS
from dalsegno.model.records import BreakerRecord
from dalsegno.model.suggest import did_you_mean
from dalsegno.store.schema import breakers, limits, nodes, permits, stages, system_settings, waits
from dalsegno.store.store import Tx

CAP = 1000
"""A line is counted up to here; whether it is longer is said beside it."""

# Conditions of partial indexes, written as the indexes have them: SQLite compares texts.
_HELD = sa.text("NOT permits.released")
_CLAIMABLE = sa.text("stages.claimable")

MEANINGS = {
    "queue_concurrency": "calls at once",
    "queue_rate_limit_max": "calls a minute",
    "queue_batch_size": "items that share one call",
}


@dataclass(frozen=True, slots=True)
class Line:
    """Who waits, at a limit or a breaker."""

    waiting: int
    """Items in line there, at most 1,000."""
    more: bool
    """The line is longer than that."""
    held_back: int
    """Ready items of the service that are not claimed, because no call could begin."""


@dataclass(frozen=True, slots=True)
class LimitLine:
    name: str
    concurrent: int | None
    """Calls at once; None: any number."""
    rate: int | None
    """Calls that may begin within `window` seconds."""
    window: float
    concurrent_setting: str | None
    """The system setting that `concurrent` follows."""
    rate_setting: str | None
    origin: Literal["operator", "service"]
    updated_by: str | None
    updated_at: datetime
    in_use: int
    """Permits of calls that have not ended."""
    used: int | None
    """How much of the rate the window that ends now has used; None: it has no rate."""
    free: int | None
    """How many calls may begin now; None: any number."""
    next_at: datetime | None
    """When the next one may, where nothing is free and the clock alone decides."""
    line: Line

    @property
    def limited(self) -> bool:
        return self.concurrent is not None or self.rate is not None

    @property
    def blocked(self) -> bool:
        """Set to 0: nothing begins until somebody changes that."""
        return 0 in (self.concurrent, self.rate)


@dataclass(frozen=True, slots=True)
class BreakerLine:
    breaker: BreakerRecord
    opens: str | None
    """What lets calls through again, in words; None: they go through."""
    line: Line


@dataclass(frozen=True, slots=True)
class SettingLine:
    key: str
    meaning: str
    value: int
    default: int
    updated_by: str | None
    updated_at: datetime | None
    followers: list[str]
    """The limits that change with it."""


# --- limits ---------------------------------------------------------------------------------------


def list_limits(tx: Tx) -> list[LimitLine]:
    """Those that limit anything; the row of one that was lifted stays, but says nothing."""
    limited = sa.or_(limits.c.concurrent.is_not(None), limits.c.rate.is_not(None))
    return [_limit(tx, row) for row in tx.rows(sa.select(limits).where(limited).order_by(limits.c.name))]


def get_limit(tx: Tx, name: str) -> LimitLine:
    row = tx.row(sa.select(limits).where(limits.c.name == name))
    if row is None:
        raise _no_such("limit", name, tx.conn.execute(sa.select(limits.c.name)).scalars())
    return _limit(tx, row)


_SETTINGS = ("name", "concurrent", "rate", "window", "concurrent_setting", "rate_setting", "origin", "updated_by",
             "updated_at")  # fmt: skip


def _limit(tx: Tx, row: sa.RowMapping) -> LimitLine:
    name, now = row["name"], tx.hot.database_now(tx)
    held = sa.select(sa.func.count()).where(permits.c.name == name, _HELD)
    free, delay = room(tx, (name,))
    return LimitLine(
        **{key: row[key] for key in _SETTINGS},
        in_use=int(tx.conn.execute(held).scalar_one()),
        used=used_of(tx, row, now, delay),
        free=free,
        next_at=None if delay is None else now + timedelta(seconds=delay),
        line=_line(tx, name, shut=free == 0),
    )


def used_of(tx: Tx, row: sa.RowMapping, now: datetime, delay: float | None) -> int | None:
    """Permits are numbered: only the last `rate` of them can count."""
    if row["rate"] is None:
        return None
    if delay is not None:
        return int(row["rate"])  # where the clock must be waited for, all of it is used
    since = max((now - EPOCH) // MICRO + row["skew"], row["tick"]) - int(row["window"] * 1e6)
    last = (permits.c.name == row["name"], permits.c.number > row["granted"] - row["rate"], permits.c.tick > since)
    return int(tx.conn.execute(sa.select(sa.func.count()).where(*last)).scalar_one())


# --- breakers -------------------------------------------------------------------------------------


def list_breakers(tx: Tx) -> list[BreakerLine]:
    """Those that stop something first."""
    shut_first = sa.case((breakers.c.state == CLOSED, 1), else_=0)
    return [_breaker(tx, row) for row in tx.rows(sa.select(breakers).order_by(shut_first, breakers.c.name))]


def get_breaker(tx: Tx, name: str) -> BreakerLine:
    row = tx.row(sa.select(breakers).where(breakers.c.name == name))
    if row is None:
        raise _no_such("breaker", name, tx.conn.execute(sa.select(breakers.c.name)).scalars())
    return _breaker(tx, row)


def _breaker(tx: Tx, row: sa.RowMapping) -> BreakerLine:
    record = BreakerRecord.model_validate(dict(row))
    can, _ = calls_of_breaker(tx, record.name)
    return BreakerLine(record, _opens(record, can), _line(tx, record.name, shut=can == 0))


def _opens(breaker: BreakerRecord, can: int | None) -> str | None:
    if breaker.state == CLOSED:
        return None
    probe, reset = (f"dalsegno breaker {verb} {breaker.name}" for verb in ("probe", "reset"))
    if can:
        return f"with the next call, if it succeeds; or now: {reset}"
    if breaker.state == OPEN and breaker.resume_at is None:
        return f"when you say so: {probe} tries one call, {reset} closes it"
    if breaker.state == OPEN and breaker.resume_at is not None:
        end = f"{breaker.resume_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        return f"by itself at {end}, with one call as a probe; or now: {probe}"
    item = "" if breaker.probe_item_id is None else f" (item {breaker.probe_item_id})"
    return f"when the probe that is on its way{item} succeeds; or now: {reset}"


# --- system settings ------------------------------------------------------------------------------


def list_settings(tx: Tx) -> list[SettingLine]:
    stored = {row["key"]: dict(row) for row in tx.rows(sa.select(system_settings))}
    following: dict[str, set[str]] = {key: set() for key in SYSTEM_SETTINGS}
    for row in tx.rows(sa.select(limits.c.name, limits.c.concurrent_setting, limits.c.rate_setting)):
        for key in (row["concurrent_setting"], row["rate_setting"]):
            following.setdefault(key, set()).add(row["name"])
    found = []
    for key, default in SYSTEM_SETTINGS.items():
        changed = stored.get(key, {})
        value, by, at = changed.get("value", default), changed.get("updated_by"), changed.get("updated_at")
        found.append(SettingLine(key, MEANINGS[key], int(value), default, by, at, sorted(following[key])))
    return found


def get_setting(tx: Tx, key: str) -> SettingLine:
    found = next((line for line in list_settings(tx) if line.key == key), None)
    if found is None:
        raise _no_such("system setting", key, SYSTEM_SETTINGS)
    return found


# --- who waits, and what is called what -----------------------------------------------------------


def known_nodes(tx: Tx) -> set[str]:
    return set(tx.conn.execute(sa.select(nodes.c.name)).scalars())


def _line(tx: Tx, name: str, *, shut: bool) -> Line:
    """Items met it in the middle of their work and stand in line; those of a service are not even claimed."""
    some = sa.select(waits.c.item_id).where(waits.c.name == name, waits.c.offered_at.is_(None)).limit(CAP + 1)
    count = tx.conn.execute(sa.select(sa.func.count()).select_from(some.subquery())).scalar_one()
    held_back = 0
    if shut and name.startswith("service:"):
        mine = (stages.c.service == name.removeprefix("service:"), _CLAIMABLE)
        held_back = tx.conn.execute(sa.select(sa.func.sum(stages.c.ready)).where(*mine)).scalar() or 0
    return Line(min(count, CAP), count > CAP, int(held_back))


def _no_such(what: str, name: str, known: Iterable[str]) -> NotFound:
    hint = did_you_mean(name, known).strip().rstrip(".")
    return NotFound(what=what, id=f'"{name}"' + (f" ({hint[0].lower()}{hint[1:]})" if hint else ""), name=name)
