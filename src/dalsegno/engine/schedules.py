"""Schedules as people make them: added, changed, paused, resumed, run now, removed. The timekeeper starts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.engine.holds import UNSAID
from dalsegno.engine.orders import check_request
from dalsegno.engine.runs import last_job, record, skip_waiting
from dalsegno.engine.setback import reopen
from dalsegno.engine.submit import PRIORITIES, to_json
from dalsegno.errors import CommandRefused, CronInvalid, InputInvalid, NotFound, ScheduleBusy, ScheduleExists
from dalsegno.model.cron import parse_cron
from dalsegno.model.due import Decision, skipped
from dalsegno.model.suggest import did_you_mean
from dalsegno.store.hot import Event
from dalsegno.store.schema import CATCH_UPS, OVERLAPS, schedules

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

LONGEST_NAME = 100
MOST_CAUGHT_UP = 1000


@dataclass(frozen=True, slots=True)
class Schedule:
    """What an operator says of one."""

    name: str
    workflow: str
    cron: str
    time_zone: str = "UTC"
    request: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 100
    catch_up: str = "one"
    catch_up_most: int = 10
    overlap: str = "skip"

    def checked(self) -> Schedule:
        """In its one form, or an error that says what cannot be."""
        name = self.name.strip()
        if not name or len(name) > LONGEST_NAME or not name.isprintable() or "/" in name or name.isdecimal():
            wanted = f"1 to {LONGEST_NAME} characters, no slash, and is no number"
            raise InputInvalid(problem=f"The name of a schedule has {wanted}; not {name[:60]!r}.")
        cron = parse_cron(self.cron, self.time_zone)
        _among("catch-up", self.catch_up, CATCH_UPS)
        _among("overlap", self.overlap, OVERLAPS)
        if self.catch_up == "all" and self.overlap == "skip":
            said = "With overlap skip only the first of several missed runs could start: let them queue, or allow them."
            raise InputInvalid(problem=f"Catch-up all needs another overlap. {said}")
        if not 1 <= self.catch_up_most <= MOST_CAUGHT_UP:
            said = f"Catch-up starts 1 to {MOST_CAUGHT_UP:,} missed runs; not {self.catch_up_most}."
            raise InputInvalid(problem=said)
        if self.priority not in PRIORITIES:
            raise InputInvalid(problem=f"priority must be a whole number within ±1,000,000, not {self.priority!r}.")
        if not self.workflow:
            raise InputInvalid(problem="Say what it starts: the name of a template or a workflow.")
        check_request(self.request)
        to_json(dict(self.request), "what it orders")
        return replace(self, name=name, cron=cron.expression)


def _among(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputInvalid(problem=f'There is no {what} "{value:.60}".{did_you_mean(value, known)}')


def add(tx: Tx, schedule: Schedule, by: str) -> int:
    """Store one; it is due from now on. Returns its number."""
    wanted = schedule.checked()
    values = {**_columns(wanted), "created_by": by, "created_at": tx.now, "updated_by": by, "updated_at": tx.now}
    values["next_at"] = parse_cron(wanted.cron, wanted.time_zone).next(tx.hot.common_now(tx))
    number = tx.insert_new(schedules, values)
    if number is None:
        raise ScheduleExists(name=wanted.name)
    _tell(tx, "schedule_added", wanted.name, by, cron=wanted.cron, time_zone=wanted.time_zone)
    return int(number)


def change(tx: Tx, number: int, changes: Mapping[str, Any], by: str) -> None:
    """Some of what was said of it is otherwise from now on. Another time to be due counts from now."""
    row = _locked(tx, number)
    was = Schedule(**{name: row[name] for name in Schedule.__dataclass_fields__})
    wanted = replace(was, **changes).checked()
    values = {**_columns(wanted), "updated_by": by, "updated_at": tx.now}
    if row["paused_at"] is None and (wanted.cron, wanted.time_zone) != (was.cron, was.time_zone):
        _give_up(tx, row, "changed", "The schedule was changed before an engine had taken it up.")
        now = tx.hot.common_now(tx)
        reopen(tx, row, now)
        values["next_at"] = parse_cron(wanted.cron, wanted.time_zone).next(now)
    taken = sa.select(schedules.c.id).where(schedules.c.name == wanted.name, schedules.c.id != number)
    if tx.row(taken) is not None:
        raise ScheduleExists(name=wanted.name)
    tx.conn.execute(sa.update(schedules).where(schedules.c.id == number).values(**values))
    differs = sorted(name for name in Schedule.__dataclass_fields__ if getattr(was, name) != getattr(wanted, name))
    if differs:
        _tell(tx, "schedule_changed", wanted.name, by, changed=differs)


def pause(tx: Tx, number: int, by: str, reason: str | None = None) -> None:
    """Nothing is due until it is resumed, and what waits is not started. Again: the newer reason counts."""
    row = _locked(tx, number)
    why = reason or UNSAID
    values = {"paused_at": row["paused_at"] or tx.now, "paused_by": by, "pause_reason": why, "next_at": None}
    tx.conn.execute(sa.update(schedules).where(schedules.c.id == number).values(**values, updated_at=tx.now))
    said = f"The schedule was paused: {why}"
    skip_waiting(tx, row, "paused", said)
    _give_up(tx, row, "paused", said)
    _tell(tx, "schedule_paused", row["name"], by, message=why, level="warn")


def resume(tx: Tx, number: int, by: str) -> None:
    """It is due from now on; what came while it was paused was not missed. Also after a clock was put right."""
    row, now = _locked(tx, number), tx.hot.common_now(tx)
    values = {"paused_at": None, "paused_by": None, "pause_reason": None}
    next_at = parse_cron(row["cron"], row["time_zone"]).next(now)
    reopen(tx, row, now)
    if row["next_at"] is not None and next_at is not None:
        next_at = min(next_at, row["next_at"])  # it was not paused: what is due already stays due
    tx.conn.execute(
        sa.update(schedules).where(schedules.c.id == number).values(**values, next_at=next_at, updated_at=tx.now)
    )
    _tell(tx, "schedule_resumed", row["name"], by)


def remove(tx: Tx, number: int, by: str) -> None:
    """It and the record of its runs; the jobs they started stay."""
    row = _locked(tx, number)
    tx.conn.execute(sa.delete(schedules).where(schedules.c.id == number))
    _tell(tx, "schedule_removed", row["name"], by, cron=row["cron"], workflow=row["workflow"])


def run_now(tx: Tx, number: int, by: str) -> int:
    """One run besides those that the clock starts, also of a paused one; an engine takes it up. Returns its number."""
    row = _locked(tx, number)
    job = last_job(tx, row)
    if job is not None and row["overlap"] == "skip":
        raise ScheduleBusy(name=row["name"], job=job["id"], state=job["status"])
    now = tx.hot.common_now(tx)
    at = now if now.microsecond else now + timedelta(microseconds=1)  # never in the place of a due time
    run = record(tx, row, at, "waiting", reason="asked", requested_by=by)
    if run is None:
        fix = "Ask again in a moment."
        raise CommandRefused(what="Schedule", id=row["name"], verb="run", state="being run right now", fix=fix)
    _tell(tx, "schedule_asked", row["name"], by)
    return run


def _give_up(tx: Tx, row: sa.RowMapping, reason: str, message: str) -> None:
    """What was due and not yet decided about is skipped."""
    first, now = row["next_at"], tx.hot.common_now(tx)
    if first is None or first > now:
        return
    try:
        decision = skipped(parse_cron(row["cron"], row["time_zone"]), first, now) or Decision(first, False)
    except (CronInvalid, InputInvalid):
        decision = Decision(first, False)
    record(
        tx, row, decision.due_at, "skipped",
        reason=reason, message=message, count=decision.count, last_due_at=decision.last_due_at,
    )  # fmt: skip


def _locked(tx: Tx, number: int) -> sa.RowMapping:
    row = tx.row(sa.select(schedules).where(schedules.c.id == number).with_for_update())
    if row is None:
        raise NotFound(what="schedule", id=number)
    return row


def _columns(schedule: Schedule) -> dict[str, Any]:
    values = {name: getattr(schedule, name) for name in Schedule.__dataclass_fields__}
    return {**values, "request": dict(schedule.request)}


def _tell(
    tx: Tx, kind: str, name: str, by: str, *, message: str | None = None, level: str = "info", **data: Any
) -> None:
    tx.hot.insert_events(tx, [Event(kind, by, level=level, message=message, data={"schedule": name, **data})])
    tx.announce("schedules")
