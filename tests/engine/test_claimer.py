"""The claimer looks again for whatever it was told of while it was looking."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Engine, Item, Store, service
from dalsegno.store.schema import leases
from tests.helpers import SWIFT, every, submitted


@service("work")
def work(item: Item) -> None:
    return None


def test_work_that_arrives_during_a_look_does_not_wait_for_the_next_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(store, [work], SWIFT)  # not started: its loops are called by hand
    engine._heart.register({})
    claimer, write = engine._claimer, store.write

    def late(name: str, function: Any) -> Any:
        found = write(name, function)
        if name == "claim":
            monkeypatch.setattr(store, "write", write)
            submitted(store, items=1)
            claimer.told("work")
        return found

    monkeypatch.setattr(store, "write", late)
    claimer.tick()
    assert every(store, sa.select(leases)) == []
    claimer.tick()
    assert len(every(store, sa.select(leases))) == 1
