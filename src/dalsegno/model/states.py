"""The states of a job, a stage and an item, and every way from one to another.

`TRANSITIONS` is the one source: guards are tested against it, the diagrams in the docs are drawn from it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class JobStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    PAUSE_REQUESTED = "pause_requested"
    PAUSED = "paused"
    COMPLETED = "completed"
    COMPLETED_WITH_ERRORS = "completed_with_errors"
    FAILED = "failed"
    CANCELED = "canceled"


class StageStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    PAUSE_REQUESTED = "pause_requested"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELED = "canceled"


class ItemStatus(StrEnum):
    PENDING = "pending"
    CLAIMED = "claimed"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    INTERRUPTED = "interrupted"
    CANCELED = "canceled"


class CommandStatus(StrEnum):
    PENDING = "pending"
    APPLIED = "applied"
    REJECTED = "rejected"


class Level(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"


JOB_ACTIVE = frozenset({JobStatus.RUNNING, JobStatus.PAUSE_REQUESTED})
"""Holds a slot of its lane."""
JOB_UNFINISHED = JOB_ACTIVE | {JobStatus.QUEUED, JobStatus.PAUSED}
"""Holds its dedupe key."""
JOB_FINISHED = frozenset(JobStatus) - JOB_UNFINISHED
STAGE_FINISHED = frozenset({StageStatus.COMPLETED, StageStatus.FAILED, StageStatus.SKIPPED, StageStatus.CANCELED})
STAGE_PAUSED = frozenset({StageStatus.PAUSE_REQUESTED, StageStatus.PAUSED})
"""Closed for now: asked to stand still, or standing still."""
ITEM_LEASED = frozenset({ItemStatus.CLAIMED, ItemStatus.RUNNING})
ITEM_SATISFIED = frozenset({ItemStatus.SUCCEEDED, ItemStatus.SKIPPED})
"""Dependencies on it are met."""


class Transition(NamedTuple):
    source: str
    target: str
    why: str


def _rows(*rows: tuple[str, str, str]) -> frozenset[Transition]:
    return frozenset(Transition(*row) for row in rows)


TRANSITIONS: dict[str, frozenset[Transition]] = {
    "job": _rows(
        ("queued", "running", "admitted to its lane"),
        ("queued", "paused", "pause"),
        ("queued", "canceled", "cancel"),
        ("running", "pause_requested", "pause, crash recovery, disk full"),
        ("running", "completed", "all stages done"),
        ("running", "completed_with_errors", "all stages done, some items failed"),
        ("running", "failed", "a stage failed"),
        ("running", "canceled", "cancel, last lease ended"),
        ("pause_requested", "paused", "last lease ended"),
        ("pause_requested", "canceled", "cancel, last lease ended"),
        ("paused", "queued", "resume"),
        ("paused", "canceled", "cancel"),
        ("completed", "queued", "an item is retried"),
        ("completed_with_errors", "queued", "an item is retried, or skipped and something follows"),
        ("completed_with_errors", "completed", "what had failed was skipped, and nothing follows"),
        ("failed", "queued", "an item is retried or skipped"),
        ("canceled", "queued", "an item is retried"),
    ),
    "stage": _rows(
        ("pending", "running", "dependencies met"),
        ("pending", "skipped", "a stage it depends on failed"),
        ("pending", "canceled", "cancel"),
        ("running", "pause_requested", "pause"),
        ("running", "completed", "no item left"),
        ("running", "failed", "an item failed and the policy is stop"),
        ("running", "skipped", "the stage it follows failed"),
        ("running", "canceled", "cancel"),
        ("pause_requested", "paused", "last lease ended"),
        ("pause_requested", "running", "resume before the last lease ended"),
        ("pause_requested", "canceled", "cancel"),
        ("paused", "running", "resume"),
        ("paused", "canceled", "cancel"),
        ("completed", "pending", "reopened"),
        ("failed", "pending", "reopened"),
        ("skipped", "pending", "reopened"),
        ("canceled", "pending", "reopened"),
    ),
    "item": _rows(
        ("pending", "claimed", "claim"),
        ("pending", "canceled", "cancel"),
        ("pending", "skipped", "an operator's skip"),
        ("claimed", "running", "begin"),
        ("claimed", "pending", "pause, crash or release before it began"),
        ("running", "succeeded", "done"),
        ("running", "skipped", "nothing to do"),
        ("running", "failed", "no attempt left, or failed for good"),
        ("running", "pending", "retry after backoff, throttled, released"),
        ("running", "interrupted", "worker lost or stopped, disk full"),
        ("interrupted", "pending", "resume, or the sweep in lanes that continue"),
        ("interrupted", "failed", "too many interruptions in a row"),
        ("interrupted", "canceled", "cancel"),
        ("interrupted", "skipped", "an operator's skip"),
        ("failed", "pending", "retry"),
        ("failed", "skipped", "an operator's skip"),
        ("succeeded", "pending", "force-retry, or what it follows changed"),
        ("skipped", "pending", "force-retry, or what it follows changed"),
    ),
}


def sources_of(kind: str, target: str) -> frozenset[str]:
    """The states from which `target` may be entered: what a guard's WHERE must name."""
    return frozenset(t.source for t in TRANSITIONS[kind] if t.target == target)
