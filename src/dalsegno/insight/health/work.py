"""Work that stands still: what is held, breakers that have been open for long, items that nobody takes, commands
that nobody applies, schedules that start nothing."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa

from dalsegno.engine.breakers import CLOSED
from dalsegno.engine.holds import ENGINE
from dalsegno.engine.setback import comes
from dalsegno.engine.timekeeper import NAME as TIMEKEEPER
from dalsegno.insight.explain import explain_stage
from dalsegno.insight.health.finding import Finding, found
from dalsegno.insight.holds import list_holds
from dalsegno.model.due import ON_TIME
from dalsegno.store.schema import breakers, commands, schedule_runs, schedules, stages
from dalsegno.store.store import Tx

HELD = {"everything": "held_all", "service": "held_service", "lane": "held_lane"}
LONG_OPEN = timedelta(hours=1)
STUCK = timedelta(minutes=5)
"""A stage that is ready that long, and nobody has any of it in hand."""
WAITS = timedelta(minutes=1)
SERVICES = 50
EXPLAINED = 5
"""Stages whose gates are looked at: one for each service, the first in line."""
NOTHING, LOOPS = "nothing is in its way.", "Look at the loops of the engine"
ON_PURPOSE = frozenset({"all_held", "lane_held", "service_held", "job_paused", "stage_paused", "breaker", "order"})
"""Gates that are told elsewhere, or are no trouble."""


def look(tx: Tx) -> list[Finding]:
    findings = [*_held(tx), *_breakers(tx), *_stuck(tx), *_commands(tx), *_schedules(tx)]
    return findings or [found("work_fine", "ok", "work")]


def _held(tx: Tx) -> list[Finding]:
    return [
        found(
            HELD[line.level], "warning" if line.by in ENGINE else "note", f"{line.level}:{line.name or ''}", line.since,
            name=line.name, reason=line.reason, by=line.by, target=line.target,
        )
        for line in list_holds(tx)
        if line.level in HELD
    ]  # fmt: skip


def _breakers(tx: Tx) -> list[Finding]:
    open_for_long = sa.select(breakers).where(breakers.c.state != CLOSED, breakers.c.tripped_at < tx.now - LONG_OPEN)
    return [
        found(
            "breaker_open_long", "warning", f"breaker:{row['name']}", row["tripped_at"], name=row["name"],
            open_seconds=(tx.now - row["tripped_at"]).total_seconds(), reason=row["reason"],
        )
        for row in tx.rows(open_for_long.order_by(breakers.c.name).limit(SERVICES))
    ]  # fmt: skip


_SERVICES = sa.select(stages.c.service).where(stages.c.claimable).distinct().limit(SERVICES)
_FIRST = (
    sa.select(stages.c.id, stages.c.key, stages.c.job_id, stages.c.ready, stages.c.started_at)
    .where(
        stages.c.claimable,
        stages.c.service == sa.bindparam("service"),
        stages.c.claimed + stages.c.running == 0,
    )
    .order_by(stages.c.priority, stages.c.order_seq, stages.c.id)
    .limit(1)
)


def _stuck(tx: Tx) -> list[Finding]:
    """Of each service the first stage in line: everything behind it waits for the same."""
    findings: list[Finding] = []
    for service in tx.conn.execute(_SERVICES).scalars().all():
        row = tx.row(_FIRST, {"service": service})
        if row is None or row["started_at"] is None or tx.now - row["started_at"] < STUCK:
            continue
        told = explain_stage(tx, row["id"]).first_closed
        if (told is not None and told.code in ON_PURPOSE) or len(findings) == EXPLAINED:
            continue
        findings.append(
            found(
                "queue_stuck", "warning", f"stage:{row['job_id']}/{row['key']}",
                row["started_at"] if told is None else told.since or row["started_at"],
                stage=row["key"], job_id=row["job_id"], ready=row["ready"], service=service,
                gate=NOTHING if told is None else told.says, opens=LOOPS if told is None else told.opens,
                gate_code=None if told is None else told.code, gate_data={} if told is None else told.data,
            )
        )  # fmt: skip
    return findings


def _commands(tx: Tx) -> list[Finding]:
    oldest = (
        sa.select(commands.c.id, commands.c.type, commands.c.created_at)
        .where(sa.text("status = 'pending'"), commands.c.created_at < tx.now - WAITS, commands.c.progress.is_(None))
        .order_by(commands.c.id)
        .limit(1)
    )
    return [
        found(
            "command_waits", "warning", f"command:{row['id']}", row["created_at"], command=row["id"], type=row["type"],
            waits_seconds=(tx.now - row["created_at"]).total_seconds(),
        )
        for row in tx.rows(oldest)
    ]  # fmt: skip


def _schedules(tx: Tx) -> list[Finding]:
    """Those that nobody keeps, that a wrong clock sent far away, that stopped, and whose last run could not start."""
    names, now = (schedules.c.id, schedules.c.name), tx.hot.common_now(tx)
    far = sa.select(schedules).where(schedules.c.next_at > now).order_by(schedules.c.next_at.desc())
    late = (
        sa.select(*names, schedules.c.next_at, schedules.c.workflow)
        .where(schedules.c.next_at.is_not(None), schedules.c.next_at < now - 2 * ON_TIME)
        .order_by(schedules.c.next_at)
        .limit(1)
    )
    stopped = sa.select(*names, schedules.c.paused_at, schedules.c.pause_reason).where(
        schedules.c.paused_by == TIMEKEEPER
    )
    failed = (
        sa.select(*names, schedule_runs.c.due_at, schedule_runs.c.message)
        .join(schedule_runs, schedule_runs.c.id == schedules.c.last_run_id)
        .where(schedule_runs.c.outcome == "failed")
    )
    return [
        *(
            found("schedule_late", "warning", f"schedule:{row['id']}", row["next_at"], name=row["name"],
                  workflow=row["workflow"], late_seconds=(now - row["next_at"]).total_seconds())
            for row in tx.rows(late)
        ),
        *(
            found("schedule_far", "error", f"schedule:{row['id']}", name=row["name"], schedule_id=row["id"],
                  next_at=row["next_at"], comes_at=first)
            for row in tx.rows(far.limit(SERVICES))
            if (first := comes(row, now)) is not None
        ),
        *(
            found("schedule_stopped", "error", f"schedule:{row['id']}", row["paused_at"], name=row["name"],
                  schedule_id=row["id"], reason=row["pause_reason"])
            for row in tx.rows(stopped.order_by(schedules.c.id).limit(SERVICES))
        ),
        *(
            found("schedule_failed", "error", f"schedule:{row['id']}", row["due_at"], name=row["name"],
                  schedule_id=row["id"], problem=row["message"])
            for row in tx.rows(failed.order_by(schedules.c.id).limit(SERVICES))
        ),
    ]  # fmt: skip
