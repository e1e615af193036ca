"""What a service can say while it works: progress, phases, artifacts, writes of its own."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Engine, Fail, Item, Retry, Skip, Store, service, submit
from dalsegno.engine.executor import AsyncLoop, Pool
from dalsegno.engine.item import StageInfo
from dalsegno.engine.settler import Rules, Settler
from dalsegno.errors import InputInvalid
from dalsegno.store.schema import artifacts, config_revisions
from tests.helpers import (
    SWIFT,
    admit,
    assert_sound,
    begin,
    claim,
    events_of,
    every,
    item_of,
    items_of,
    keys,
    one_step,
    register,
    run_job,
    submitted,
    types_of,
    wait_for_job,
    wait_until,
)

INFO = StageInfo(1, 1, "a", "work", {"base": 1, "x": 1}, {"s": 1}, {}, None, (), 3, 20, None)


def run_one(store: Store, handler: Any, items: Any = ("k",), **step: Any) -> int:
    job = submit(store, one_step(**step), items=list(items)).job_id
    run_job(store, [service("work")(handler)], job)
    assert_sound(store, job)
    return job


def test_params_are_the_steps_overlaid_with_the_jobs_and_the_items_own(store: Store) -> None:
    seen: list[Any] = []
    workflow = one_step(default_params={"a": 1, "b": 1, "c": 1})
    job = submit(store, workflow, items=[("k", {"c": 3})], params={"b": 2, "c": 2}).job_id
    run_job(store, [service("work")(lambda item: seen.append(item.params))], job)
    assert seen == [{"a": 1, "b": 2, "c": 3}]


def test_an_item_knows_what_it_is(store: Store) -> None:
    seen: list[Any] = []
    job = run_one(store, lambda item: seen.append((item.key, item.job_id, item.attempt, item.forced, item.input)))
    assert seen == [("k", job, 0, False, None)]


# --- progress -----------------------------------------------------------------------------------


def test_progress_is_written_at_most_once_a_second(still: Store, clock: Any) -> None:
    """The settler's own loop, driven by hand against a clock that only we move."""
    me = register(still)
    job = submitted(still, items=1).job_id
    (claimed,) = claim(still, me)
    pool = Pool(service("work")(lambda item: None), clock, lambda *_: None, lambda *_: True, lambda: None, AsyncLoop())
    settler = Settler(still, {"work": pool}, AsyncLoop(), Rules(), lambda *_: None, lambda: None)
    item = Item(claimed, INFO._replace(id=claimed.stage_id, job_id=job))
    item.worker, item.started_at = "work-1", clock.now()
    settler.hold([item])
    pool.running["work-1"] = item
    clock.advance(1)
    settler.tick()
    written = []
    for step in range(40):
        item.progress(step / 40, f"frame {step}")
        clock.advance(0.1)
        settler.tick()
        row = item_of(still, job, claimed.key)
        if not written or written[-1] != row["progress_text"]:
            written.append(row["progress_text"])
    assert 3 <= len([text for text in written if text]) <= 4, "four seconds went by"
    assert row["status"] == "running"
    assert row["progress"] == pytest.approx(float(written[-1].split()[1]) / 40)


def test_a_phase_is_written_at_once_with_an_event(store: Store) -> None:
    seen: list[Any] = []

    def phased(item: Item) -> None:
        item.phase("resolve")
        seen.append(item_of(store, item.job_id, item.key)["phase"])
        item.phase("resolve")
        item.phase("transfer")
        seen.append(item_of(store, item.job_id, item.key)["phase"])

    job = run_one(store, phased)
    assert seen == ["resolve", "transfer"]
    phases = [event["data"]["phase"] for event in events_of(store, job_id=job, type="item_phase")]
    assert phases == ["resolve", "transfer"]


def test_progress_is_kept_within_bounds_and_texts_short() -> None:
    item = Item(None, INFO)  # type: ignore[arg-type]
    for given, kept in ((-1, 0.0), (0.5, 0.5), (7, 1.0), (1, 1.0)):
        item.progress(given)
        assert item.fraction == kept
    item.progress(text="x" * 2000)
    assert item.text is not None
    assert len(item.text) == 500


def test_what_is_said_of_the_start_gives_way_to_the_bytes_that_move() -> None:
    item = Item(None, INFO)  # type: ignore[arg-type]
    item.progress(text="starting download", beside="via qq")
    assert item.text == "starting download via qq"
    item.transferred(12 << 20, 48 << 20)
    assert item.text == "12.00MB/48.00MB via qq"
    item.progress(text="starting download", beside="via kuwo")
    assert item.text == "starting download via kuwo"
    item.transferred(1 << 20, 48 << 20)
    assert item.text == "1.00MB/48.00MB via kuwo"
    item.progress(text="looking at it")
    item.transferred(2 << 20)
    assert item.text == "looking at it", "any other text stays"
    item.enter("upload", transfers=True)
    assert item.text is None
    item.transferred(3 << 20)
    assert item.text == "3.00MB"


def test_progress_is_visible_while_the_item_runs(store: Store) -> None:
    leave = threading.Event()

    @service("work")
    def steady(item: Item) -> None:
        item.progress(0.5, "frame 500/1000")
        assert leave.wait(30)

    job = submit(store, one_step(), items=["k"]).job_id
    with Engine(store, [steady], SWIFT):
        wait_until(lambda: item_of(store, job, "k")["progress_text"] == "frame 500/1000", "the progress")
        assert item_of(store, job, "k")["progress"] == 0.5
        leave.set()
        wait_for_job(store, job)


def test_a_begin_is_written_down_within_a_tenth_of_a_second_or_so(store: Store) -> None:
    leave = threading.Event()

    @service("work")
    def waiting(item: Item) -> None:
        assert leave.wait(30)

    with Engine(store, [waiting], SWIFT):
        job = submit(store, one_step(), items=["k"]).job_id
        wait_until(lambda: item_of(store, job, "k")["status"] == "running", "the begin")
        began = item_of(store, job, "k")["started_at"]
        assert (store.clock.now() - began).total_seconds() < 0.8
        leave.set()
        wait_for_job(store, job)


# --- artifacts ----------------------------------------------------------------------------------


def test_an_artifact_is_stored_with_its_checksum_and_the_success(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "song é.flac"
    file.write_bytes(b"x" * 3_000_000)
    digests: list[str] = []
    job = run_one(store, lambda item: digests.append(item.artifact("output", file)))
    (row,) = every(store, sa.select(artifacts))
    assert digests == [hashlib.sha256(file.read_bytes()).hexdigest()] == [row["checksum"]]
    assert (row["job_id"], row["kind"], row["key"], row["size_bytes"]) == (job, "output", str(file), 3_000_000)
    assert row["content_type"] in ("audio/flac", "audio/x-flac")


def test_an_attempt_that_fails_leaves_no_artifact(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"x")

    def flaky(item: Item) -> Any:
        item.artifact("output", file)
        return Retry("no") if item.attempt == 0 else Skip("fine")

    job = run_one(store, flaky)
    assert items_of(store, job)[0]["attempt"] == 1
    assert len(every(store, sa.select(artifacts))) == 1


@pytest.mark.parametrize("kind", ["secret", "", "OUTPUT"])
def test_an_artifact_of_an_unknown_kind_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InputInvalid, match="input"):
        Item(None, INFO).artifact(kind, tmp_path)  # type: ignore[arg-type]


# --- writes of its own --------------------------------------------------------------------------


def own_write(name: str) -> Any:
    values = {"file_path": name, "content": "", "content_hash": ""}
    from datetime import UTC, datetime

    values["created_at"] = datetime.now(UTC)
    return lambda conn: conn.execute(sa.insert(config_revisions).values(**values))


def written(store: Store) -> list[str]:
    return [row["file_path"] for row in every(store, sa.select(config_revisions))]


def test_what_an_item_also_writes_joins_its_success(store: Store) -> None:
    run_one(store, lambda item: item.also(own_write("mine")))
    assert written(store) == ["mine"]


def test_what_an_item_also_writes_is_not_written_when_it_fails(store: Store) -> None:
    def flaky(item: Item) -> Any:
        item.also(own_write(f"attempt {item.attempt}"))
        return Retry("no") if item.attempt == 0 else None

    run_one(store, flaky)
    assert written(store) == ["attempt 1"]


def test_a_write_that_fails_takes_the_success_back_and_harms_no_neighbour(store: Store) -> None:
    def handler(item: Item) -> None:
        item.also(own_write(item.key))
        if item.key == "bad" and item.attempt == 0:
            item.also(lambda conn: conn.execute(sa.text("INSERT INTO no_such_table VALUES (1)")))

    job = run_one(store, handler, items=["good1", "bad", "good2"])
    assert sorted(written(store)) == ["bad", "good1", "good2"]
    bad = item_of(store, job, "bad")
    assert (bad["status"], bad["attempt"]) == ("succeeded", 1)
    assert types_of(store, item_id=bad["id"]).count("item_succeeded") == 1


def test_a_write_that_always_fails_fails_its_item(store: Store) -> None:
    def handler(item: Item) -> None:
        item.also(own_write("half"))
        item.also(lambda conn: conn.execute(sa.text("SELECT nonsense")))

    job = run_one(store, handler, max_attempts=2)
    assert items_of(store, job)[0]["status"] == "failed"
    assert written(store) == []


def test_a_write_of_a_stale_lease_is_not_made(store: Store) -> None:
    from dalsegno.engine.rescuer import rescue
    from dalsegno.model.outcome import Done

    zombie = register(store)
    job = submitted(store, items=1).job_id
    (claimed,) = claim(store, zombie)
    begin(store, [claimed])
    item = Item(claimed, INFO._replace(id=claimed.stage_id, job_id=job))
    item.started_at = store.clock.now()
    item.also(own_write("from the grave"))
    rescue(store, zombie)
    settler = Settler(store, {}, AsyncLoop(), Rules(), lambda *_: None, lambda: None)
    settler.put(item, Done("late"))
    settler.flush()
    assert written(store) == []
    assert items_of(store, job)[0]["result"] is None
    assert_sound(store, job)


def test_many_items_settle_together_and_every_write_arrives(store: Store) -> None:
    job = run_one(store, lambda item: item.also(own_write(item.key)), items=keys(200))
    assert sorted(written(store)) == keys(200)
    admit(store)
    assert {row["status"] for row in items_of(store, job)} == {"succeeded"}


def test_a_note_is_kept_however_the_attempt_ended(store: Store) -> None:
    def work(item: Item) -> Any:
        item.note(own_write(f"attempt {item.attempt}"))
        return Retry("not yet", delay=0) if item.attempt == 0 else Fail("never")

    job = run_one(store, work)
    assert written(store) == ["attempt 0", "attempt 1"]
    assert item_of(store, job, "k")["status"] == "failed"


def test_records_of_items_settled_together_are_written_in_one_call(store: Store) -> None:
    calls: list[int] = []

    def write_all(conn: sa.Connection, rows: list[str]) -> None:
        calls.append(len(rows))
        for row in rows:
            own_write(row)(conn)

    run_one(store, lambda item: item.record(write_all, item.key), items=keys(200))
    assert sorted(written(store)) == sorted(keys(200))
    assert len(calls) < 200


def test_a_record_that_cannot_be_written_fails_its_own_item_only(store: Store) -> None:
    def write_all(conn: sa.Connection, rows: list[str]) -> None:
        assert "k3" not in rows, "this one is broken"
        for row in rows:
            own_write(row)(conn)

    job = run_one(store, lambda item: item.record(write_all, item.key), items=["k1", "k2", "k3"], max_attempts=1)
    assert sorted(written(store)) == ["k1", "k2"]
    assert item_of(store, job, "k3")["status"] == "failed"


def test_farewells_are_said_after_success_only(store: Store) -> None:
    said: list[str] = []

    def work(item: Item) -> Any:
        item.afterwards(lambda: said.append(item.key))
        item.afterwards(lambda: 1 / 0)
        return Fail("no") if item.key == "bad" else None

    job = run_one(store, work, items=["good", "bad"])
    assert said == ["good"]
    assert item_of(store, job, "good")["status"] == "succeeded"
