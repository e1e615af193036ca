"""Skip: do not do these, and let what follows them go on.

`skipped` by hand is the same as skipped by a service: dependencies on it are met, and followers come of it. A finished
job is bothered only where something follows; otherwise its counters change where they stand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dalsegno.engine.chosen import Changed, Chosen, choose, take_out
from dalsegno.engine.follower import add_followers
from dalsegno.engine.planner import advance
from dalsegno.engine.retry import reopen, twin_of
from dalsegno.engine.rows import set_job
from dalsegno.model.states import JOB_FINISHED, ItemStatus, JobStatus, StageStatus
from dalsegno.store.hot import Delta, Event

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

SKIPPABLE = frozenset({ItemStatus.PENDING, ItemStatus.FAILED, ItemStatus.INTERRUPTED})


def skip_items(tx: Tx, job_id: int, ids: Sequence[int], by: str, note: dict[str, Any]) -> Changed:
    """pending, failed or interrupted → skipped for some items of a job."""
    chosen = choose(tx, job_id, ids, SKIPPABLE, busy="claimed")
    if not chosen.rows:
        return Changed([], chosen.refused)
    if twin_of(tx, chosen.job) is not None:
        return Changed([], Counter({"twin_active": len(ids)}))
    # Its error is dealt with: it leaves the lists of what is wrong, and stays in its own history.
    deltas, _ = take_out(tx, chosen, ItemStatus.SKIPPED, error_code=None, error_message=None, fingerprint=None)
    events = [
        Event("item_skipped", by, job_id, row["stage_id"], row["id"], message="skipped by hand",
              data={"was": row["status"], "error_code": row["error_code"], **note})
        for row in chosen.rows
    ]  # fmt: skip
    tx.hot.insert_events(tx, events)
    if chosen.job["status"] != JobStatus.CANCELED:  # there, nothing follows from anything
        _go_on(tx, chosen, deltas, by)
    return Changed(chosen.ids, chosen.refused)


def _go_on(tx: Tx, chosen: Chosen, deltas: dict[int, Delta], by: str) -> None:
    job = chosen.job
    failed = {stage["id"]: stage["failed"] + _failed(deltas.get(stage["id"])) for stage in chosen.stages}
    needed = {key for stage in chosen.stages for key in stage["depends_on"]}
    again: set[int] = set()
    for stage in chosen.stages:
        if stage["id"] not in deltas:
            continue
        _stream_on(tx, chosen, stage)
        stopped = stage["on_failure"] == "stop" and failed[stage["id"]]  # by another failure, which still stands
        done = stage["status"] == StageStatus.COMPLETED and stage["key"] not in needed
        if not stopped and not done:
            again.add(stage["id"])
    if again:
        reopen(tx, job, chosen.stages, again, by)
    elif job["status"] not in JOB_FINISHED:
        advance(tx, [job["id"]])
    elif job["status"] == JobStatus.COMPLETED_WITH_ERRORS and not any(failed.values()):
        set_job(tx, job["id"], status=JobStatus.COMPLETED)
        tx.hot.insert_events(tx, [Event("job_completed", by, job["id"], message="what had failed was skipped")])
        tx.announce("jobs")


def _stream_on(tx: Tx, chosen: Chosen, stage: Any) -> None:
    parents = [(row["id"], row["key"]) for row in chosen.rows if row["stage_id"] == stage["id"]]
    for other in chosen.stages:
        if other["key"] in stage["followed_by"]:
            add_followers(tx, other["id"], parents)


def _failed(delta: Delta | None) -> int:
    return 0 if delta is None else delta.counts[ItemStatus.FAILED]
