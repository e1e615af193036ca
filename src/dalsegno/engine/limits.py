"""Limits: permits are granted under the limit's row lock, so that they never exceed it, not by one.

A rate is kept in the limit's own time, which goes on evenly whatever is done to the clocks of the machines.
"""

from __future__ import annotations

import time
import uuid
from bisect import bisect_left
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from dalsegno.clock import Clock, SystemClock, this_host
from dalsegno.errors import InputInvalid
from dalsegno.model.limit import SYSTEM_SETTINGS, Limit
from dalsegno.model.suggest import did_you_mean
from dalsegno.store.hot import Event
from dalsegno.store.schema import limits, permits, processes, system_settings

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICRO = timedelta(microseconds=1)
PRUNE_EVERY = 128
ENOUGH = 1000
"""Nobody asks for more calls at once."""
LIVE = sa.text("NOT permits.released")
"""As the index has it: SQLite compares texts."""


class Permit(NamedTuple):
    name: str
    number: int


class Denied(NamedTuple):
    name: str
    why: str
    delay: float | None
    """Seconds until one may be free, where the clock alone decides."""
    as_of: float = 0.0
    """`time.monotonic()` when it was so."""


class Room(NamedTuple):
    """What a limit lets begin: `calls` (None: any number), or after `delay` seconds (None: when a call ends)."""

    calls: int | None
    delay: float | None = None


class Reading(NamedTuple):
    """A limit's time, and what belongs to it."""

    tick: int
    mono: int
    skew: int
    now: datetime


class Pulse:
    """How this process tells the time of limits: by the monotonic clock, from a moment whose time is known.

    That is the last permit, if it was granted on this host since it started (all its processes share that clock); else
    the last look this process had itself; else the database's clock has to be believed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.host = this_host() if isinstance(clock, SystemClock) else f"clock/{uuid.uuid4()}"
        self._seen: dict[str, tuple[int, int]] = {}

    def read(self, tx: Tx, row: sa.RowMapping) -> Reading:
        """The limit's time now, of a row just read."""
        now = tx.hot.database_now(tx)
        mono = int(self._clock.monotonic() * 1e6)
        wall = (now - EPOCH) // MICRO
        if row["host"] == self.host:
            tick = row["tick"] + max(0, mono - row["mono"])
        elif row["name"] in self._seen:
            seen, then = self._seen[row["name"]]
            tick = max(row["tick"], seen + mono - then)
        else:
            tick = max(row["tick"], wall + row["skew"])
        if row["host"] != self.host:
            self._seen.setdefault(row["name"], (tick, mono))
        return Reading(tick, mono, tick - wall, now)


def take(
    tx: Tx, pulse: Pulse, names: Collection[str], process_id: int, item_id: int | None = None
) -> list[Permit] | Denied:
    """One permit of every limit among `names`, or none of any."""
    taken, denied = take_some(tx, pulse, names, process_id, [item_id])
    return taken[0] if denied is None else denied


def take_some(
    tx: Tx, pulse: Pulse, names: Collection[str], process_id: int, item_ids: Sequence[int | None]
) -> tuple[list[list[Permit]], Denied | None]:
    """Permits for as many of these calls as all limits among `names` allow, and why the next one got none."""
    rows = tx.rows(sa.select(limits).where(limits.c.name.in_(sorted(names))).order_by(limits.c.name).with_for_update())
    rows = [row for row in rows if row["concurrent"] is not None or row["rate"] is not None]
    count, denied = len(item_ids), None
    readings = [pulse.read(tx, row) for row in rows]
    for row, reading in zip(rows, readings, strict=True):
        if row["concurrent"] is not None and (left := row["concurrent"] - _live(tx, row["name"])) < count:
            count, denied = max(0, left), Denied(row["name"], "concurrent", None)
        if row["rate"] is not None and (left := _free_by(tx, row, reading.tick, count)) < count:
            opens = _opens_at(tx, row, left + 1)
            delay = None if opens is None else (opens - reading.tick) / 1e6
            count, denied = left, Denied(row["name"], "rate", delay, time.monotonic())
    if count:
        for row, reading in zip(rows, readings, strict=True):
            _grant(tx, pulse, row, reading, process_id, item_ids[:count])
    return [[Permit(row["name"], row["granted"] + 1 + n) for row in rows] for n in range(count)], denied


def _grant(
    tx: Tx, pulse: Pulse, row: sa.RowMapping, reading: Reading, process_id: int, item_ids: Sequence[int | None]
) -> None:
    common = {"name": row["name"], "tick": reading.tick, "granted_at": reading.now, "process_id": process_id}
    numbered = enumerate(item_ids, row["granted"] + 1)
    tx.conn.execute(sa.insert(permits), [{**common, "number": number, "item_id": item} for number, item in numbered])
    last = row["granted"] + len(item_ids)
    values = {"granted": last, "tick": reading.tick, "host": pulse.host, "mono": reading.mono, "skew": reading.skew}
    if last // PRUNE_EVERY > row["granted"] // PRUNE_EVERY:
        values |= _prune(tx, row, reading.tick)
    tx.conn.execute(sa.update(limits).where(limits.c.name == row["name"]).values(**values))


def give_back(tx: Tx, held: Sequence[Permit]) -> None:
    """The call has ended. What it used of a rate stays used."""
    for name, number in held:
        tx.conn.execute(
            sa.update(permits).where(permits.c.name == name, permits.c.number == number).values(released=True)
        )


def give_back_of_items(tx: Tx, process_id: int, item_ids: Sequence[int], names: Sequence[str]) -> None:
    """Whatever this process holds of these limits for these items."""
    tx.conn.execute(
        sa.update(permits)
        .where(
            LIVE,
            permits.c.name.in_(names),
            permits.c.process_id == process_id,
            permits.c.item_id.in_(item_ids),
        )
        .values(released=True)
    )


_DEAD = sa.and_(LIVE, permits.c.process_id.not_in(sa.select(processes.c.id)))


def has_dead(tx: Tx) -> bool:
    """Whether processes that are no more still hold permits."""
    return tx.conn.execute(sa.select(sa.exists(sa.select(permits.c.number).where(_DEAD)))).scalar_one()


def give_back_of_the_dead(tx: Tx) -> None:
    tx.conn.execute(sa.update(permits).where(_DEAD).values(released=True))


def room(tx: Tx, names: Collection[str], ahead: float = 0.0, pulse: Pulse | None = None) -> Room:
    """How many calls all limits among `names` would let begin now, or within `ahead` seconds. Promises nothing.

    It says at most `ENOUGH`, so that a great rate costs no more than a small one.
    """
    least = Room(None)
    for row in tx.rows(sa.select(limits).where(limits.c.name.in_(sorted(names)))):
        each = _room(tx, row, (pulse or Pulse(SystemClock())).read(tx, row).tick, ahead)
        if each.calls is not None and (least.calls is None or each.calls < least.calls):
            least = each
    return least


def _room(tx: Tx, row: sa.RowMapping, tick: int, ahead: float) -> Room:
    calls: int | None = None
    if row["concurrent"] is not None:
        calls = max(0, row["concurrent"] - _live(tx, row["name"]))
    if calls == 0 or row["rate"] is None:
        return Room(calls)
    left = _free_by(tx, row, tick + int(ahead * 1e6), ENOUGH if calls is None else calls)
    if left:
        return Room(left)
    opens = _opens_at(tx, row)
    return Room(0, None if opens is None else max(0.0, (opens - tick) / 1e6))


def _live(tx: Tx, name: str) -> int:
    return int(tx.conn.execute(sa.select(sa.func.count()).where(permits.c.name == name, LIVE)).scalar_one())


def _free_by(tx: Tx, row: sa.RowMapping, tick: int, most: int) -> int:
    """How many of `most` the rate allows by that tick. They get free in the order of their numbers: find by halving."""

    def is_late(count: int) -> bool:
        opens = _opens_at(tx, row, count)
        return opens is None or opens > tick

    most = min(most, row["rate"])
    if most <= 0 or not is_late(most):
        return most
    return bisect_left(range(1, most + 1), True, key=is_late)


def _opens_at(tx: Tx, row: sa.RowMapping, count: int = 1) -> int | None:
    """The tick from which `count` more may be granted; None: never. It is one row away, whatever the rate."""
    if row["rate"] < count:
        return None
    number = row["granted"] - row["rate"] + count
    if number < 1:
        return 0
    oldest = tx.conn.execute(
        sa.select(permits.c.tick).where(permits.c.name == row["name"], permits.c.number == number)
    ).scalar()
    if oldest is None:  # pruned when the limit was another: as if it had been the youngest of those
        oldest = row["pruned_tick"]
    return 0 if oldest is None else int(oldest) + int(row["window"] * 1e6)


def _prune(tx: Tx, row: sa.RowMapping, tick: int) -> dict[str, Any]:
    old = sa.and_(
        permits.c.name == row["name"],
        permits.c.released.is_(True),
        permits.c.tick < tick - int(row["window"] * 1e6) if row["rate"] is not None else sa.true(),
        permits.c.number <= row["granted"],
    )
    youngest = tx.conn.execute(sa.select(sa.func.max(permits.c.tick)).where(old)).scalar()
    if youngest is None:
        return {}
    tx.conn.execute(sa.delete(permits).where(old))
    return {"pruned_tick": max(youngest, row["pruned_tick"] or 0)}


# --- setting them ---------------------------------------------------------------------------------


def set_limit(tx: Tx, name: str, limit: Limit, by: str, *, origin: str = "operator") -> None:
    """From now on, everywhere. What a service declares does not overrule an operator."""
    values = {
        "concurrent": resolved(tx, limit.concurrent),
        "rate": resolved(tx, limit.rate),
        "window": float(limit.window),
        "concurrent_setting": limit.concurrent if isinstance(limit.concurrent, str) else None,
        "rate_setting": limit.rate if isinstance(limit.rate, str) else None,
        "origin": origin,
        "updated_by": by,
        "updated_at": tx.now,
    }
    if not name or len(name) > 200 or any(c.isspace() for c in name):
        raise InputInvalid(problem=f"A limit's name has 1 to 200 characters and no spaces: {name!r}.")
    if tx.insert_new(limits, {"name": name, **values}) is None:
        change = sa.update(limits).where(limits.c.name == name)
        if origin == "service":
            declared = ("concurrent", "rate", "window", "concurrent_setting", "rate_setting")
            same = [limits.c[key].is_not_distinct_from(values[key]) for key in declared]
            change = change.where(limits.c.origin == "service", sa.not_(sa.and_(*same)))
        if not tx.conn.execute(change.values(**values)).rowcount:
            return
    tx.announce("closed")  # what waits inside processes has not met it
    told = {key: values[key] for key in ("concurrent", "rate", "window")}
    tx.hot.insert_events(tx, [Event("limit_set", by, data={"limit": name, **told})])
    _tell(tx, name)


def clear_limit(tx: Tx, name: str, by: str) -> bool:
    """No limit any more; False: there was none. Its row stays: what was granted counts if it comes back."""
    limited = sa.or_(limits.c.concurrent.is_not(None), limits.c.rate.is_not(None))
    free = {"concurrent": None, "rate": None, "concurrent_setting": None, "rate_setting": None}
    gone = tx.conn.execute(
        sa.update(limits)
        .where(limits.c.name == name, limited)
        .values(**free, origin="operator", updated_by=by, updated_at=tx.now)
    ).rowcount
    if gone:
        tx.hot.insert_events(tx, [Event("limit_cleared", by, data={"limit": name})])
        _tell(tx, name)
    return bool(gone)


def resolved(tx: Tx, value: int | str | None) -> int | None:
    return setting(tx, value) if isinstance(value, str) else value


def setting(tx: Tx, key: str) -> int:
    """A system setting's value, or its default."""
    found = tx.conn.execute(sa.select(system_settings.c.value).where(system_settings.c.key == key)).scalar()
    return SYSTEM_SETTINGS[key] if found is None else int(found)


def set_setting(tx: Tx, key: str, value: int, by: str) -> None:
    """Change a system setting, and with it every limit that follows it."""
    if key not in SYSTEM_SETTINGS:
        hint = did_you_mean(key, SYSTEM_SETTINGS)
        raise InputInvalid(problem=f'There is no system setting "{key}".{hint}')
    least = 1 if key == "queue_batch_size" else 0
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 1_000_000:
        raise InputInvalid(problem=f"{key} is a whole number from {least} to 1,000,000, not {value!r}.")
    row = {"value": value, "updated_by": by, "updated_at": tx.now}
    if tx.insert_new(system_settings, {"key": key, **row}) is None:
        tx.conn.execute(sa.update(system_settings).where(system_settings.c.key == key).values(**row))
    for column, follows in ((limits.c.concurrent, limits.c.concurrent_setting), (limits.c.rate, limits.c.rate_setting)):
        moved = (
            sa.update(limits)
            .where(follows == key)
            .values({column: value, limits.c.updated_at: tx.now, limits.c.updated_by: by})
        )
        for name in tx.conn.execute(moved.returning(limits.c.name)).scalars():
            _tell(tx, name)
    tx.hot.insert_events(tx, [Event("setting_changed", by, data={"key": key, "value": value})])
    tx.announce("flow")


def _tell(tx: Tx, name: str) -> None:
    tx.announce("flow")
    tx.announce(f"work:{name[8:]}" if name.startswith("service:") else "work")
