"""Files that items produced."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno.model.records import ArtifactRecord
from dalsegno.store.schema import artifacts
from dalsegno.store.store import Tx


def list_artifacts(
    tx: Tx, *, job_id: int | None = None, item_id: int | None = None, before: int | None = None, limit: int = 50
) -> list[ArtifactRecord]:
    """Newest first; `before` is the last id of the page shown before it."""
    query = sa.select(artifacts).order_by(artifacts.c.id.desc()).limit(limit)
    if job_id is not None:
        query = query.where(artifacts.c.job_id == job_id)
    if item_id is not None:
        query = query.where(artifacts.c.item_id == item_id)
    if before is not None:
        query = query.where(artifacts.c.id < before)
    return [ArtifactRecord.model_validate(dict(row)) for row in tx.rows(query)]
