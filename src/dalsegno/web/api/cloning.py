"""The same job again: asked for as before, with the settings of now."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from dalsegno.catalog.templates import TEMPLATES, order
from dalsegno.engine.submit import submit
from dalsegno.errors import CommandRefused
from dalsegno.insight.jobs import JobDetail, job_detail
from dalsegno.requests.ask import ask
from dalsegno.requests.body import body_of
from dalsegno.requests.workflow import PARSE
from dalsegno.store.schema import items, stages
from dalsegno.store.store import Tx
from dalsegno.web.room import Room

MOST = 10_000
"""Items that a job was given by hand, and a clone is given again."""


def cloned(here: Room, job_id: int, *, priority: int | None, by: str) -> int:
    detail, given = here.store.read(lambda tx: (job_detail(tx, job_id), _given(tx, job_id)))
    job = detail.job
    priority = job.priority if priority is None else priority
    options = dict(job.options or {})
    if detail.workflow in TEMPLATES:
        sources = options.pop("download_sources", None)
        return order(
            here.store, here.settings, detail.workflow, scope=job.scope, options=options or None,
            download_sources=sources if isinstance(sources, list) else None, priority=priority, requested_by=by,
            revision=here.revision(),
        ).job_id  # fmt: skip
    if detail.workflow == PARSE.name:  # the same request again is there already, or a new one
        return ask(here.store, here.settings, body_of(job.scope), created_by=by, requested_by=by).id
    if sum(map(len, given.values())) > MOST:
        fix = f"It was given more than {MOST:,} items: submit them again."
        raise CommandRefused(what="Job", id=job_id, verb="cloned", state=job.status, fix=fix)
    return _submitted(here, detail, given, options, priority, by)


def _submitted(
    here: Room, detail: JobDetail, given: dict[str, list[Any]], options: dict[str, Any], priority: int, by: str
) -> int:
    params = options.pop("params", None)
    return submit(
        here.store, detail.workflow, items=given or None, params=params, scope=detail.job.scope, options=options,
        snapshot=detail.job.snapshot, revision=detail.job.config_revision_id, priority=priority, requested_by=by,
    ).job_id  # fmt: skip


def _given(tx: Tx, job_id: int) -> dict[str, list[Any]]:
    """The items that its submitter named, by step; those that services list are listed anew."""
    found: dict[str, list[Any]] = {}
    for stage in tx.rows(sa.select(stages.c.id, stages.c.key).where(stages.c.job_id == job_id, stages.c.given)):
        query = sa.select(items.c.key, items.c.params).where(items.c.stage_id == stage["id"]).order_by(items.c.seq)
        rows = tx.rows(query.limit(MOST + 1))
        found[stage["key"]] = [(row["key"], row["params"]) for row in rows]
    return found
