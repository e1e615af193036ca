"""Who did what, and when: commands, and whatever else people changed without one.

Two lists that are read side by side, newest first; a cursor says how far each has come.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from dalsegno.insight.grammar import Grammar, Key, age, containing, grammar, number, word
from dalsegno.insight.query import Query
from dalsegno.insight.walk import (
    SECONDS,
    TEXT_SECONDS,
    Budget,
    Page,
    Place,
    Walk,
    Walked,
    begin,
    cursor_of,
    place_of,
    walk,
)
from dalsegno.model.records import CommandRecord, EventRecord
from dalsegno.store.schema import commands, events
from dalsegno.store.store import Tx

ACTS = (
    "job_submitted", "limit_set", "limit_cleared", "setting_changed", "breaker_opened", "breaker_half_open",
    "breaker_closed", "schedule_added", "schedule_changed", "schedule_paused", "schedule_resumed", "schedule_removed",
    "schedule_asked", "hold_set", "hold_released", "lane_held", "lane_released", "config_saved", "config_adopted",
    "config_applied", "console_signed_in", "console_signed_out",
)  # fmt: skip
"""Events that are somebody's doing."""
END = 2**63 - 1
THEMSELVES = ("engine", "service", "scheduler", "rescuer", "planner", "follower", "commander", "settler", "clock",
              "probe", "timekeeper")  # fmt: skip
"""Those that act without being asked."""


@dataclass(frozen=True, slots=True)
class Act:
    id: str
    """`command-12`, `event-345`."""
    at: datetime
    by: str
    what: str
    """A kind of command or of event."""
    job_id: int | None
    item_id: int | None
    said: str | None
    """Why, or what came in its way."""
    data: Any
    """What it was given, or what it changed."""
    status: str | None
    """What became of a command."""
    count: int | None
    """How many items a command changed; None where it is not about many."""
    place: Place


def _keys(table: sa.Table, kind: sa.Column[Any], by: sa.Column[Any], at: sa.Column[Any]) -> tuple[Key, ...]:
    return (
        Key("by", "Who did it.", word(by)),
        Key("kind", "What was done.", word(kind)),
        Key("job", "The number of its job.", number(table.c.job_id), kind="number"),
        Key("age", "How long ago.", age(at), kind="age"),
    )


AUDIT = grammar(
    "acts",
    containing(commands.c.requested_by, commands.c.type, commands.c.error_message),
    *_keys(commands, commands.c.type, commands.c.requested_by, commands.c.created_at),
)
_AMONG_EVENTS = grammar(
    "acts",
    containing(events.c.source, events.c.type, events.c.message),
    *_keys(events, events.c.type, events.c.source, events.c.at),
)


def find_acts(
    tx: Tx, query: Query, *, among: Grammar = AUDIT, cursor: str | None = None, limit: int = 50
) -> Page[Act]:  # fmt: skip
    """A page of what people did, newest first."""
    # As the index has them of events that are no item's: in commit order on PostgreSQL, by number on SQLite.
    order = (events.c.tx, events.c.id) if tx.shared else (events.c.id,)
    place = place_of(cursor, 1 + len(order)) or (END,) * (1 + len(order))
    seconds = TEXT_SECONDS if query.of("") else SECONDS
    asked = Walk(sa.select(commands), (commands.c.id,), (), among.where(query, tx.now))
    own = (events.c.type.in_(ACTS), events.c.source.not_in(THEMSELVES), *_AMONG_EVENTS.where(query, tx.now))
    done = Walk(sa.select(events), order, (events.c.item_id.is_(None),), own)
    first = walk(tx, asked, after=place[:1], limit=limit + 1, budget=begin(tx, seconds))
    second = walk(tx, done, after=place[1:], limit=limit + 1, budget=Budget(seconds))
    theirs, others = [_command(row) for row in first.rows], [_event(row, len(order)) for row in second.rows]
    shown = sorted((*theirs, *others), key=lambda act: act.at, reverse=True)[:limit]
    more = len(shown) < len(theirs) + len(others) or first.more or second.more
    onward = (*_onward(first, theirs, shown, place[:1]), *_onward(second, others, shown, place[1:]))
    short = more and len(shown) < limit
    return Page(shown, cursor_of(onward) if more else None, partial=short, looked=first.looked + second.looked)


def _onward(walked: Walked, found: list[Act], shown: list[Act], before: Place) -> Place:
    """Where one of the two lists goes on: after what is shown of it, or where all is shown, after all it looked at."""
    mine = [act for act in found if act in shown]
    if len(mine) < len(found):
        return mine[-1].place if mine else before
    return (walked.place or before) if walked.more else (0,) * len(before)


def _command(row: sa.RowMapping) -> Act:
    command = CommandRecord.model_validate(dict(row))
    progress = command.progress if isinstance(command.progress, dict) else {}
    return Act(
        f"command-{command.id}", command.created_at, command.requested_by or "", command.type, command.job_id,
        command.item_id, command.error_message, command.payload, command.status, progress.get("done"), (command.id,),
    )  # fmt: skip


def _event(row: sa.RowMapping, keys: int) -> Act:
    event = EventRecord.model_validate(dict(row))
    return Act(
        f"event-{event.id}", event.at, event.source, event.type, event.job_id, None, event.message, event.data, None,
        None, (event.tx, event.id)[-keys:],
    )  # fmt: skip
