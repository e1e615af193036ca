"""The model test, on both databases: machine.py says what happens, audit.py what must hold."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from dalsegno import Store
from tests.stateful.machine import EngineMachine

COMMON = {
    "database": None,
    "deadline": None,  # a transaction takes what the disk takes
    "suppress_health_check": list(HealthCheck),
    "print_blob": True,
}
BOUNDED = settings(max_examples=30, stateful_step_count=40, derandomize=True, **COMMON)  # type: ignore[arg-type]
DEEP = settings(max_examples=1000, stateful_step_count=80, **COMMON)  # type: ignore[arg-type]


def run(store: Store, profile: settings) -> None:
    class Machine(EngineMachine):
        pass

    Machine.store = store
    run_state_machine_as_test(Machine, settings=profile)


def test_every_history_of_the_engine_keeps_its_promises(still: Store) -> None:
    run(still, BOUNDED)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_long_history_of_the_engine_keeps_its_promises(still: Store) -> None:
    run(still, DEEP)
