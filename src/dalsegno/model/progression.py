"""What follows for a job and its stages, given where they stand. Pure: the planner writes what this decides.

Called with every stage of one job after anything changed: admission, a stage running dry, a command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dalsegno.model.states import STAGE_FINISHED, STAGE_PAUSED, JobStatus, StageStatus


@dataclass(slots=True)
class StageView:
    """The part of a stage that decides its fate."""

    id: int
    key: str
    seq: int
    status: str
    depends_on: tuple[str, ...]
    follow: str
    on_failure: str
    open: bool
    planned: bool
    pending: int
    leased: int
    failed: int
    interrupted: int
    held: bool = False
    """Paused by itself: it stands still whatever its job does."""


@dataclass(frozen=True, slots=True)
class Change:
    """Stage `id` (or the job, when None) goes to `status`."""

    id: int | None
    status: str


def progress(job: str, canceling: bool, stages: Sequence[StageView]) -> list[Change]:
    """The changes that are due now, in the order they happen. Mutates the views it is given."""
    if canceling:
        return _cancel(job, stages)
    if job == JobStatus.PAUSE_REQUESTED:
        return _drain(stages)
    if job != JobStatus.RUNNING:
        return []
    return _run(stages)


def _move(stage: StageView, status: str) -> Change:
    stage.status = status
    stage.open = status == StageStatus.RUNNING
    return Change(stage.id, status)


def _cancel(job: str, stages: Sequence[StageView]) -> list[Change]:
    if any(stage.leased or stage.pending or stage.interrupted for stage in stages):
        return []
    changes = [_move(stage, StageStatus.CANCELED) for stage in stages if stage.status not in STAGE_FINISHED]
    return [*changes, Change(None, JobStatus.CANCELED)] if job != JobStatus.CANCELED else changes


def _drain(stages: Sequence[StageView]) -> list[Change]:
    changes = [
        _move(stage, StageStatus.PAUSED)
        for stage in stages
        if stage.status == StageStatus.PAUSE_REQUESTED and not stage.leased
    ]
    if not any(stage.leased for stage in stages):
        changes.append(Change(None, JobStatus.PAUSED))
    return changes


def _run(stages: Sequence[StageView]) -> list[Change]:
    changes: list[Change] = []
    by_key = {stage.key: stage for stage in stages}
    for stage in stages:  # in topological order, so one pass settles all that can be settled
        upstream = [by_key[key] for key in stage.depends_on]
        if stage.status in STAGE_PAUSED:
            if not stage.held:
                changes.append(_move(stage, StageStatus.RUNNING))
            elif stage.status == StageStatus.PAUSE_REQUESTED and not stage.leased:
                changes.append(_move(stage, StageStatus.PAUSED))
        if stage.status == StageStatus.PENDING:
            if any(up.status in (StageStatus.FAILED, StageStatus.SKIPPED) for up in upstream):
                retried = stage.follow == "each" and (stage.pending or stage.interrupted)
                if not retried or not stage.held:
                    changes.append(_move(stage, StageStatus.RUNNING if retried else StageStatus.SKIPPED))
            elif not stage.held and _its_turn(stage, upstream):
                changes.append(_move(stage, StageStatus.RUNNING))
        if stage.status == StageStatus.RUNNING and not stage.leased:
            # A failure closes a stage that stops; a retry of one of several opens it again for what is left.
            if stage.failed and stage.on_failure == "stop" and (not stage.open or _dry(stage, upstream)):
                changes.append(_move(stage, StageStatus.FAILED))
            elif stage.follow == "each" and upstream[0].status in (StageStatus.FAILED, StageStatus.SKIPPED):
                if not stage.pending and not stage.interrupted:
                    changes.append(_move(stage, StageStatus.SKIPPED))
            elif _dry(stage, upstream):
                changes.append(_move(stage, StageStatus.COMPLETED))
    if all(stage.status in STAGE_FINISHED for stage in stages):
        changes.append(Change(None, _verdict(stages)))
    return changes


def _its_turn(stage: StageView, upstream: Sequence[StageView]) -> bool:
    if stage.follow == "each":  # what it follows has begun: there may be something to do already
        return upstream[0].status in (StageStatus.RUNNING, StageStatus.COMPLETED, *STAGE_PAUSED)
    return all(up.status == StageStatus.COMPLETED for up in upstream)


def _dry(stage: StageView, upstream: Sequence[StageView]) -> bool:
    if stage.pending or stage.interrupted or not stage.planned:
        return False
    return stage.follow == "all" or upstream[0].status == StageStatus.COMPLETED


def _verdict(stages: Sequence[StageView]) -> str:
    if any(stage.status == StageStatus.FAILED for stage in stages):
        return JobStatus.FAILED
    if any(stage.failed for stage in stages):
        return JobStatus.COMPLETED_WITH_ERRORS
    return JobStatus.COMPLETED
