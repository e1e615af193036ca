"""How far retention has come, by lane and kind, and what it has taken away so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.store.schema import retention

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

Mark = dict[str, Any]
ALL = ""
"""The lane of what is nobody's in particular."""


def mark_of(tx: Tx, lane: str, kind: str) -> Mark | None:
    query = sa.select(retention.c.mark).where(retention.c.lane == lane, retention.c.kind == kind)
    found: Mark | None = tx.conn.execute(query).scalar()
    return found


def set_mark(tx: Tx, lane: str, kind: str, *, removed: int = 0, mark: Mark | None = None) -> None:
    values: dict[str, Any] = {"looked_at": tx.now}
    if mark is not None:
        values["mark"] = mark
    if removed:
        values |= {"removed": retention.c.removed + removed, "removed_at": tx.now}
    own = (retention.c.lane == lane, retention.c.kind == kind)
    if tx.conn.execute(sa.update(retention).where(*own).values(**values)).rowcount == 0:
        if removed:
            values["removed"] = removed
        tx.conn.execute(sa.insert(retention).values(lane=lane, kind=kind, **values))
