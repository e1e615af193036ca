"""The saved versions of a settings file, newest first. A file is known by its path and the machine it is on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from dalsegno.config.current import Current
from dalsegno.config.model import Revision, RevisionLine
from dalsegno.errors import NotFound
from dalsegno.store.schema import config_revisions, jobs
from dalsegno.store.store import Store, Tx


def list_revisions(tx: Tx, current: Current, *, before: int | None = None, limit: int = 50) -> list[RevisionLine]:
    """A page of this file's revisions; `before` is the last id of the page shown before it."""
    query = sa.select(config_revisions).where(*_of(current)).order_by(config_revisions.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(config_revisions.c.id < before)
    found = [revision_of(row) for row in tx.rows(query)]
    newest, counts = current_revision(tx, current), _jobs(tx, [revision.id for revision in found])
    return [
        RevisionLine(revision, newest is not None and newest.id == revision.id, counts.get(revision.id, 0))
        for revision in found
    ]


def _jobs(tx: Tx, revision_ids: list[int]) -> dict[int, int]:
    column = jobs.c.config_revision_id
    query = sa.select(column, sa.func.count()).where(column.in_(revision_ids)).group_by(column)
    return {row[0]: row[1] for row in tx.conn.execute(query)} if revision_ids else {}


def get_revision(tx: Tx, revision_id: int) -> Revision:
    row = tx.row(sa.select(config_revisions).where(config_revisions.c.id == revision_id))
    if row is None:
        raise NotFound(what="revision", id=revision_id)
    return revision_of(row)


def current_revision(tx: Tx, current: Current) -> Revision | None:
    """What this file was last saved as."""
    query = sa.select(config_revisions).where(*_of(current), config_revisions.c.applied_at.is_not(None))
    row = tx.row(query.order_by(config_revisions.c.id.desc()).limit(1))
    return None if row is None else revision_of(row)


def revision_in_force(store: Store, current: Current) -> int | None:
    """The revision that a job made now is made with; None where the content in force was never saved as one."""
    current.loaded  # noqa: B018 - looks whether the file has changed
    if current.fingerprint is None:
        return None
    query = sa.select(config_revisions.c.id).where(
        *_of(current),
        config_revisions.c.applied_at.is_not(None),
        config_revisions.c.content_hash == current.fingerprint,
    )
    newest = query.order_by(config_revisions.c.id.desc()).limit(1)
    found: int | None = store.read(lambda tx: tx.conn.execute(newest).scalar())
    return found


def _of(current: Current) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        config_revisions.c.file_path == str(current.file),
        config_revisions.c.node.is_(None) if current.host is None else config_revisions.c.node == current.host,
    )


def revision_of(row: Mapping[Any, Any]) -> Revision:
    names = ("id", "file_path", "node", "content", "content_hash", "note", "saved_by", "created_at", "applied_at")
    return Revision(**{name: row[name] for name in names}, restores=row["restores"], secrets=row["secrets"] or {})
