"""The usher: calls items that wait in line at a limit or a breaker back when there is room, and watches breakers.

It looks whenever something moved, and at least once a minute, so that nothing depends on having heard of it: a breaker
whose time came while everything was down is found at the next start.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.engine import breakers
from dalsegno.engine.looper import Looper
from dalsegno.model.states import ITEM_SATISFIED, ItemStatus
from dalsegno.store.hot import Delta
from dalsegno.store.schema import items, stages, waits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dalsegno.engine.flow import Flow
    from dalsegno.engine.limits import Room
    from dalsegno.store.store import Store, Tx

ITEM_FINISHED = ITEM_SATISFIED | {ItemStatus.FAILED, ItemStatus.CANCELED}
WATCHDOG = 60.0
BATCH = 500
GRACE = timedelta(seconds=30)
"""An item called back that has not asked for its permit by then is no longer counted as on its way."""


class Usher(Looper):
    name = "usher"
    interval = WATCHDOG

    def __init__(self, store: Store, flow: Flow) -> None:
        super().__init__()
        self._store = store
        self._flow = flow

    def tick(self) -> float | None:
        self._flow.unsaid.catch_up()
        soonest = self._store.write("breakers.watch", breakers.watch)
        names = self._store.read(lines)
        calls = [partial(call_back, name=name, room_of=self._flow.room) for name in names]
        waits_left = [self._store.write("usher", call) for call in calls]
        delays = [WATCHDOG, *(delay for delay in (soonest, *waits_left) if delay is not None)]
        if names:
            delays.append(self._store.poll_seconds)
        return max(0.0, min(delays))


def _loose(column: sa.ColumnElement[object], *where: sa.ColumnElement[bool]) -> sa.Select[tuple[object]]:
    """The distinct values of an indexed column, one probe each instead of a walk over everything that waits."""
    first = sa.select(sa.func.min(column).label("value")).where(*where).cte("line", recursive=True)
    following = sa.select(sa.func.min(column)).where(*where, column > first.c.value).scalar_subquery()
    line = first.union_all(sa.select(following).where(first.c.value.is_not(None)))
    return sa.select(line.c.value).where(line.c.value.is_not(None))


_LINES = _loose(waits.c.name, waits.c.offered_at.is_(None))
_OFFERED = _loose(waits.c.name, waits.c.offered_at.is_not(None))
_STAGES = _loose(waits.c.stage_id, waits.c.offered_at.is_(None), waits.c.name == sa.bindparam("which"))


def lines(tx: Tx) -> list[str]:
    """The limits and breakers somebody waits at, or was called back to."""
    return sorted({str(name) for query in (_LINES, _OFFERED) for name in tx.conn.execute(query).scalars()})


def call_back(tx: Tx, name: str, room_of: Callable[[Tx, Sequence[str]], Room]) -> float | None:
    """As many items as the limit has room for become ready again, in the global order.

    Returns the seconds until there is room again, where a clock decides that; 0: call again, there is more.
    """
    _forget_strays(tx, name)
    # Counted before the room is measured: who gets in meanwhile is then counted twice, and nobody is called in vain.
    on_the_way = (
        sa.select(sa.func.count())
        .select_from(waits.join(items, items.c.id == waits.c.item_id))
        .where(waits.c.name == name, waits.c.offered_at > tx.now - GRACE, items.c.status.not_in(sorted(ITEM_FINISHED)))
    )
    called = tx.conn.execute(on_the_way).scalar_one()
    can, delay = breakers.calls(tx, name)
    if can != 0:
        room = room_of(tx, (name,))
        if room.calls is not None and (can is None or room.calls < can):
            can, delay = room.calls, room.delay
    if can == 0:
        return delay
    want = BATCH if can is None else min(BATCH, can - called)
    if want <= 0:
        return None
    found = tx.rows(
        sa.select(stages.c.id, stages.c.service)
        # Who was called and not claimed (nobody offers its service, or it is held) need not be followed by more.
        .where(stages.c.id.in_(_STAGES.scalar_subquery()), stages.c.open, stages.c.returned < want)
        .order_by(stages.c.priority, stages.c.order_seq, stages.c.id)
        .limit(want),
        {"which": name},
    )
    ids = [row["id"] for row in found]
    tx.rows(sa.select(stages.c.id).where(stages.c.id.in_(ids)).order_by(stages.c.id).with_for_update())  # as all do
    left = want
    for stage in found:
        if left <= 0:
            break
        left -= _call_some(tx, name, stage, left)
    return 0.0 if can is None and left == 0 else None


def _call_some(tx: Tx, name: str, stage: sa.RowMapping, most: int) -> int:
    first = (
        sa.select(waits.c.item_id)
        .where(waits.c.name == name, waits.c.stage_id == stage["id"], waits.c.offered_at.is_(None))
        .order_by(waits.c.seq)
        .limit(most)
        .with_for_update(skip_locked=True)
    )
    called = list(
        tx.conn.execute(
            sa.update(waits)
            .where(waits.c.item_id.in_(first), waits.c.offered_at.is_(None))
            .values(offered_at=tx.now)
            .returning(waits.c.item_id)
        ).scalars()
    )
    ready = list(
        tx.conn.execute(
            sa.update(items)
            .where(
                items.c.id.in_(called),
                items.c.status == ItemStatus.PENDING,
                items.c.due_at.is_(None),
                items.c.returned.is_(False),
            )
            .values(returned=True)
            .returning(items.c.id)
        ).scalars()
    )
    if strays := set(called) - set(ready):  # canceled, or started over, while they waited
        tx.conn.execute(sa.delete(waits).where(waits.c.item_id.in_(strays)))
    delta = Delta()
    delta.ready = delta.returned = len(ready)
    tx.hot.adjust(tx, {stage["id"]: delta})
    tx.announce(f"work:{stage['service']}")
    return len(ready)


def _forget_strays(tx: Tx, name: str) -> None:
    """Called back long ago, and never asked for the permit: whoever is done or starts elsewhere left the line."""
    gone = (
        sa.select(waits.c.item_id)
        .join(items, items.c.id == waits.c.item_id)
        .where(
            waits.c.name == name,
            waits.c.offered_at.is_not(None),
            sa.or_(
                items.c.status.in_(sorted(ITEM_FINISHED)),
                sa.and_(waits.c.offered_at <= tx.now - GRACE, items.c.status != ItemStatus.PENDING),
            ),
        )
    )
    tx.conn.execute(sa.delete(waits).where(waits.c.item_id.in_(gone)))
