"""Requests as clients see them: read from the job and its stages, which are the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa

from dalsegno.errors import NotFound
from dalsegno.model.states import JOB_FINISHED, STAGE_FINISHED, ItemStatus, JobStatus
from dalsegno.requests.schema import STATES, parse_requests, request_contents, request_counts
from dalsegno.store.schema import items, jobs, leases, processes, stages

if TYPE_CHECKING:
    from dalsegno.requests.body import ParseBody
    from dalsegno.requests.records import State
    from dalsegno.store.store import Tx

FAR = 1000
"""How many may be skipped before it is asked where the other end is."""
Phase = Literal["QUEUED", "SEARCHING", "DECODING", "DONE", "FAILED"]


@dataclass(frozen=True, slots=True)
class RequestView:
    id: int
    hash: str
    status: State
    phase: Phase
    decoded: int
    """Variants with a link, of `total` that need decoding."""
    total: int
    failed: int
    """Variants that could not be decoded."""
    content_ids: list[int]
    error: str | None
    retry_count: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    heartbeat_at: datetime | None
    """When whoever works on it was last known to live."""
    body: dict[str, Any] = field(default_factory=dict)
    created_by: str | None = None
    hits: int = 0
    """How often it was asked for while it was there already."""
    job_status: str = JobStatus.QUEUED
    failed_items: int = 0
    """What a retry would try again: variants, or the search itself."""
    error_code: str | None = None
    """Of the first of them."""


def new_request(job_id: int, body: ParseBody, created_by: str | None, now: datetime) -> RequestView:
    """As it is the moment it was submitted."""
    return RequestView(
        id=job_id, hash=body.hash, status="PENDING", phase="QUEUED", decoded=0, total=0, failed=0, content_ids=[],
        error=None, retry_count=0, created_at=now, started_at=None, finished_at=None, heartbeat_at=None,
        body=body.stored(), created_by=created_by,
    )  # fmt: skip


def one_request(tx: Tx, job_id: int) -> RequestView:
    found = views_of(tx, [job_id])
    if not found:
        raise NotFound(what="parse request", id=job_id)
    return found[0]


def list_requests(tx: Tx, *, state: str | None = None, limit: int = 50, offset: int = 0) -> list[RequestView]:
    """Newest first. What is skipped is walked over, from whichever end is nearer."""
    back = False
    if limit and offset > FAR:
        left = max(0, count_requests(tx, state=state) - offset)
        if back := left < offset:
            limit, offset = min(limit, left), max(0, left - limit)
    if not limit:
        return []
    number = parse_requests.c.job_id
    query = sa.select(number).order_by(number if back else number.desc()).limit(limit).offset(offset)
    if state is not None:
        query = query.where(parse_requests.c.state == state)
    return views_of(tx, list(tx.conn.execute(query).scalars()))


def count_requests(tx: Tx, *, state: str | None = None) -> int:
    counts = counts_of(tx)
    return sum(counts.values()) if state is None else counts[state]


def counts_of(tx: Tx) -> dict[str, int]:
    """Requests by state."""
    row = tx.row(_COUNTS)
    assert row is not None
    return {state: int(row[state]) for state in STATES}


_COUNTS = sa.select(*(sa.func.sum(request_counts.c[state.lower()]).label(state) for state in STATES))
_IDS: sa.BindParameter[Any] = sa.bindparam("ids", expanding=True)
_REQUESTS = (
    sa.select(
        parse_requests,
        *(jobs.c[name].label(f"job_{name}") for name in ("status", "error_message", "started_at", "finished_at")),
        jobs.c.updated_at,
    )
    .join(jobs, jobs.c.id == parse_requests.c.job_id)
    .where(parse_requests.c.job_id.in_(_IDS))
    .order_by(parse_requests.c.job_id.desc())
)
_STAGES = sa.select(
    stages.c.job_id, stages.c.id, stages.c.key, stages.c.status, stages.c.total, stages.c.succeeded,
    stages.c.skipped, stages.c.failed, stages.c.last_error,
).where(stages.c.job_id.in_(_IDS))  # fmt: skip
_CONTENTS = (
    sa.select(request_contents.c.job_id, request_contents.c.content_id)
    .where(request_contents.c.job_id.in_(_IDS))
    .order_by(request_contents.c.job_id, request_contents.c.position, request_contents.c.content_id)
)
# Live leases are few, so they are looked through.
_HEARTBEATS = (
    sa.select(leases.c.stage_id, sa.func.max(processes.c.heartbeat_at).label("at"))
    .join(processes, processes.c.id == leases.c.process_id)
    .where(leases.c.stage_id.in_(_IDS))
    .group_by(leases.c.stage_id)
)
# The first that failed of each stage, along the index of what went wrong.
_FIRST = (
    sa.select(items.c.id)
    .where(items.c.stage_id == stages.c.id, items.c.error_code.is_not(None), items.c.status == ItemStatus.FAILED)
    .order_by(items.c.seq)
    .limit(1)
    .scalar_subquery()
)
_TROUBLES = sa.select(items.c.stage_id, items.c.error_code, items.c.error_message).where(
    items.c.id.in_(sa.select(_FIRST).where(stages.c.id.in_(_IDS)))
)


def views_of(tx: Tx, ids: Sequence[int]) -> list[RequestView]:
    """Those of these that there are, newest first."""
    if not ids:
        return []
    rows = tx.rows(_REQUESTS, {"ids": list(ids)})
    by_job: dict[int, dict[str, sa.RowMapping]] = {row["job_id"]: {} for row in rows}
    for stage in tx.rows(_STAGES, {"ids": list(ids)}):
        if stage["job_id"] in by_job:
            by_job[stage["job_id"]][stage["key"]] = stage
    contents: dict[int, list[int]] = {}
    for found in tx.rows(_CONTENTS, {"ids": list(ids)}):
        contents.setdefault(found["job_id"], []).append(found["content_id"])
    live = [stage["id"] for row in rows if row["state"] == "RUNNING" for stage in by_job[row["job_id"]].values()]
    beats = {row["stage_id"]: row["at"] for row in tx.rows(_HEARTBEATS, {"ids": live})} if live else {}
    failed = [stage["id"] for steps in by_job.values() for stage in steps.values() if stage["failed"]]
    troubles = {row["stage_id"]: row for row in tx.rows(_TROUBLES, {"ids": failed})} if failed else {}
    return [_view(row, by_job[row["job_id"]], contents.get(row["job_id"], []), beats, troubles) for row in rows]


def _view(
    row: sa.RowMapping,
    steps: dict[str, sa.RowMapping],
    contents: list[int],
    beats: dict[int, datetime],
    troubles: dict[int, sa.RowMapping],
) -> RequestView:
    search, decode = steps["search"], steps["decode"]
    trouble = troubles.get(search["id"]) or troubles.get(decode["id"])
    alive = [beats[stage["id"]] for stage in (search, decode) if stage["id"] in beats]
    return RequestView(
        id=row["job_id"],
        hash=row["hash"],
        status=row["state"],
        phase=_phase(row["state"], search["status"]),
        decoded=decode["succeeded"] + decode["skipped"],
        total=decode["total"],
        failed=decode["failed"],
        content_ids=contents,
        error=_error(row, trouble, (search, decode)),
        retry_count=row["retry_count"],
        created_at=row["created_at"],
        started_at=row["job_started_at"],
        finished_at=row["job_finished_at"],
        heartbeat_at=max([row["updated_at"], *alive]) if row["job_started_at"] else None,
        body=row["body"],
        created_by=row["created_by"],
        hits=row["hits"],
        job_status=row["job_status"],
        failed_items=search["failed"] + decode["failed"],
        error_code=None if trouble is None else trouble["error_code"],
    )


def _phase(state: State, search: str) -> Phase:
    if state == "PENDING":
        return "QUEUED"
    if state == "RUNNING":
        return "DECODING" if search in STAGE_FINISHED else "SEARCHING"
    return state


def _error(row: sa.RowMapping, trouble: sa.RowMapping | None, steps: tuple[sa.RowMapping, ...]) -> str | None:
    """Why it failed, or what was wrong with a part of it, once it is over."""
    if row["job_status"] not in JOB_FINISHED:
        return None
    if trouble is not None and trouble["error_message"]:
        return str(trouble["error_message"])
    said = (stage["last_error"] for stage in steps if stage["failed"] and stage["last_error"])
    found = next(said, None) or row["job_error_message"]
    return "It was canceled." if found is None and row["job_status"] == JobStatus.CANCELED else found
