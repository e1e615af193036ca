"""The settings a job runs with, beside those that a job made now would get."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from dalsegno.config.current import Current
from dalsegno.config.model import JobConfig, JobKey, Revision
from dalsegno.config.revisions import current_revision, get_revision
from dalsegno.errors import NotFound
from dalsegno.model.records import JobRecord
from dalsegno.store.schema import jobs
from dalsegno.store.store import Store, Tx


def job_config(store: Store, current: Current, job_id: int) -> JobConfig:
    """Every key that either has. Secrets are no part of a snapshot: they are read when they are used."""

    def look(tx: Tx) -> tuple[sa.RowMapping | None, Revision | None, Revision | None]:
        columns = (jobs.c.snapshot, jobs.c.overrides, jobs.c.config_revision_id)
        row = tx.row(sa.select(*columns).where(jobs.c.id == job_id))
        number = None if row is None else row["config_revision_id"]
        made_with = None if number is None else get_revision(tx, number)
        return row, made_with, current_revision(tx, current)

    row, made_with, newest = store.read(look)
    if row is None:
        raise NotFound(what="job", id=job_id)
    snapshot, overrides = _mapping(row["snapshot"]), _mapping(row["overrides"])
    now = current.settings.snapshot() if snapshot else {}
    keys = [_key(name, snapshot, overrides, now) for name in sorted({*snapshot, *overrides, *now})]
    return JobConfig(job_id, made_with, newest, tuple(keys), overrides)


def jobs_of_revision(tx: Tx, revision_id: int, *, before: int | None = None, limit: int = 50) -> list[JobRecord]:
    """Jobs that were made with it, newest first."""
    query = sa.select(jobs).where(jobs.c.config_revision_id == revision_id)
    if before is not None:
        query = query.where(jobs.c.id < before)
    return [JobRecord.model_validate(dict(row)) for row in tx.rows(query.order_by(jobs.c.id.desc()).limit(limit))]


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _key(name: str, snapshot: dict[str, Any], overrides: dict[str, Any], now: dict[str, Any]) -> JobKey:
    used = overrides.get(name, snapshot.get(name))
    return JobKey(name, snapshot.get(name), overrides.get(name), now.get(name), used != now.get(name))
