"""TRANSITIONS says what the design says, and nothing is out of reach."""

import pytest

from dalsegno.model.states import (
    ITEM_LEASED,
    ITEM_SATISFIED,
    JOB_ACTIVE,
    JOB_FINISHED,
    JOB_UNFINISHED,
    STAGE_FINISHED,
    TRANSITIONS,
    ItemStatus,
    JobStatus,
    StageStatus,
    sources_of,
)

STATUSES = {"job": JobStatus, "stage": StageStatus, "item": ItemStatus}
START = {"job": "queued", "stage": "pending", "item": "pending"}

# The section "States" of the design, arrow by arrow.
DESIGN_ITEM = {
    ("pending", "claimed"),
    ("claimed", "running"),
    *(("running", end) for end in ("succeeded", "failed", "skipped", "pending", "interrupted")),
    ("claimed", "pending"),
    ("interrupted", "pending"),
    ("interrupted", "failed"),
    ("failed", "pending"),
    ("succeeded", "pending"),
    ("skipped", "pending"),
    ("pending", "canceled"),
    ("interrupted", "canceled"),
}
BY_HAND = {(source, "skipped") for source in ("pending", "failed", "interrupted")}
"""What the design leaves open: an operator's skip (docs/decisions/0008)."""
DESIGN_JOB = {
    ("queued", "running"),
    *(("running", end) for end in ("completed", "completed_with_errors", "failed", "canceled")),
    ("running", "pause_requested"),
    ("pause_requested", "paused"),
    ("paused", "queued"),
    *((end, "queued") for end in ("completed", "completed_with_errors", "failed")),
}


def moves(kind: str) -> set[tuple[str, str]]:
    return {(move.source, move.target) for move in TRANSITIONS[kind]}


def test_item_transitions_are_exactly_those_of_the_design() -> None:
    assert moves("item") == DESIGN_ITEM | BY_HAND


def test_job_transitions_include_every_arrow_of_the_design() -> None:
    assert moves("job") >= DESIGN_JOB


def test_a_stage_has_the_same_pause_pair_as_a_job() -> None:
    pair = {("running", "pause_requested"), ("pause_requested", "paused")}
    assert pair <= moves("stage")
    assert pair <= moves("job")


@pytest.mark.parametrize("kind", TRANSITIONS)
def test_every_state_is_named_in_the_enum_and_reachable_from_the_first(kind: str) -> None:
    assert {state for move in moves(kind) for state in move} == set(STATUSES[kind])
    reached, frontier = {START[kind]}, {START[kind]}
    while frontier:
        frontier = {target for source, target in moves(kind) if source in frontier} - reached
        reached |= frontier
    assert reached == set(STATUSES[kind])


@pytest.mark.parametrize("kind", TRANSITIONS)
def test_no_state_leads_to_itself_and_every_arrow_has_one_reason(kind: str) -> None:
    assert all(source != target for source, target in moves(kind))
    assert len(moves(kind)) == len(TRANSITIONS[kind])
    assert all(move.why for move in TRANSITIONS[kind])


def test_an_item_can_only_begin_by_being_claimed_first() -> None:
    assert sources_of("item", "running") == {"claimed"}
    assert sources_of("item", "claimed") == {"pending"}


def test_a_success_is_only_left_by_force_retry_or_a_changed_input() -> None:
    assert {target for source, target in moves("item") if source == "succeeded"} == {"pending"}


def test_the_groups_of_states_cover_each_enum_without_overlap() -> None:
    assert set(JobStatus) == JOB_FINISHED | JOB_UNFINISHED
    assert not JOB_FINISHED & JOB_UNFINISHED
    assert JOB_ACTIVE < JOB_UNFINISHED
    assert not ITEM_LEASED & ITEM_SATISFIED
    assert {"pending", "running", "pause_requested", "paused"} == set(StageStatus) - STAGE_FINISHED


def test_a_finished_job_only_moves_by_being_reopened_or_rid_of_its_failures() -> None:
    assert {(source, target) for source, target in moves("job") if source in JOB_FINISHED} == {
        *((source, "queued") for source in JOB_FINISHED),
        ("completed_with_errors", "completed"),
    }
