"""An attempt ends in a value."""

from datetime import UTC, datetime

import pytest

from dalsegno.model.outcome import (
    Done,
    Fail,
    Interrupted,
    PauseJob,
    Release,
    Retry,
    Skip,
    Throttled,
    outcome_of,
)

OUTCOMES = [
    Done({"a": 1}),
    Skip("there already"),
    Retry("no", delay=3.0),
    Fail("never"),
    Throttled(datetime(2026, 1, 1, tzinfo=UTC)),
    Release(),
    PauseJob("disk full", "disk_full"),
    Interrupted("stopped"),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_an_outcome_that_was_returned_stays_what_it_is(outcome: object) -> None:
    assert outcome_of(outcome) is outcome


@pytest.mark.parametrize("value", [None, 0, False, "", {}, [], {"frames": 1000}, Done])
def test_any_other_value_means_done_with_that_result(value: object) -> None:
    assert outcome_of(value) == Done(value)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_outcomes_cannot_be_changed_after_the_fact(outcome: object) -> None:
    field = next(iter(type(outcome).__slots__))
    with pytest.raises(AttributeError):
        setattr(outcome, field, "other")
