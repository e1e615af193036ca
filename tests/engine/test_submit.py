"""Submit: one transaction, at most once per dedupe key, and every bad input explained."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Engine, Item, Lane, Step, Store, Workflow, service, submit
from dalsegno.clock import ManualClock
from dalsegno.engine.submit import MAX_PAYLOAD
from dalsegno.errors import DalSegnoError, InputInvalid, PayloadTooLarge, WorkflowInvalid, WorkflowUnknown
from dalsegno.store.open import parse_url
from dalsegno.store.schema import items, jobs, lanes, stages, workflows
from tests.helpers import (
    SWIFT,
    admit,
    assert_sound,
    chain,
    claim,
    command,
    events_of,
    every,
    items_of,
    job_of,
    keys,
    lane_of,
    one_step,
    register,
    run_job,
    stage_of,
    status_of,
    types_of,
    wait_for_job,
    work_off,
)


@service("work", workers=2)
def work(item: Item) -> None:
    return None


def test_a_submitted_job_is_queued_with_its_stages_and_items(store: Store) -> None:
    found = submit(
        store,
        chain("work", "other"),
        items=["x", ("y", {"n": 1}), {"key": "z", "params": {"n": 2}}],
        params={"p": 1},
        scope={"s": [1]},
        options={"o": True},
        snapshot={"root": "/music"},
        priority=7,
        requested_by="olga",
    )
    assert found.created
    job = job_of(store, found.job_id)
    assert (job["status"], job["priority"], job["requested_by"]) == ("queued", 7, "olga")
    assert (job["scope"], job["snapshot"]) == ({"s": [1]}, {"root": "/music"})
    assert job["options"] == {"o": True, "params": {"p": 1}}
    first, second = (stage_of(store, found.job_id, key) for key in "ab")
    assert (first["total"], first["ready"], first["given"], first["planned"]) == (3, 3, True, True)
    assert (second["total"], second["given"], second["planned"]) == (0, False, False)
    assert (first["params"], first["priority"]) == ({"p": 1}, 7)
    assert [row["params"] for row in items_of(store, found.job_id)] == [None, {"n": 1}, {"n": 2}]
    (event,) = events_of(store, job_id=found.job_id)
    assert (event["type"], event["source"], event["data"]["items"]) == ("job_submitted", "olga", {"a": 3})
    assert_sound(store, found.job_id)


def test_a_stored_workflow_can_be_submitted_by_name(store: Store) -> None:
    workflow = one_step()
    submit(store, workflow, items=keys(1))
    again = submit(store, workflow.name, items=keys(2))
    assert stage_of(store, again.job_id)["total"] == 2


def test_an_unknown_workflow_is_named_with_the_one_that_was_meant(store: Store) -> None:
    submit(store, Workflow(name="download", steps=[Step(key="a", service="x")]), items=[])
    with pytest.raises(WorkflowUnknown, match='Did you mean "download"'):
        submit(store, "donwload")


def test_a_stored_version_of_a_workflow_never_changes(store: Store) -> None:
    submit(store, Workflow(name="w", steps=[Step(key="a", service="x")]), items=[])
    with pytest.raises(WorkflowInvalid, match="version 2"):
        submit(store, Workflow(name="w", steps=[Step(key="a", service="y")]), items=[])
    newer = Workflow(name="w", version=2, steps=[Step(key="a", service="y")])
    job = submit(store, newer, items=[]).job_id
    assert stage_of(store, job)["service"] == "y"
    assert stage_of(store, submit(store, "w", items=[]).job_id)["service"] == "y"


# --- at most once -------------------------------------------------------------------------------


def test_the_same_work_submitted_twice_is_one_job(store: Store) -> None:
    first = submit(store, one_step(), items=keys(1), params={"a": 1, "b": None}, dedupe=True)
    again = submit(store, one_step(), items=keys(1), params={"b": None, "a": 1}, dedupe=True)
    other = submit(store, one_step(), items=keys(1), params={"a": 2}, dedupe=True)
    assert (again.job_id, again.created) == (first.job_id, False)
    assert other.created


def test_a_key_of_ones_own_deduplicates_too(store: Store) -> None:
    first = submit(store, one_step(), items=keys(1), dedupe="mine")
    assert submit(store, one_step(), items=keys(5), dedupe="mine") == (first.job_id, False)
    assert submit(store, one_step(), items=keys(1), dedupe="yours").created


def test_sixteen_threads_submitting_the_same_work_make_exactly_one_job(store: Store) -> None:
    for round_ in range(5):
        with ThreadPoolExecutor(16) as pool:
            found = list(
                pool.map(lambda _, r=round_: submit(store, one_step(), items=keys(3), dedupe=f"r{r}"), range(16))
            )
        assert len({row.job_id for row in found}) == 1
        assert [row.created for row in found].count(True) == 1
    assert len(every(store, sa.select(jobs.c.id))) == 5
    assert len(every(store, sa.select(items.c.id))) == 15


@pytest.mark.parametrize("end", ["completed", "canceled"])
def test_a_finished_job_gives_its_key_free(store: Store, end: str) -> None:
    first = submit(store, one_step(), items=keys(1), dedupe="k").job_id
    if end == "completed":
        admit(store)
        work_off(store, register(store))
    else:
        command(store, "cancel", job_id=first)
        from dalsegno.engine.scheduler import cancel_some

        cancel_some(store)
    assert status_of(store, first) == end
    assert submit(store, one_step(), items=keys(1), dedupe="k").created


# --- later --------------------------------------------------------------------------------------


def test_a_scheduled_job_waits_for_its_time(still: Store, clock: ManualClock) -> None:
    me = register(still)
    job = submit(still, one_step(), items=keys(1), scheduled_at=clock.now() + timedelta(hours=1)).job_id
    admit(still)
    assert status_of(still, job) == "queued"
    assert claim(still, me) == []
    clock.advance(3601)
    admit(still)
    assert status_of(still, job) == "running"
    assert len(claim(still, me)) == 1


def test_a_running_engine_starts_a_scheduled_job_when_it_is_due(store: Store) -> None:
    with Engine(store, [work], SWIFT):
        when = store.clock.now() + timedelta(seconds=0.3)
        job = submit(store, one_step(), items=keys(1), scheduled_at=when).job_id
        assert wait_for_job(store, job) == "completed"
    assert job_of(store, job)["started_at"] >= when


def test_times_in_any_zone_are_kept_as_the_same_moment(store: Store) -> None:
    tokyo = datetime(2030, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))
    job = submit(store, one_step(), items=[], scheduled_at=tokyo).job_id
    assert job_of(store, job)["scheduled_at"] == datetime(2030, 1, 1, tzinfo=UTC)


# --- inside the caller's own transaction ----------------------------------------------------------


@pytest.fixture
def callers(database_url: str) -> Any:
    """An engine of somebody else's on the same database, with a table of their own."""
    url = parse_url(database_url)
    if url.get_backend_name() == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE orders (id integer primary key)")
    yield engine
    engine.dispose()


def test_submitting_in_ones_own_transaction_and_rolling_back_leaves_nothing(store: Store, callers: sa.Engine) -> None:
    with callers.connect() as conn:
        conn.exec_driver_sql("INSERT INTO orders VALUES (1)")
        assert submit(conn, one_step(), items=keys(5)).created
        conn.rollback()
    for table in (jobs, stages, items, workflows):
        assert every(store, sa.select(table)) == []
    assert types_of(store) == []


def test_submitting_in_ones_own_transaction_and_committing_runs(store: Store, callers: sa.Engine) -> None:
    with Engine(store, [work], SWIFT):
        with callers.begin() as conn:
            conn.exec_driver_sql("INSERT INTO orders VALUES (1)")
            job = submit(conn, one_step(), items=[("k", {"n": 1})], dedupe=True).job_id
        assert wait_for_job(store, job) == "completed"
    with callers.connect() as conn:
        assert conn.exec_driver_sql("SELECT count(*) FROM orders").scalar() == 1
    assert_sound(store, job)


def test_jobs_from_both_ways_do_not_collide(store: Store, callers: sa.Engine) -> None:
    numbers = []
    for _ in range(3):
        numbers.append(submit(store, one_step(), items=keys(1)).job_id)
        with callers.begin() as conn:
            numbers.append(submit(conn, one_step(), items=keys(1)).job_id)
    assert numbers == sorted(set(numbers))


# --- bad input ----------------------------------------------------------------------------------


def refused(store: Store, error: type[DalSegnoError], match: str, **options: Any) -> None:
    with pytest.raises(error, match=match):
        submit(store, options.pop("workflow", None) or one_step(), **{"items": keys(1), **options})
    assert every(store, sa.select(jobs)) == []
    assert every(store, sa.select(items)) == []
    assert every(store, sa.select(workflows)) == []


BIG = {"x": "y" * MAX_PAYLOAD}


@pytest.mark.parametrize("where", ["params", "scope", "options", "snapshot"])
def test_an_oversized_payload_is_refused_with_its_size(store: Store, where: str) -> None:
    refused(store, PayloadTooLarge, r"1,000,0\d\d bytes; the limit is 1,000,000", **{where: BIG})


def test_an_oversized_item_is_refused_with_its_name(store: Store) -> None:
    refused(store, PayloadTooLarge, 'params of item "big"', items=["small", ("big", BIG)])


@pytest.mark.parametrize("value", [{"x": "a\x00b"}, {"a\x00b": 1}, {"x": ["\x00"]}])
def test_a_nul_character_is_refused_because_postgresql_cannot_store_it(store: Store, value: Any) -> None:
    refused(store, InputInvalid, "NUL", params=value)
    refused(store, InputInvalid, "NUL", items=[("k", value)])


def test_text_that_only_looks_like_a_nul_is_kept(store: Store) -> None:
    job = submit(store, one_step(), items=[("k", {"x": "\\u0000"})]).job_id
    assert items_of(store, job)[0]["params"] == {"x": "\\u0000"}


@pytest.mark.parametrize("value", [{"x": object()}, {"x": float("nan")}, {"x": {1}}, {"x": "\ud800"}, {"x": b"b"}])
def test_what_is_not_json_is_refused(store: Store, value: Any) -> None:
    refused(store, InputInvalid, "cannot be stored as JSON", params=value)
    refused(store, InputInvalid, "cannot be stored as JSON", items=[("k", value)])


def test_endless_nesting_is_refused(store: Store) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    refused(store, InputInvalid, "cannot be stored as JSON", scope=deep)


@pytest.mark.parametrize("key", ["", "x" * 501, "a\x00b", "a\ud800b", 5, None, b"k"])
def test_a_key_that_is_no_short_text_is_refused(store: Store, key: Any) -> None:
    refused(store, InputInvalid, "key", items=["fine", (key, {})])


@pytest.mark.parametrize("spec", [5, None, ("a", {}, "more"), {"params": {}}, {"key": "a", "extra": 1}, ("a", [1])])
def test_an_item_of_another_shape_is_refused(store: Store, spec: Any) -> None:
    refused(store, InputInvalid, "item", items=["fine", spec])


def test_duplicate_keys_are_refused(store: Store) -> None:
    refused(store, InputInvalid, "same key", items=["a", "b", "a"])


def test_a_naive_time_is_refused_with_an_example(store: Store) -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - the point
    refused(store, InputInvalid, "needs a time zone", scheduled_at=naive)


@pytest.mark.parametrize("priority", [1_000_001, -1_000_001, 1.5, "high", None])
def test_a_priority_out_of_range_is_refused(store: Store, priority: Any) -> None:
    refused(store, InputInvalid, "whole number", priority=priority)


def test_items_for_an_unknown_step_are_refused(store: Store) -> None:
    workflow = chain("work", "work")
    refused(store, InputInvalid, 'unknown step "aa"', workflow=workflow, items={"aa": keys(1)})


def test_items_without_a_step_need_one_first_step(store: Store) -> None:
    two = Workflow(name="two", steps=[Step(key="a", service="x"), Step(key="b", service="x")])
    refused(store, InputInvalid, "starts with 2 steps", workflow=two)
    job = submit(store, two, items={"a": keys(1), "b": keys(2)}).job_id
    assert [stage_of(store, job, key)["total"] for key in "ab"] == [1, 2]


def test_a_malformed_workflow_is_refused_before_anything_is_stored(store: Store) -> None:
    circle = Workflow(
        name="c", steps=[Step(key="a", service="x", depends_on=["b"]), Step(key="b", service="x", depends_on=["a"])]
    )
    refused(store, WorkflowInvalid, "circle", workflow=circle)


def test_a_connection_through_another_driver_is_refused(sqlite_url: str, stores: Callable[..., Store]) -> None:
    class Odd:
        class dialect:  # noqa: N801 - imitates SQLAlchemy's
            name, driver = "mysql", "pymysql"

    with pytest.raises(InputInvalid, match="pymysql"):
        submit(Odd(), one_step())  # type: ignore[arg-type]


# --- lanes --------------------------------------------------------------------------------------


def test_a_lane_lets_in_no_more_jobs_than_its_limit(store: Store) -> None:
    me = register(store)
    workflow = one_step(lane=Lane(name="narrow", max_active=2))
    ids = [submit(store, workflow, items=keys(1)).job_id for _ in range(5)]
    admit(store)
    assert [status_of(store, job) for job in ids] == ["running"] * 2 + ["queued"] * 3
    work_off(store, me)
    admit(store)
    assert [status_of(store, job) for job in ids] == ["completed"] * 2 + ["running"] * 2 + ["queued"]


def test_the_more_urgent_job_enters_the_lane_first(store: Store) -> None:
    workflow = one_step(lane=Lane(name="narrow", max_active=1))
    later, urgent = submit(store, workflow, items=keys(1)), submit(store, workflow, items=keys(1), priority=1)
    admit(store)
    assert (status_of(store, later.job_id), status_of(store, urgent.job_id)) == ("queued", "running")


def test_a_paused_job_frees_its_slot_and_queues_again_on_resume(store: Store) -> None:
    workflow = one_step(lane=Lane(name="narrow", max_active=1))
    first, second = (submit(store, workflow, items=keys(1)).job_id for _ in range(2))
    admit(store)
    command(store, "pause", job_id=first)
    admit(store)
    assert (status_of(store, first), status_of(store, second)) == ("paused", "running")
    command(store, "resume", job_id=first)
    admit(store)
    assert (status_of(store, first), status_of(store, second)) == ("queued", "running")
    assert_sound(store, first, second)


def test_at_no_moment_of_a_run_does_a_lane_exceed_its_limit(store: Store) -> None:
    import threading

    inside: set[int] = set()
    most = 0
    lock = threading.Lock()

    @service("work", workers=6)
    def watched(item: Item) -> None:
        nonlocal most
        with lock:
            inside.add(item.job_id)
            most = max(most, len(inside))
        with lock:
            inside.discard(item.job_id)

    workflow = one_step(lane=Lane(name="narrow", max_active=2))
    ids = [submit(store, workflow, items=keys(8)).job_id for _ in range(6)]
    with Engine(store, [watched], SWIFT):
        for job in ids:
            assert wait_for_job(store, job) == "completed"
    assert 1 <= most <= 2
    moments = [event["type"] for event in events_of(store) if event["type"] in ("job_running", "job_completed")]
    active = 0
    for moment in moments:
        active += 1 if moment == "job_running" else -1
        assert active <= 2


def test_naming_a_lane_leaves_its_limits_and_stating_them_sets_them(store: Store) -> None:
    submit(store, one_step(lane=Lane(name="l", max_active=3)), items=[])
    submit(store, one_step("other", lane=Lane(name="l")), items=[])
    assert lane_of(store, "l")["max_active"] == 3
    submit(store, one_step("third", lane=Lane(name="l", max_active=1, recovery="pause")), items=[])
    assert (lane_of(store, "l")["max_active"], lane_of(store, "l")["recovery"]) == (1, "pause")
    assert {row["name"] for row in every(store, sa.select(lanes.c.name))} >= {"default", "catalog", "l"}


def test_a_job_with_no_items_completes_at_once(store: Store) -> None:
    job = submit(store, one_step(), items=[]).job_id
    assert run_job(store, [work], job) == "completed"
    assert_sound(store, job)
