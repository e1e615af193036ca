"""Wait for a job to end, woken by commits instead of polling."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.errors import NotFound
from dalsegno.model.states import JOB_FINISHED, JobStatus
from dalsegno.store.schema import jobs

if TYPE_CHECKING:
    from dalsegno.store.store import Store

RESTING = JOB_FINISHED | {JobStatus.PAUSED}


def wait_for_job(store: Store, job_id: int, timeout: float | None = None) -> JobStatus:
    """Block until a job has finished or is paused; its status then, or whatever it is at the timeout."""
    moved = threading.Event()
    unlisten = store.listen(lambda topics: moved.set() if "jobs" in topics else None)
    deadline = None if timeout is None else store.clock.monotonic() + timeout
    query = sa.select(jobs.c.status).where(jobs.c.id == job_id)
    try:
        while True:
            moved.clear()
            status = store.read(lambda tx: tx.conn.execute(query).scalar())
            if status is None:
                raise NotFound(what="job", id=job_id)
            left = None if deadline is None else deadline - store.clock.monotonic()
            if status in RESTING or (left is not None and left <= 0):
                return JobStatus(status)
            moved.wait(1.0 if left is None else min(1.0, left))
    finally:
        unlisten()
