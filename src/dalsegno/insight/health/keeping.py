"""Whether backups are made, and whether rows fall where they should."""

from __future__ import annotations

from datetime import datetime, timedelta

import sqlalchemy as sa

from dalsegno.insight.health.finding import Finding, found
from dalsegno.store.notes import MOVED, UPGRADE, read_note
from dalsegno.store.schema import system_settings
from dalsegno.store.store import Tx

BACKUP, RETENTION = "backup.last", "retention.last"
"""Where the last of each is written down."""
OLD = timedelta(days=7)
RECENT = timedelta(days=30)
MISSED = timedelta(days=1)

_DEFAULTS = """
SELECT parent.relname AS parent, child.relname AS name
FROM pg_partitioned_table p
JOIN pg_class parent ON parent.oid = p.partrelid JOIN pg_class child ON child.oid = p.partdefid
JOIN pg_namespace n ON n.oid = parent.relnamespace WHERE n.nspname = current_schema()
"""


def look(tx: Tx) -> list[Finding]:
    return [*_moved(tx), *_backup(tx), *_upgrade(tx), *_retention(tx), *_partitions(tx)]


def _moved(tx: Tx) -> list[Finding]:
    note = read_note(tx, MOVED)
    if note is None:
        return []
    return [found("moved_away", "error", "database", datetime.fromisoformat(note["at"]), to=note["to"])]


def _upgrade(tx: Tx) -> list[Finding]:
    """For a while after it: what was kept takes room, and what was not should be made up for."""
    note = read_note(tx, UPGRADE)
    if note is None or tx.now - (at := datetime.fromisoformat(note["at"])) > RECENT:
        return []
    steps, kept = {"found": note["from"], "known": note["to"]}, str(note["backup"])
    if kept.startswith("/"):
        return [found("upgrade_kept", "note", "upgrade", at, **steps, file=kept)]
    made_up_for = last(tx, BACKUP)
    if made_up_for is not None and made_up_for > at:
        return []
    return [found("upgrade_unkept", "note", "upgrade", at, **steps, problem=kept.removeprefix("none: "))]


def last(tx: Tx, key: str) -> datetime | None:
    value = tx.conn.execute(sa.select(system_settings.c.value).where(system_settings.c.key == key)).scalar()
    return None if value is None else datetime.fromisoformat(value["at"])


def _retention(tx: Tx) -> list[Finding]:
    """Where no engine has been at work for a day, that is told elsewhere."""
    at = last(tx, RETENTION)
    if at is None or tx.now - at < MISSED:
        return []
    return [found("retention_old", "warning", "retention", at, age_seconds=(tx.now - at).total_seconds())]


def _backup(tx: Tx) -> list[Finding]:
    at = last(tx, BACKUP)
    if at is None:
        return [found("backup_never", "note", "backup")]
    age = tx.now - at
    old = age > OLD
    return [
        found("backup_old" if old else "backup_fine", "warning" if old else "ok", "backup", at,
              age_seconds=age.total_seconds())
    ]  # fmt: skip


def _partitions(tx: Tx) -> list[Finding]:
    if not tx.shared:
        return []
    return [
        found("default_partition", "warning", f"table:{row['name']}", table=row["parent"], partition=row["name"])
        for row in tx.rows(sa.text(_DEFAULTS))
        if tx.row(sa.select(sa.literal(1)).select_from(sa.table(row["name"])).limit(1)) is not None
    ]
