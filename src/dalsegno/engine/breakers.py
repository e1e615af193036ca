"""Breakers: what stops calls to somebody in trouble, until when, and the one call that tries whether it is over.

Every change happens under the breaker's row lock. A call carries the epoch it began in; what it reports about another
epoch changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from dalsegno.errors import CommandRefused, InputInvalid, NotFound
from dalsegno.model.breaker import Breaker
from dalsegno.model.trip import Kind, Trip
from dalsegno.store.hot import Event
from dalsegno.store.schema import breakers, processes

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half_open"


class Way(NamedTuple):
    """How a call got through."""

    epoch: int
    probe: bool = False
    failures: int = 0
    trips: int = 0


class Shut(NamedTuple):
    """It did not."""

    name: str
    reason: str
    until: datetime | None


def enter(tx: Tx, name: str, process_id: int, item_id: int | None) -> Way | Shut:
    """Let a call begin, or say why not. Half open, one call across all processes is the probe."""
    row = _locked(tx, name)
    now = tx.hot.database_now(tx)
    if row["state"] == OPEN:
        if row["resume_at"] is None or row["resume_at"] > now:
            return Shut(name, row["reason"], row["resume_at"])
        _half_open(tx, name, "clock")
    elif row["state"] == CLOSED:
        return Way(row["epoch"], failures=row["failures"], trips=row["trips"])
    elif row["probe_process_id"] is not None and _alive(tx, row["probe_process_id"], now):
        return Shut(name, f"{row['reason']}; a probe is on its way", None)
    _set(tx, name, probe_process_id=process_id, probe_item_id=item_id, probe_at=now)
    return Way(row["epoch"], probe=True, failures=row["failures"], trips=row["trips"])


def went_well(tx: Tx, name: str, way: Way) -> None:
    """The other side answered: a probe closes the breaker, and failures no longer come in a row."""
    row = _locked(tx, name)
    if row["epoch"] != way.epoch or (row["state"] == HALF_OPEN and not way.probe):
        return
    if row["state"] == HALF_OPEN:
        _close(tx, row, "probe")
    elif row["failures"]:
        _set(tx, name, failures=0)


def went_badly(tx: Tx, name: str, way: Way, policy: Breaker, trouble: Trip, now: datetime, text: str) -> Shut | Trip:
    """The other side was in trouble at `now`: enough to trip (or tripped already), or not enough yet."""
    row = _locked(tx, name)
    if row["epoch"] != way.epoch:
        return Shut(name, row["reason"] or trouble.reason, row["resume_at"] if row["state"] == OPEN else None)
    if not trouble.certain and not way.probe and row["failures"] + 1 < policy.outage_after:
        _set(tx, name, failures=row["failures"] + 1)
        return trouble
    _trip(tx, row, trouble, text, now)
    return Shut(name, trouble.reason, trouble.resume_at)


def came_to_nothing(tx: Tx, name: str, way: Way, *, tell: bool = True) -> None:
    """The call never took place (its item had to wait elsewhere, or was given back): the next one may be the probe."""
    if way.probe:
        tx.conn.execute(
            sa.update(breakers)
            .where(breakers.c.name == name, breakers.c.epoch == way.epoch, breakers.c.state == HALF_OPEN)
            .values(probe_process_id=None, probe_item_id=None, probe_at=None)
        )
        if tell:
            _tell(tx, name)


def forget_probe(tx: Tx, process_id: int, item_ids: Sequence[int], name: str) -> None:
    """As `came_to_nothing`, where it is not known whether the call was ever let in."""
    tx.conn.execute(
        sa.update(breakers)
        .where(
            breakers.c.name == name,
            breakers.c.probe_process_id == process_id,
            breakers.c.probe_item_id.in_(item_ids),
        )
        .values(probe_process_id=None, probe_item_id=None, probe_at=None)
    )


def calls(tx: Tx, name: str) -> tuple[int | None, float | None]:
    """How many calls it would let begin now (None: any number), and the seconds until that may change by itself."""
    row = tx.row(sa.select(breakers).where(breakers.c.name == name))
    if row is None or row["state"] == CLOSED:
        return None, None
    now = tx.hot.database_now(tx)
    if row["state"] == OPEN:
        if row["resume_at"] is None:
            return 0, None
        wait = (row["resume_at"] - now).total_seconds()
        return (0, wait) if wait > 0 else (1, None)
    probing = row["probe_process_id"] is not None and _alive(tx, row["probe_process_id"], now)
    return (0, None) if probing else (1, None)


def shut_services(tx: Tx) -> set[str]:
    """The services whose breaker lets no call begin now."""
    names = tx.conn.execute(
        sa.select(breakers.c.name).where(breakers.c.state != CLOSED, breakers.c.name.startswith("service:"))
    ).scalars()
    return {name[8:] for name in list(names) if calls(tx, name)[0] == 0}


def watch(tx: Tx) -> float | None:
    """The watchdog: what has cooled down is half open, probes of the dead are forgotten. Seconds to the next resume."""
    now = tx.hot.database_now(tx)
    soonest: float | None = None
    for seen in tx.rows(sa.select(breakers).where(breakers.c.state != CLOSED).order_by(breakers.c.name)):
        row = seen
        if _is_over(tx, row, now):
            row = _locked(tx, row["name"])  # somebody may have tripped it again, or probe it, since we looked
        if row["state"] == OPEN and row["resume_at"] is not None:
            wait = (row["resume_at"] - now).total_seconds()
            if wait <= 0:
                _half_open(tx, row["name"], "clock")
            elif soonest is None or wait < soonest:
                soonest = wait
        elif _is_over(tx, row, now):
            came_to_nothing(tx, row["name"], Way(row["epoch"], probe=True))
    return soonest


def _is_over(tx: Tx, row: sa.RowMapping, now: datetime) -> bool:
    """Its time has come, or that of its probe's process."""
    if row["state"] == OPEN:
        return row["resume_at"] is not None and row["resume_at"] <= now
    return row["probe_process_id"] is not None and not _alive(tx, row["probe_process_id"], now)


# --- by hand --------------------------------------------------------------------------------------


def trip(tx: Tx, name: str, reason: str, by: str, until: datetime | None = None) -> None:
    """Stop calls at once, until a moment or until somebody resets it."""
    if not name or len(name) > 200 or any(c.isspace() for c in name):
        raise InputInvalid(problem=f"A breaker's name has 1 to 200 characters and no spaces: {name!r}.")
    if not reason.strip():
        raise InputInvalid(problem="Say why: the reason is shown wherever somebody waits.")
    row = _locked(tx, name)
    _open(tx, row, tx.hot.database_now(tx), Kind.MANUAL, reason, None, until, by)


def probe(tx: Tx, name: str, by: str) -> None:
    """Try now instead of waiting: the next call is the probe."""
    row = _existing(tx, name)
    if row["state"] == CLOSED:
        fix = "Calls go through; there is nothing to probe."
        raise CommandRefused(what="Breaker", id=name, verb="probed", state="closed", fix=fix)
    if row["state"] == OPEN:
        _half_open(tx, name, by)


def reset(tx: Tx, name: str, by: str) -> None:
    """Close it, whatever it knows."""
    row = _existing(tx, name)
    if row["state"] != CLOSED or row["failures"]:
        _close(tx, row, by)


# --- changes --------------------------------------------------------------------------------------


def _trip(tx: Tx, row: sa.RowMapping, trouble: Trip, error: str, now: datetime) -> None:
    _open(tx, row, now, trouble.kind, trouble.reason, error, trouble.resume_at, "engine")
    if trouble.kind == Kind.OUTAGE:
        _set(tx, row["name"], trips=row["trips"] + 1)


def _open(
    tx: Tx,
    row: sa.RowMapping,
    now: datetime,
    kind: str,
    reason: str,
    error: str | None,
    until: datetime | None,
    by: str,
) -> None:
    _set(
        tx, row["name"], state=OPEN, epoch=row["epoch"] + 1, kind=kind, reason=reason, error=error, tripped_by=by,
        tripped_at=now, resume_at=until, failures=0,
        probe_process_id=None, probe_item_id=None, probe_at=None,
    )  # fmt: skip
    data = {"breaker": row["name"], "kind": kind, "resume_at": until and until.isoformat()}
    tx.hot.insert_events(tx, [Event("breaker_opened", by, level="warn", message=reason, data=data)])
    tx.announce("closed")
    _tell(tx, row["name"])


def _half_open(tx: Tx, name: str, by: str) -> None:
    _set(tx, name, state=HALF_OPEN, probe_process_id=None, probe_item_id=None, probe_at=None)
    tx.hot.insert_events(tx, [Event("breaker_half_open", by, data={"breaker": name})])
    _tell(tx, name)


def _close(tx: Tx, row: sa.RowMapping, by: str) -> None:
    _set(
        tx, row["name"], state=CLOSED, epoch=row["epoch"] + 1, kind=None, reason=None, error=None, tripped_by=None,
        tripped_at=None, resume_at=None, failures=0, trips=0, probe_process_id=None, probe_item_id=None, probe_at=None,
    )  # fmt: skip
    tx.hot.insert_events(tx, [Event("breaker_closed", by, data={"breaker": row["name"]})])
    _tell(tx, row["name"])


def _set(tx: Tx, name: str, **values: object) -> None:
    tx.conn.execute(sa.update(breakers).where(breakers.c.name == name).values(updated_at=tx.now, **values))


def _locked(tx: Tx, name: str) -> sa.RowMapping:
    """The breaker's row, made if it is not there: without one, a call could begin beside the first trip."""
    query = sa.select(breakers).where(breakers.c.name == name).with_for_update()
    row = tx.row(query)
    if row is None:
        tx.insert_new(breakers, {"name": name, "updated_at": tx.now})
        row = tx.row(query)
    assert row is not None
    return row


def _existing(tx: Tx, name: str) -> sa.RowMapping:
    row = tx.row(sa.select(breakers).where(breakers.c.name == name).with_for_update())
    if row is None:
        raise NotFound(what="breaker", id=name)
    return row


def _alive(tx: Tx, process_id: int, now: datetime) -> bool:
    until = tx.conn.execute(sa.select(processes.c.lease_until).where(processes.c.id == process_id)).scalar()
    return until is not None and until > now


def _tell(tx: Tx, name: str) -> None:
    tx.announce("flow")
    tx.announce(f"work:{name[8:]}" if name.startswith("service:") else "work")
