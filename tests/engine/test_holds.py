"""Holds of a service, a lane and everything; pauses of a stage; and how each of them ends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dalsegno import Store, submit
from dalsegno.clock import ManualClock
from dalsegno.engine.holds import Held, held, hold, release
from dalsegno.errors import InputInvalid, NotFound
from tests.helpers import keys, one_step, types_of

NOTHING = Held(False, frozenset(), frozenset())


def held_now(store: Store) -> Held:
    return store.read(held)


# --- what is held -------------------------------------------------------------------------------


def test_each_level_is_held_and_released_by_its_name(still: Store) -> None:
    submit(still, one_step(), items=keys(1))
    assert held_now(still) == NOTHING
    for name in ("all", "service:work", "lane:default"):
        still.write("hold", lambda tx, name=name: hold(tx, name, "film night", "ann"))
    assert held_now(still) == Held(True, frozenset({"work"}), frozenset({"default"}))
    for name in ("all", "service:work", "lane:default"):
        assert still.write("release", lambda tx, name=name: release(tx, name, "ann"))
        assert not still.write("release", lambda tx, name=name: release(tx, name, "ann"))
    assert held_now(still) == NOTHING
    told = [kind for kind in types_of(still) if "hold" in kind or "lane" in kind]
    assert told == ["hold_set", "hold_set", "lane_held", "hold_released", "hold_released", "lane_released"]


@pytest.mark.parametrize("name", ["all", "service:work", "lane:default"])
def test_a_hold_is_over_when_its_time_has_come_even_before_it_is_removed(
    still: Store, clock: ManualClock, name: str
) -> None:
    submit(still, one_step(), items=keys(1))
    still.write("hold", lambda tx: hold(tx, name, "film night", "ann", clock.now() + timedelta(hours=2)))
    assert held_now(still) != NOTHING
    clock.advance(7200)
    assert held_now(still) == NOTHING


def test_what_cannot_be_held_is_refused(still: Store) -> None:
    with pytest.raises(NotFound, match="lane"):
        still.write("hold", lambda tx: hold(tx, "lane:nowhere", "why", "ann"))
    with pytest.raises(InputInvalid, match="neither"):
        still.write("hold", lambda tx: hold(tx, "everything", "why", "ann"))
