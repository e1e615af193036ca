"""What follows for a job, decided without a database."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.model.progression import Change, StageView, progress
from dalsegno.model.states import JOB_FINISHED, STAGE_FINISHED, TRANSITIONS, JobStatus, StageStatus


def stage(number: int, status: str = "pending", **fields: Any) -> StageView:
    defaults: dict[str, Any] = {
        "depends_on": (),
        "follow": "all",
        "on_failure": "continue",
        "open": status == "running",
        "planned": True,
        "pending": 0,
        "leased": 0,
        "failed": 0,
        "interrupted": 0,
    }
    return StageView(id=number, key=f"s{number}", seq=number, status=status, **{**defaults, **fields})


def due(job: str, *stages: StageView, canceling: bool = False) -> list[tuple[int | None, str]]:
    return [(change.id, change.status) for change in progress(job, canceling, stages)]


AFTER_1 = {"depends_on": ("s1",)}
EACH_1 = {"depends_on": ("s1",), "follow": "each"}


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        pytest.param([stage(1, pending=2)], [(1, "running")], id="the first stage of a job opens"),
        pytest.param([stage(1, "running", pending=2)], [], id="a stage with work goes on"),
        pytest.param([stage(1, "running", leased=1)], [], id="a stage with leases goes on"),
        pytest.param([stage(1, "running", planned=False)], [], id="a stage that is not planned is not empty"),
        pytest.param([stage(1, "running", interrupted=1)], [], id="interrupted items are still to be done"),
        pytest.param(
            [stage(1, "running")], [(1, "completed"), (None, "completed")], id="a dry stage ends its job"
        ),
        pytest.param(
            [stage(1, "running", failed=1)],
            [(1, "completed"), (None, "completed_with_errors")],
            id="failed items under continue complete with errors",
        ),
        pytest.param(
            [stage(1, "running", failed=1, on_failure="stop", open=False, pending=5), stage(2, **AFTER_1)],
            [(1, "failed"), (2, "skipped"), (None, "failed")],
            id="a failed item under stop fails the stage and skips what depends on it",
        ),
        pytest.param(
            [stage(1, "running", failed=1, on_failure="stop", pending=1), stage(2, **AFTER_1)],
            [],
            id="a stage that was opened again for a retry goes on although another item failed",
        ),
        pytest.param(
            [stage(1, "running", failed=1, on_failure="stop"), stage(2, **AFTER_1)],
            [(1, "failed"), (2, "skipped"), (None, "failed")],
            id="a stage that stops and runs dry with a failure fails",
        ),
        pytest.param(
            [stage(1, "running", failed=1, on_failure="stop", leased=1), stage(2, **AFTER_1)],
            [],
            id="a stage that stops waits for its last lease",
        ),
        pytest.param(
            [stage(1, "running"), stage(2, pending=1, **AFTER_1)],
            [(1, "completed"), (2, "running")],
            id="all: the next stage opens when the one before is done",
        ),
        pytest.param(
            [stage(1, "running", pending=1), stage(2, pending=1, **AFTER_1)],
            [],
            id="all: the next stage waits while the one before has work",
        ),
        pytest.param(
            [stage(1, pending=1), stage(2, **EACH_1)],
            [(1, "running"), (2, "running")],
            id="each: the follower opens together with what it follows",
        ),
        pytest.param(
            [stage(1, "running", pending=1), stage(2, "running", **EACH_1)],
            [],
            id="each: an empty follower stays open while more may come",
        ),
        pytest.param(
            [stage(1, "running"), stage(2, "running", **EACH_1)],
            [(1, "completed"), (2, "completed"), (None, "completed")],
            id="each: the follower ends after what it follows",
        ),
        pytest.param(
            [stage(1, "failed", failed=1, on_failure="stop"), stage(2, "running", pending=1, **EACH_1)],
            [],
            id="each: a follower finishes what it has after the other failed",
        ),
        pytest.param(
            [stage(1, "completed"), stage(2, "failed", failed=1), stage(3, depends_on=("s1", "s2"))],
            [(3, "skipped"), (None, "failed")],
            id="one failed dependency is enough to be skipped",
        ),
        pytest.param(
            [stage(1, "completed"), stage(2, "running", pending=1), stage(3, depends_on=("s1", "s2"))],
            [],
            id="all dependencies must be done",
        ),
        pytest.param(
            [stage(1, "paused", pending=1)], [(1, "running")], id="a paused stage of a running job goes on"
        ),
        pytest.param(
            [stage(1, "paused", pending=1, held=True), stage(2, "running")],
            [(2, "completed")],
            id="a stage paused by itself stays so, and its job goes on without it",
        ),
        pytest.param([stage(1, "paused", held=True)], [], id="a dry stage that is paused by itself keeps its job"),
        pytest.param(
            [stage(1, "pause_requested", pending=1, leased=1, held=True)], [], id="a pausing stage waits for its leases"
        ),
        pytest.param(
            [stage(1, "pause_requested", pending=1, held=True)], [(1, "paused")], id="its last lease ended: paused"
        ),
        pytest.param(
            [stage(1, "pause_requested", leased=1)], [(1, "running")], id="resumed before its last lease ended"
        ),
        pytest.param(
            [stage(1, "completed"), stage(2, pending=1, held=True, **AFTER_1)], [], id="its turn came while it is held"
        ),
        pytest.param(
            [stage(1, "failed", failed=1), stage(2, held=True, **AFTER_1)],
            [(2, "skipped"), (None, "failed")],
            id="nothing will ever come for a held stage: it is skipped",
        ),
        pytest.param(
            [stage(1, "paused", pending=1, held=True), stage(2, "running", **EACH_1)],
            [],
            id="each: the follower of a paused stage waits",
        ),
        pytest.param(
            [stage(1, "paused", pending=1, held=True), stage(2, pending=1, **EACH_1)],
            [(2, "running")],
            id="each: a follower with work opens although what it follows is paused",
        ),
    ],
)  # fmt: skip
def test_a_running_job_moves_along(stages: list[StageView], expected: list[tuple[int | None, str]]) -> None:
    assert due("running", *stages) == expected


def test_a_long_chain_of_dry_stages_settles_in_one_pass() -> None:
    stages = [stage(1, "running"), *(stage(n, depends_on=(f"s{n - 1}",)) for n in range(2, 30))]
    changes = due("running", *stages)
    assert changes[-1] == (None, "completed")
    assert all(view.status == "completed" for view in stages)


@pytest.mark.parametrize("status", ["queued", "paused", "completed", "failed", "canceled", "completed_with_errors"])
def test_a_job_that_is_not_active_stays_as_it_is(status: str) -> None:
    assert due(status, stage(1, pending=1)) == []


def test_a_pausing_job_is_paused_when_its_last_lease_ended() -> None:
    stages = [stage(1, "pause_requested", pending=3, leased=1), stage(2, "pause_requested")]
    assert due("pause_requested", *stages) == [(2, "paused")]
    stages[0].leased = 0
    assert due("pause_requested", *stages) == [(1, "paused"), (None, "paused")]


def test_a_pausing_job_is_paused_together_with_its_held_stages() -> None:
    stages = [stage(1, "pause_requested", held=True), stage(2, "paused", held=True), stage(3, held=True)]
    assert due("pause_requested", *stages) == [(1, "paused"), (None, "paused")]


@pytest.mark.parametrize("left", ["pending", "leased", "interrupted"])
def test_a_canceling_job_waits_for_whatever_is_left(left: str) -> None:
    assert due("running", stage(1, "running", **{left: 1}), canceling=True) == []


def test_a_canceling_job_closes_its_open_stages_and_keeps_the_done_ones() -> None:
    stages = [stage(1, "completed"), stage(2, "pause_requested"), stage(3)]
    assert due("pause_requested", *stages, canceling=True) == [
        (2, "canceled"),
        (3, "canceled"),
        (None, "canceled"),
    ]


# --- whatever the state of affairs ---------------------------------------------------------------


@st.composite
def situations(draw: st.DrawFn) -> tuple[str, bool, list[StageView]]:
    count = draw(st.integers(1, 5))
    stages = []
    for number in range(1, count + 1):
        earlier = [f"s{n}" for n in range(1, number)]
        depends_on = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=3)) if earlier else []
        follow = draw(st.sampled_from(["all", "each"])) if len(depends_on) == 1 else "all"
        amount = st.integers(0, 2)
        stages.append(
            stage(
                number,
                draw(st.sampled_from(list(StageStatus))),
                depends_on=tuple(depends_on),
                follow=follow,
                on_failure=draw(st.sampled_from(["continue", "stop"])),
                planned=draw(st.booleans()),
                pending=draw(amount),
                leased=draw(amount),
                failed=draw(amount),
                interrupted=draw(amount),
                held=draw(st.booleans()),
            )
        )
    return draw(st.sampled_from(list(JobStatus))), draw(st.booleans()), stages


LEGAL = {kind: {(move.source, move.target) for move in rows} for kind, rows in TRANSITIONS.items()}


@given(situations())
def test_every_change_is_a_legal_transition(situation: tuple[str, bool, list[StageView]]) -> None:
    job, canceling, stages = situation
    canceling = canceling and job not in JOB_FINISHED  # the flag goes when the job ends
    now = {view.id: view.status for view in stages}
    ended = False
    for change in progress(job, canceling, stages):
        if change.id is None:
            assert not ended
            assert (job, change.status) in LEGAL["job"]
            ended = True
        else:
            assert (now[change.id], change.status) in LEGAL["stage"]
            now[change.id] = change.status
    assert now == {view.id: view.status for view in stages}


@given(situations())
def test_doing_it_again_changes_nothing_more(situation: tuple[str, bool, list[StageView]]) -> None:
    job, canceling, stages = situation
    canceling = canceling and job not in JOB_FINISHED
    for change in progress(job, canceling, stages):
        job = change.status if change.id is None else job
    if job in JOB_FINISHED or job == JobStatus.PAUSED:
        canceling = False
    assert [change for change in progress(job, canceling, stages) if change.id is not None] == []


@given(situations())
def test_a_job_ends_only_with_every_stage_at_an_end_and_nothing_in_hand(
    situation: tuple[str, bool, list[StageView]],
) -> None:
    job, canceling, stages = situation
    for change in progress(job, canceling, stages):
        if change == Change(None, change.status) and change.status in JOB_FINISHED and job not in JOB_FINISHED:
            assert all(view.status in STAGE_FINISHED for view in stages)
            if canceling:
                assert not any(view.leased or view.pending or view.interrupted for view in stages)


@given(situations())
def test_a_stage_with_leases_is_never_closed(situation: tuple[str, bool, list[StageView]]) -> None:
    job, canceling, stages = situation
    leased = {view.id for view in stages if view.leased}
    for change in progress(job, canceling, stages):
        if change.id in leased:
            assert change.status in ("running", "skipped")
            # only a stage that never opened is skipped, and that one cannot really hold a lease


@given(situations())
def test_a_held_stage_is_never_opened(situation: tuple[str, bool, list[StageView]]) -> None:
    job, canceling, stages = situation
    held = {view.id for view in stages if view.held}
    for change in progress(job, canceling, stages):
        assert change.id not in held or change.status != "running"
