"""`base · 2^(attempt-1)`, capped, with a little jitter."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno import Backoff

seconds = st.floats(min_value=0.001, max_value=1e6)


@pytest.mark.parametrize(("attempt", "wait"), [(1, 15), (2, 30), (3, 60), (4, 120), (8, 1920), (9, 3600), (50, 3600)])
def test_the_wait_doubles_from_the_base_up_to_the_cap(attempt: int, wait: float) -> None:
    assert Backoff(base=15, cap=3600, jitter=0).delay(attempt) == wait


def test_a_very_large_attempt_does_not_overflow() -> None:
    assert Backoff(jitter=0).delay(10**9) == 3600


@given(base=seconds, cap=seconds, jitter=st.floats(0, 1), attempt=st.integers(1, 10_000), seed=st.integers())
def test_jitter_only_adds_and_never_more_than_its_share(
    base: float, cap: float, jitter: float, attempt: int, seed: int
) -> None:
    exact = Backoff(base, cap, 0).delay(attempt)
    wait = Backoff(base, cap, jitter).delay(attempt, random.Random(seed))
    assert exact <= cap
    assert exact <= wait <= exact * (1 + jitter) * (1 + 1e-9)


@given(base=seconds, cap=seconds, attempt=st.integers(1, 200))
def test_waiting_never_gets_shorter_with_more_failures(base: float, cap: float, attempt: int) -> None:
    backoff = Backoff(base, cap, 0)
    assert backoff.delay(attempt) <= backoff.delay(attempt + 1)


def test_a_seeded_generator_makes_the_wait_repeatable() -> None:
    waits = [Backoff().delay(3, random.Random(7)) for _ in range(2)]
    assert waits[0] == waits[1]
    assert waits[0] != Backoff().delay(3, random.Random(8))
