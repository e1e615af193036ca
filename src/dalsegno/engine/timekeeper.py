"""The timekeeper: starts what schedules say when they say it. (The scheduler is another: it admits jobs to lanes.)

What is to be done about a due time is decided on a snapshot, and done in a transaction that claims the schedule's row,
moves its `next_at` on, submits the job and writes down what became of it: of two engines one finds it done, and of a
crash nothing is left or all of it. A due time is behind `next_at` for good, whatever the clock does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.engine.looper import Looper
from dalsegno.engine.orders import Order, Prepare, Ready, Refused, made_ready, refusal, submit_ready
from dalsegno.engine.runs import WAITING, last_job, missed, record, settle, waiting
from dalsegno.engine.schedules import pause
from dalsegno.engine.setback import mend
from dalsegno.errors import CronInvalid, InputInvalid
from dalsegno.model.cron import parse_cron
from dalsegno.model.due import Decision, decide, meet, room_to_wait
from dalsegno.model.states import JOB_FINISHED
from dalsegno.store.hot import Event
from dalsegno.store.schema import UtcTime, jobs, schedule_runs, schedules

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

logger = logging.getLogger("dalsegno.engine")

NAME = "timekeeper"
TOLD = 10
"""Names in a line of the log."""
BATCH = 100
BREATHER = 0.02
"""Seconds after which to look again at what another engine has in its hands."""


Make = Callable[[sa.RowMapping], Ready | Refused]
"""What a schedule orders, made ready."""
Ours = Callable[[Order], bool]
"""Whether this engine can make an order ready; where it cannot, the schedule is left to another engine."""


class Timekeeper(Looper):
    name = NAME

    def __init__(self, store: Store, prepare: Prepare, secrets: Sequence[str] = (), ours: Ours | None = None) -> None:
        super().__init__()
        self.interval = store.poll_seconds  # a machine that slept, or whose clock was moved, is that much late
        self._store = store
        self._prepare = prepare
        self._secrets = secrets
        self._ours = ours
        self._latest: datetime | None = None
        """What the clock said last. It may have been ahead before this process began."""

    def tick(self) -> float | None:
        next_at = keep_time(self._store, self._prepare, lambda: self.stopping, self._secrets, self._ours)
        now = self._store.read(_now)
        if self._latest is None or now < self._latest:
            mended = mend(self._store, NAME, lambda: self.stopping)
            if mended:
                logger.warning("a clock had been ahead; schedules go on from now: %s", ", ".join(mended[:TOLD]))
                next_at = self._store.read(_following)
        self._latest = now
        if next_at is None:
            return None
        return min(self.interval, max(BREATHER, (next_at - now).total_seconds()))


def keep_time(
    store: Store,
    prepare: Prepare,
    stopping: Callable[[], bool] = lambda: False,
    secrets: Sequence[str] = (),
    ours: Ours | None = None,
) -> datetime | None:
    """Do what is due; returns when something is due next, of what is not left to other engines."""

    def make(row: sa.RowMapping) -> Ready | Refused:
        return made_ready(prepare, _order(row), secrets)

    def mine(row: sa.RowMapping) -> bool:
        return ours is None or ours(_order(row))

    next_at, some_wait, now = store.read(_look)
    if next_at is not None and next_at <= now:
        kept = [_keep(store, make, row, now) for row in _pages(store, _DUE, "next_at", stopping) if mine(row)]
        next_at = store.read(_following if all(kept) else _next)
    if some_wait:
        for row in _pages(store, _CAN_START, "due_at", stopping):
            if mine(row):
                _take_up(store, make, row)
    return next_at


def _order(row: sa.RowMapping) -> Order:
    return Order(row["workflow"], row["request"])


def _pages(store: Store, query: sa.Select[Any], order: str, stopping: Callable[[], bool]) -> Iterator[sa.RowMapping]:
    """All of them, each once: what is left to others must not stand in the way of what comes after it."""
    after: dict[str, Any] = {"at": FIRST, "id": 0}
    while True:
        page = store.read(lambda tx, after=after: tx.rows(query, {"now": _now(tx), **after}))  # type: ignore[misc]
        for row in page:
            if stopping():
                return
            yield row
        if len(page) < BATCH:
            return
        after = {"at": page[-1][order], "id": page[-1]["id"]}


# Two index entries, however many schedules there are.
_LOOK = sa.select(
    sa.select(sa.func.min(schedules.c.next_at)).where(schedules.c.next_at.is_not(None)).scalar_subquery().label("next"),
    sa.exists(sa.select(schedule_runs.c.id).where(WAITING)).label("waiting"),
)
_NOW, _AT = sa.bindparam("now", type_=UtcTime), sa.bindparam("at", type_=UtcTime)
_ID: sa.BindParameter[int] = sa.bindparam("id")
FIRST = datetime(1, 1, 2, tzinfo=UTC)
"""Before anything that was ever due."""
_DUE = (
    sa.select(schedules)
    .where(
        schedules.c.next_at.is_not(None),
        schedules.c.next_at <= _NOW,
        sa.tuple_(schedules.c.next_at, schedules.c.id) > sa.tuple_(_AT, _ID),
    )
    .order_by(schedules.c.next_at, schedules.c.id)
    .limit(BATCH)
)
# Runs that wait for nobody any more, the oldest first.
_CAN_START = (
    sa.select(
        schedule_runs.c.id,
        schedule_runs.c.schedule_id,
        schedules.c.workflow,
        schedules.c.request,
        schedules.c.updated_at,
        schedule_runs.c.due_at,
    )
    .join(schedules, schedules.c.id == schedule_runs.c.schedule_id)
    .outerjoin(jobs, jobs.c.id == schedules.c.last_job_id)
    .where(
        WAITING,
        sa.tuple_(schedule_runs.c.due_at, schedule_runs.c.id) > sa.tuple_(_AT, _ID),
        sa.or_(schedules.c.overlap != "queue", jobs.c.id.is_(None), jobs.c.status.in_(sorted(JOB_FINISHED))),
    )
    .order_by(schedule_runs.c.due_at, schedule_runs.c.id)
    .limit(BATCH)
)

_FOLLOWING = sa.select(sa.func.min(schedules.c.next_at)).where(schedules.c.next_at > _NOW)


def _now(tx: Tx) -> datetime:
    """What is due is so for all machines at once."""
    return tx.hot.common_now(tx)


def _look(tx: Tx) -> tuple[datetime | None, bool, datetime]:
    row = tx.row(_LOOK)
    assert row is not None
    return row["next"], row["waiting"], _now(tx)


def _next(tx: Tx) -> datetime | None:
    """Also what is due and in the hands of another engine."""
    return _look(tx)[0]


def _following(tx: Tx) -> datetime | None:
    """After what is due: that is left to other engines."""
    found: datetime | None = tx.conn.execute(_FOLLOWING, {"now": _now(tx)}).scalar()
    return found


# --- what is due ----------------------------------------------------------------------------------


def _keep(store: Store, make: Make, row: sa.RowMapping, now: datetime) -> bool:
    """Everything that is due of one schedule, a transaction each; False: another engine was there first."""
    try:
        cron = parse_cron(row["cron"], row["time_zone"])
    except (CronInvalid, InputInvalid) as error:  # a zone that this machine does not know
        why = str(error)
        return store.write("schedule", lambda tx: _stop(tx, row, why))
    first = row["next_at"]
    decisions, next_at = decide(cron, first, now, row["catch_up"], row["catch_up_most"])
    if not decisions:
        return first != next_at and _done(store, row, first, None, next_at, None)
    ready = make(row) if any(each.start for each in decisions) else None
    for decision, then in zip(decisions, [*(each.due_at for each in decisions[1:]), next_at], strict=True):
        if not _done(store, row, first, decision, then, ready):
            return False
        first = then
    return True


def _done(
    store: Store, row: sa.RowMapping, expected: datetime, decision: Decision | None, then: datetime | None,
    ready: Ready | Refused | None,
) -> bool:  # fmt: skip
    try:
        return store.write("schedule", lambda tx: _apply(tx, row, expected, decision, then, ready))
    except Exception as error:
        refused = refusal(error)
    return store.write("schedule", lambda tx: _apply(tx, row, expected, decision, then, refused))


def _apply(
    tx: Tx, row: sa.RowMapping, expected: datetime, decision: Decision | None, then: datetime | None,
    ready: Ready | Refused | None,
) -> bool:  # fmt: skip
    """What was decided, if nobody has done so yet, nor changed what was decided about."""
    schedule = _claimed(tx, row["id"], row["updated_at"], schedules.c.next_at == expected)
    if schedule is None:
        return False
    number = row["id"]
    tx.conn.execute(sa.update(schedules).where(schedules.c.id == number).values(next_at=then))
    if decision is None or _known(tx, schedule, decision.due_at):
        return True
    if not decision.start:
        _skip(tx, schedule, decision, "missed", missed(decision))
        return True
    job, waits = last_job(tx, schedule), waiting(tx, number)
    room = room_to_wait(schedule["catch_up"], schedule["catch_up_most"])
    match meet(schedule["overlap"], busy=job is not None, waiting=waits, room=room):
        case "start":
            _start(tx, schedule, decision.due_at, ready)
        case "wait":
            record(tx, schedule, decision.due_at, "waiting", reason="overlap", message=_behind(job))
            _tell(tx, "schedule_waits", schedule, decision.due_at, message=_behind(job))
        case "overlap":
            _skip(tx, schedule, decision, "overlap", _behind(job))
        case "full":
            _skip(
                tx, schedule, decision, "full", f"{waits:,} of its runs wait already, and there is room for {room:,}."
            )
    return True


def _stop(tx: Tx, row: sa.RowMapping, why: str) -> bool:
    if _claimed(tx, row["id"], row["updated_at"], schedules.c.next_at == row["next_at"]) is None:
        return False
    pause(tx, row["id"], NAME, why)
    return True


def _claimed(tx: Tx, number: int, updated_at: datetime, *unless: sa.ColumnElement[bool]) -> sa.RowMapping | None:
    """The schedule's row, for this transaction alone, while it is as it was looked at."""
    as_seen = (schedules.c.id == number, schedules.c.updated_at == updated_at, *unless)
    return tx.row(sa.select(schedules).where(*as_seen).with_for_update(skip_locked=True))


def _known(tx: Tx, schedule: sa.RowMapping, due_at: datetime) -> bool:
    """Decided before a clock was put back, and the schedule resumed or changed after that."""
    first, last = schedule_runs.c.due_at, schedule_runs.c.last_due_at
    own = (schedule_runs.c.schedule_id == schedule["id"], first <= due_at, sa.or_(first == due_at, last >= due_at))
    return tx.row(sa.select(schedule_runs.c.id).where(*own).limit(1)) is not None


def _behind(job: sa.RowMapping | None) -> str:
    return "Others of its runs wait already." if job is None else f"Job {job['id']} was still {job['status']}."


def _skip(tx: Tx, schedule: sa.RowMapping, decision: Decision, reason: str, message: str) -> None:
    record(
        tx, schedule, decision.due_at, "skipped",
        reason=reason, message=message, count=decision.count, last_due_at=decision.last_due_at,
    )  # fmt: skip
    _tell(tx, "schedule_skipped", schedule, decision.due_at, message=message, level="warn", reason=reason)


# --- what waits -----------------------------------------------------------------------------------


def _take_up(store: Store, make: Make, row: sa.RowMapping) -> None:
    """A run that was asked for, or that waited for the one before it."""
    ready = make(row)
    try:
        store.write("schedule", lambda tx: _begin(tx, row, ready))
    except Exception as error:
        refused = refusal(error)
        store.write("schedule", lambda tx: _begin(tx, row, refused))


def _begin(tx: Tx, row: sa.RowMapping, ready: Ready | Refused) -> None:
    schedule = _claimed(tx, row["schedule_id"], row["updated_at"])
    run = tx.row(sa.select(schedule_runs).where(schedule_runs.c.id == row["id"], WAITING))
    if schedule is None or run is None:
        return
    job = last_job(tx, schedule)
    if job is None or schedule["overlap"] == "allow":
        _start(tx, schedule, run["due_at"], ready, run)
    elif schedule["overlap"] == "skip":
        settle(tx, schedule, run, "skipped", reason="overlap", message=_behind(job))
        _tell(tx, "schedule_skipped", schedule, run["due_at"], message=_behind(job), level="warn", reason="overlap")


# --- starting -------------------------------------------------------------------------------------


def _start(
    tx: Tx, schedule: sa.RowMapping, due_at: datetime, ready: Ready | Refused | None, run: sa.RowMapping | None = None
) -> None:
    assert ready is not None
    became: dict[str, Any] = {}
    if isinstance(ready, Refused):
        outcome, became = "failed", {"reason": ready.code, "message": ready.message}
    else:
        by = f"schedule {schedule['name']}"
        asked_by = run and run["requested_by"]
        job_id = submit_ready(tx, ready, schedule["priority"], f"{asked_by} via {by}" if asked_by else by)
        outcome, became = "started", {"job_id": job_id}
    if run is None:
        record(tx, schedule, due_at, outcome, **became)
    else:
        settle(tx, schedule, run, outcome, **became)
    failed = outcome == "failed"
    _tell(
        tx, f"schedule_{outcome}", schedule, due_at, job_id=became.get("job_id"),
        message=became.get("message"), level="error" if failed else "info",
        **({"code": became["reason"]} if failed else {}),
    )  # fmt: skip


def _tell(
    tx: Tx, kind: str, schedule: sa.RowMapping, due_at: datetime, *, job_id: int | None = None,
    message: str | None = None, level: str = "info", **more: Any,
) -> None:  # fmt: skip
    data = {"schedule": schedule["name"], "due_at": due_at.isoformat(), **more}
    tx.hot.insert_events(tx, [Event(kind, NAME, job_id, level=level, message=message, data=data)])
