"""Stored workflows."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno.errors import WorkflowUnknown
from dalsegno.model.records import WorkflowRecord
from dalsegno.model.suggest import did_you_mean
from dalsegno.store.schema import workflows
from dalsegno.store.store import Tx


def list_workflows(tx: Tx) -> list[WorkflowRecord]:
    """Every stored version, by name, newest first."""
    query = sa.select(workflows).order_by(workflows.c.name, workflows.c.version.desc())
    return [WorkflowRecord.model_validate(dict(row)) for row in tx.rows(query)]


def find_workflow(tx: Tx, name: str, version: int | None = None) -> WorkflowRecord | None:
    """One version, by default the newest that is active."""
    query = sa.select(workflows).where(workflows.c.name == name).order_by(workflows.c.version.desc()).limit(1)
    if version is None:
        query = query.where(workflows.c.is_active)
    else:
        query = query.where(workflows.c.version == version)
    row = tx.row(query)
    return None if row is None else WorkflowRecord.model_validate(dict(row))


def get_workflow(tx: Tx, name: str, version: int | None = None) -> WorkflowRecord:
    found = find_workflow(tx, name, version)
    if found is not None:
        return found
    if version is not None and find_workflow(tx, name) is not None:
        raise WorkflowUnknown(name=f"{name} version {version}", hint="")
    known = tx.conn.execute(sa.select(workflows.c.name).distinct()).scalars()
    raise WorkflowUnknown(name=name, hint=did_you_mean(name, known))
