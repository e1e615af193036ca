"""Schedules that start nothing are told: nobody keeps them, the engine stopped them, or their order is wrong."""

from __future__ import annotations

import sqlalchemy as sa

from dalsegno import Store
from dalsegno.clock import ManualClock
from dalsegno.engine.orders import as_stored
from dalsegno.engine.schedules import Schedule, add, change
from dalsegno.engine.setback import mend
from dalsegno.engine.submit import apply_workflow
from dalsegno.engine.timekeeper import keep_time
from dalsegno.insight.health import work
from dalsegno.insight.health.finding import Finding
from dalsegno.store.schema import schedules
from tests.helpers import one_step


def found(store: Store) -> dict[str, Finding]:
    return {each.code: each for each in store.read(work.look)}


def test_a_schedule_that_starts_nothing_is_told_until_it_does(still: Store, clock: ManualClock) -> None:
    workflow = one_step()
    still.write("workflow", lambda tx: apply_workflow(tx, workflow))
    number = still.write("add", lambda tx: add(tx, Schedule("nightly", "gone", "* * * * *"), "nas"))
    assert "work_fine" in found(still)
    clock.advance(300)
    late = found(still)["schedule_late"]
    assert 'Schedule "nightly" was due' in late.says
    assert "knows gone" in late.fix
    keep_time(still, as_stored)
    failed = found(still)["schedule_failed"]
    assert 'no workflow "gone"' in failed.says
    assert f"dalsegno schedule run {number}" in failed.fix
    still.write("change", lambda tx: change(tx, number, {"workflow": workflow.name}, "nas"))
    clock.advance(60)
    keep_time(still, as_stored)
    assert "work_fine" in found(still)
    still.write("zone", lambda tx: tx.conn.execute(sa.update(schedules).values(time_zone="Atlantis/Old_Town")))
    clock.advance(60)
    keep_time(still, as_stored)
    assert "Atlantis" in found(still)["schedule_stopped"].says


def test_a_schedule_that_a_wrong_clock_sent_far_away_is_told_until_it_is_mended(
    still: Store, clock: ManualClock
) -> None:
    workflow = one_step()
    still.write("workflow", lambda tx: apply_workflow(tx, workflow))
    number = still.write("add", lambda tx: add(tx, Schedule("hourly", workflow.name, "0 * * * *"), "nas"))
    clock.advance(400 * 86_400)
    keep_time(still, as_stored)
    assert "schedule_far" not in found(still)
    clock.advance(-400 * 86_400)
    far = found(still)["schedule_far"]
    assert 'Schedule "hourly" waits for' in far.says
    assert f"dalsegno schedule resume {number}" in far.fix
    mend(still, "nas")
    assert "schedule_far" not in found(still)
