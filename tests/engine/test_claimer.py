"""The claimer looks again for whatever it was told of while it was looking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Engine, Item, Store, service
from dalsegno.engine.claimer import Claimer
from dalsegno.engine.rescuer import rescue
from dalsegno.store.schema import leases
from tests.helpers import SWIFT, every, register, submitted


@service("work")
def work(item: Item) -> None:
    return None


@pytest.mark.parametrize("look", ["glance", "write"])
def test_work_that_arrives_during_a_look_does_not_wait_for_the_next_one(
    store: Store, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    claimer, ask = _claimer(store), getattr(store, look)

    def late(what: Any, function: Any) -> Any:
        monkeypatch.setattr(store, look, ask)
        found = ask(what, function)
        submitted(store, items=1)
        claimer.told("work")
        return found

    if look == "write":
        claimer.told("work")  # then it claims without a glance
    monkeypatch.setattr(store, look, late)
    claimer.tick()
    assert every(store, sa.select(leases)) == []
    claimer.tick()
    assert len(every(store, sa.select(leases))) == 1


def test_nothing_is_written_to_look_for_work(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    claimer = _claimer(store)
    submitted(store, items=3)
    claimer.told("work")
    claimer.tick()
    assert len(every(store, sa.select(leases))) == 3
    written: list[str] = []
    write = store.write
    monkeypatch.setattr(store, "write", lambda name, function: written.append(name) or write(name, function))
    for _ in range(3):
        claimer._dry.clear()
        claimer.tick()
    assert written == []


def test_work_that_nobody_told_of_is_found(store: Store) -> None:
    claimer = _claimer(store)
    claimer.tick()
    submitted(store, items=1)
    claimer._dry.clear()
    claimer.tick()
    assert len(every(store, sa.select(leases))) == 1


def test_a_process_that_was_declared_dead_claims_nothing(stores: Callable[..., Store], postgres_url: str) -> None:
    """It would lose what it took, again and again, until that was interrupted too often."""
    store = stores(postgres_url)
    claimer = _claimer(store)
    rescue(store, claimer._process_id())
    submitted(store, items=1)
    claimer.told("work")
    claimer.tick()
    assert every(store, sa.select(leases)) == []
    another = register(store)  # as its heart does when it notices
    claimer._process_id = lambda: another
    claimer.told("work")
    claimer.tick()
    assert len(every(store, sa.select(leases))) == 1


def _claimer(store: Store) -> Claimer:
    engine = Engine(store, [work], SWIFT)  # not started: its loops are called by hand
    engine._heart.register({})
    return engine._claimer
