"""Small notes that a database keeps about itself, in `system_settings`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.store.schema import system_settings

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

BACKUP = "backup.last"
"""The last backup that was good: when, which file, how many bytes."""
UPGRADE = "upgrade.last"
"""The last change of the schema: from, to, when, and the backup made before it, or why there is none."""
RESTORED = "restore.last"
"""That this database came out of a backup: when, and when that was taken."""
MOVED = "moved"
"""That everything in here was moved to another database: where to, and when."""


def write_note(tx: Tx, key: str, value: dict[str, Any], by: str) -> None:
    put_note(tx.conn, key, value, by, tx.now)


def put_note(conn: sa.Connection, key: str, value: dict[str, Any], by: str, now: datetime) -> None:
    row = {"value": value, "updated_by": by, "updated_at": now}
    if not conn.execute(sa.update(system_settings).where(system_settings.c.key == key).values(**row)).rowcount:
        conn.execute(sa.insert(system_settings).values(key=key, **row))


def read_note(tx: Tx, key: str) -> dict[str, Any] | None:
    found = tx.conn.execute(sa.select(system_settings.c.value).where(system_settings.c.key == key)).scalar()
    return found if isinstance(found, dict) else None
