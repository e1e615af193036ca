"""The clock of contents: when each last changed, in an order that readers can rely on.

Whoever changes contents takes its row first and holds it to the commit. So the times it gives out are unique and in the
order of commits, and two writers never wait for each other in a circle. Taken last, it would be held for less long,
but two settles that meet in the rows of one content would then be a deadlock to be found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from dalsegno.requests.schema import content_clock, contents

SOME = 500
"""Values in one question: SQLite takes a limited number of them."""
TICK = timedelta(microseconds=1)


class Clock:
    """Gives out times that only grow. Made first of all, in the transaction that changes contents."""

    def __init__(self, conn: sa.Connection, now: datetime) -> None:
        self._conn, self._now = conn, now
        self._last: datetime = conn.execute(_TAKE).scalar_one()

    def touch(self, content_ids: Iterable[int], ready: Iterable[int] = ()) -> None:
        """These have changed; those in `ready` are shown from now on, if they were not before."""
        fresh = self._not_yet(sorted(set(ready)))
        changed = sorted(set(content_ids) | set(fresh))
        if not changed:
            return
        rows = []
        for number in changed:
            self._last = max(self._now, self._last + TICK)
            rows.append({"number": number, "at": self._last})
        self._conn.execute(_MOVE, rows)
        if fresh:
            self._conn.execute(_SHOW, [{"number": number} for number in fresh])
        self._conn.execute(_GIVE, {"at": self._last, "more": len(fresh)})

    def _not_yet(self, content_ids: Sequence[int]) -> list[int]:
        return [row["id"] for row in of_these(self._conn, _HIDDEN, contents.c.id, content_ids)]


# Made once: a decode that takes milliseconds would notice.
_TAKE = sa.select(content_clock.c.last).where(content_clock.c.id == 1).with_for_update()
_GIVE = (
    sa.update(content_clock)
    .where(content_clock.c.id == 1)
    .values(last=sa.bindparam("at"), ready=content_clock.c.ready + sa.bindparam("more"))
)
_ONE = sa.update(contents).where(contents.c.id == sa.bindparam("number"))
_MOVE = _ONE.values(updated_at=sa.bindparam("at"))
_SHOW = _ONE.values(ready=True)
_HIDDEN = sa.select(contents.c.id).where(contents.c.ready.is_(False))


def of_these(
    conn: sa.Connection, query: sa.Select[Any], column: sa.ColumnElement[Any], values: Sequence[Any]
) -> list[sa.RowMapping]:
    """The rows whose column has one of these values, asked for in several questions where they are many."""
    distinct = list(dict.fromkeys(values))
    found: list[sa.RowMapping] = []
    for at in range(0, len(distinct), SOME):
        found += conn.execute(query.where(column.in_(distinct[at : at + SOME]))).mappings()
    return found
