"""What is over goes by policy, in small steps; what could still be retried stays."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Engine, Lane, Store, service, submit
from dalsegno.archive.keeper import Keeper
from dalsegno.catalog.schema import song_candidates, songs
from dalsegno.clock import ManualClock, SystemClock
from dalsegno.engine import pruner as pruner_module
from dalsegno.engine import pruning, scheduler
from dalsegno.engine.pruner import LAST, one_round
from dalsegno.engine.pruning import LOCK, Candidate, Elsewhere, Pace, Place, candidates, failed_bound
from dalsegno.errors import NotFound
from dalsegno.insight.retention import preview
from dalsegno.model.retention import Policy, Rule
from dalsegno.requests.ask import ask
from dalsegno.requests.body import body_of
from dalsegno.requests.view import counts_of
from dalsegno.settings import Settings
from dalsegno.store.months import month_of, months, next_month
from dalsegno.store.schema import (
    artifacts,
    bulk_items,
    bulk_jobs,
    commands,
    events,
    items,
    jobs,
    logs,
    prunings,
    retention,
    stages,
    system_settings,
)
from dalsegno.store.store import Tx
from tests.helpers import (
    SWIFT,
    admit,
    assert_sound,
    begin,
    claim,
    command,
    events_of,
    every,
    item_of,
    items_of,
    keys,
    one_step,
    register,
    settle,
    status_of,
    strays,
    submitted,
    wait_until,
    work_off,
)

DAY = 86_400.0


def policies(**general: Any) -> Callable[..., Policy]:
    return lambda _lanes: Policy(Rule(**general))


def prune(store: Store, policy: Callable[..., Policy] | None = None, pace: Pace | None = None) -> Counter[str]:
    total: Counter[str] = Counter()
    for taken in one_round(store, policy or policies(), pace):
        total += taken
    return total


def done(
    store: Store, count: int = 2, lane: str | None = None, status: str = "succeeded", last: str | None = None
) -> int:
    """A job that ran to its end: all items with one status, the last of them perhaps with another."""
    process = register(store)
    workflow = one_step(lane=Lane(name=lane) if lane else None, max_attempts=1)
    job = submitted(store, workflow, count).job_id
    some = claim(store, process, count)
    settle(store, some[:-1], status)
    settle(store, some[-1:], last or status)
    assert status_of(store, job) != "running"
    return job


def considered(store: Store, item_id: int) -> None:
    """Something for the song that an item downloads."""

    def work(tx: Tx) -> None:
        song = {"platform": "x", "remote_id": str(item_id), "created_at": tx.now, "updated_at": tx.now}
        (song_id,) = tx.conn.execute(sa.insert(songs).values(song)).inserted_primary_key or ()
        candidate = {"song_id": song_id, "item_id": item_id, "attempt": 0, "position": 0, "platform": "x",
                     "verdict": "chosen", "at": tx.now}  # fmt: skip
        tx.conn.execute(sa.insert(song_candidates).values(candidate))

    store.write("test", work)


def there(store: Store) -> list[int]:
    return [row["id"] for row in every(store, sa.select(jobs.c.id).order_by(jobs.c.id))]


def test_a_finished_job_goes_with_all_that_is_its_own_and_nothing_else(still: Store, clock: ManualClock) -> None:
    old = done(still)
    item = items_of(still, old)[0]
    made = {"job_id": old, "stage_id": item["stage_id"], "item_id": item["id"], "kind": "output", "key": "a.flac",
            "size_bytes": 1, "checksum": "x", "created_at": clock.now()}  # fmt: skip
    still.write("test", lambda tx: tx.conn.execute(sa.insert(artifacts), made))
    considered(still, item["id"])
    clock.advance(89 * DAY)
    newer = done(still)
    kept = items_of(still, newer)[0]["id"]
    considered(still, kept)
    assert not prune(still)["jobs"]
    clock.advance(2 * DAY)
    taken = prune(still)
    assert (taken["jobs"], taken["items"], taken["artifacts"]) == (1, 2, 1)
    assert there(still) == [newer]
    for table in (stages, items):
        assert {row["job_id"] for row in every(still, sa.select(table))} == {newer}
    assert every(still, sa.select(artifacts)) == []
    assert [row["item_id"] for row in every(still, sa.select(song_candidates))] == [kept]
    assert_sound(still, newer)
    told = events_of(still, type="pruned")[-1]
    assert (told["data"]["jobs"], told["data"]["items"], told["source"]) == (1, 2, "retention")
    (last,) = every(still, sa.select(system_settings.c.value).where(system_settings.c.key == LAST))
    assert last["value"]["removed"]["jobs"] == 1
    rows = every(still, sa.select(retention))
    assert {(row["lane"], row["kind"]): row["removed"] for row in rows}["default", "jobs"] == 1


@pytest.mark.parametrize("status", ["failed"])
def test_what_could_still_be_retried_stays_until_it_was(still: Store, clock: ManualClock, status: str) -> None:
    kept = done(still, 3, last=status)
    done(still)
    clock.advance(4000 * DAY)
    done(still)
    assert prune(still)["jobs"] == 1
    assert kept in there(still)
    found = preview(still, policies())
    assert [(each.lane, each.count, each.names) for each in found.kept] == [("default", 1, [f"job {kept}"])]
    command(still, "retry_item", item_id=item_of(still, kept, "k00003")["id"])
    admit(still)
    work_off(still, register(still))
    assert status_of(still, kept) == "completed"
    clock.advance(91 * DAY)
    done(still)
    prune(still)
    assert kept not in there(still)


def test_failed_jobs_go_by_a_rule_of_their_own(still: Store, clock: ManualClock) -> None:
    first = done(still, last="failed")
    clock.advance(20 * DAY)
    second = done(still, last="failed")
    clock.advance(95 * DAY)
    newest = done(still)
    rule = policies(failed=110.0)
    (goes,) = preview(still, rule).goes[:1]
    assert (goes.what, goes.names, goes.because) == ("failed jobs", [f"job {first}"], "older than 110 days")
    assert prune(still, rule)["jobs"] == 1
    assert there(still) == [second, newest]


def test_a_rule_for_failed_jobs_is_about_no_others(still: Store, clock: ManualClock) -> None:
    canceled = submitted(still, one_step(), 2).job_id
    command(still, "cancel", job_id=canceled)
    scheduler.cancel_some(still)
    assert status_of(still, canceled) == "canceled"
    failed = done(still, last="failed")
    clock.advance(40 * DAY)
    newest = done(still)
    assert prune(still, policies(failed=30.0))["jobs"] == 1
    assert there(still) == [canceled, newest]
    assert failed not in there(still)


def test_enrichment_keeps_its_last_failed_and_no_other_lane_loses_one(still: Store, clock: ManualClock) -> None:
    numbers = [done(still, 2, lane="enrich", status="failed") for _ in range(4)]
    other = done(still, 2, status="failed")
    clock.advance(100 * DAY)
    newest = done(still)
    few = lambda _lanes: Policy(lanes={"enrich": {"failed_last": 3}})  # noqa: E731
    assert prune(still, few)["jobs"] == 2  # three items that failed are in the last two jobs
    assert there(still) == [*numbers[2:], other, newest]
    assert not prune(still, few)["jobs"]


def test_enrichment_keeps_a_thousand_unless_told_otherwise() -> None:
    settings = Settings(_env_file=None)
    assert settings.retention().of("enrich") == Rule(failed_last=1000)
    assert settings.retention().of("catalog") == Rule()
    told = Settings(_env_file=None, retention_lanes={"enrich_failed_last": "5", "my_lane_jobs_days": "7"})
    assert told.retention(["my-lane"]).of("my-lane").jobs == 7
    assert told.retention().of("enrich").failed_last == 5


def test_the_newest_job_stays_so_that_no_number_is_given_twice(still: Store, clock: ManualClock) -> None:
    first = done(still)
    last = done(still)
    clock.advance(1000 * DAY)
    assert prune(still)["jobs"] == 1
    assert there(still) == [last]
    top = max(row["id"] for row in every(still, sa.select(items.c.id)))
    assert submit(still, one_step(), items=keys(1)).job_id == last + 1 > first
    assert max(row["id"] for row in every(still, sa.select(items.c.id))) == top + 1


def test_a_large_job_goes_in_steps_and_cannot_be_retried_meanwhile(
    still: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "LEAST", 10)
    monkeypatch.setattr(pruning, "MOST", 10)
    large = done(still, 35)
    item = items_of(still, large)[-1]["id"]
    considered(still, item)
    clock.advance(91 * DAY)
    newest = done(still)
    pace = Pace()
    pace.rows = 10
    steps = one_round(still, policies(), pace)
    assert next(steps)["items"] == 10
    steps.close()  # the process dies here
    assert [row["job_id"] for row in every(still, sa.select(prunings))] == [large]
    asked = command(still, "force_retry_item", item_id=item)
    assert (asked["status"], asked["error_code"]) == ("rejected", "job_pruned")
    assert status_of(still, large) == "completed"
    assert prune(still, pace=pace)["items"] == 25
    assert there(still) == [newest]
    assert every(still, sa.select(prunings)) == []
    assert every(still, sa.select(song_candidates)) == []
    with pytest.raises(NotFound):
        command(still, "force_retry_item", item_id=item)


def test_a_job_that_is_retried_just_before_its_turn_is_not_touched(still: Store, clock: ManualClock) -> None:
    job = done(still)
    clock.advance(91 * DAY)
    done(still)
    before = Place(clock.now(), 0)
    found = still.read(lambda tx: candidates(tx, "default", before, None))
    assert found[0].id == job
    command(still, "force_retry_item", item_id=items_of(still, job)[0]["id"])
    taken = still.write("test", lambda tx: pruning._take(tx, found[:1], 100, failed=False))
    assert not taken
    assert status_of(still, job) == "queued"
    assert_sound(still, job)


def test_counts_of_requests_stay_right(still: Store, clock: ManualClock) -> None:
    settings = Settings(_env_file=None)
    numbers = [ask(still, settings, body_of({"title": name})).id for name in ("one", "two", "three")]
    for number in numbers[:2]:
        ended = {"status": "completed", "finished_at": clock.now()}
        still.write(
            "test", lambda tx, n=number, e=ended: tx.conn.execute(sa.update(jobs).where(jobs.c.id == n).values(**e))
        )
    assert still.read(counts_of)["DONE"] == 2
    clock.advance(91 * DAY)
    assert prune(still)["jobs"] == 2
    counts = still.read(counts_of)
    assert (counts["DONE"], counts["PENDING"]) == (0, 1)


# --- events and logs --------------------------------------------------------------------------------


def test_old_rows_go_from_the_front_and_the_last_stays(
    sqlite_url: str, stores: Callable[..., Store], clock: ManualClock
) -> None:
    store = stores(sqlite_url, clock)
    done(store, 20)
    line = {"at": clock.now(), "level": "info", "logger": "x", "message": "said"}
    store.write("test", lambda tx: tx.conn.execute(sa.insert(logs), [line] * 30))
    clock.advance(31 * DAY)
    before = len(every(store, sa.select(events.c.id)))
    (goes,) = preview(store, policies()).goes
    assert (goes.what, goes.count) == ("logs", 29)
    taken = prune(store)
    assert (taken["logs"], taken["events"]) == (29, 0)
    clock.advance(60 * DAY)
    top = every(store, sa.select(sa.func.max(events.c.id).label("id")))[0]["id"]
    assert prune(store)["events"] >= before - 1
    left = every(store, sa.select(events.c.id, events.c.type))
    assert all(row["id"] >= top for row in left)
    assert "pruned" in {row["type"] for row in left}


def test_a_lane_may_keep_its_own_shorter(still: Store, clock: ManualClock) -> None:
    short, long = done(still, 30, lane="short"), done(still, 3)
    lines = [
        {"at": clock.now(), "level": "info", "logger": "x", "message": "said", "job_id": job} for job in (short, long)
    ]
    still.write("test", lambda tx: tx.conn.execute(sa.insert(logs), lines * 3))
    clock.advance(8 * DAY)
    rule = lambda _lanes: Policy(lanes={"short": {"events": 7.0, "logs": 7.0}})  # noqa: E731
    mine = len(events_of(still, job_id=short))
    taken = prune(still, rule)
    assert (taken["events"], taken["logs"]) == (mine, 3)
    assert events_of(still, job_id=short) == []
    assert events_of(still, job_id=long)
    assert len(items_of(still, short)) == 30
    assert {row["job_id"] for row in every(still, sa.select(logs))} == {long}
    assert prune(still, rule)["events"] == 0


def test_what_an_old_command_changed_is_forgotten_and_the_command_is_not(still: Store, clock: ManualClock) -> None:
    def ask_for(tx: Tx) -> int:
        asked = {"type": "bulk_cancel", "status": "applied", "created_at": tx.now, "applied_at": tx.now}
        number = int(tx.conn.execute(sa.insert(commands).values(asked).returning(commands.c.id)).scalar_one())
        rows = [{"command_id": number, "stage_id": 1, "seq": seq} for seq in range(1200)]
        tx.conn.execute(sa.insert(bulk_items), rows)
        tx.conn.execute(sa.insert(bulk_jobs).values(command_id=number, job_id=1))
        return number

    old = still.write("test", ask_for)
    clock.advance(91 * DAY)
    new = still.write("test", ask_for)
    prune(still)
    for table in (bulk_items, bulk_jobs):
        assert {row["command_id"] for row in every(still, sa.select(table.c.command_id))} == {new}
    assert [row["id"] for row in every(still, sa.select(commands.c.id).order_by(commands.c.id))] == [old, new]


# --- the loop ---------------------------------------------------------------------------------------


def test_an_engine_prunes_by_itself_and_says_when_it_last_did(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruner_module, "FIRST_AFTER", 0.0)
    old = done(store)
    long_ago = store.clock.now().replace(year=2020)
    ended = sa.update(jobs).where(jobs.c.id == old).values(finished_at=long_ago)
    store.write("test", lambda tx: tx.conn.execute(ended))
    newest = submit(store, one_step(), items=keys(1)).job_id

    @service("work")
    def work(_: object) -> None:
        return None

    with Engine(store, [work], replace(SWIFT, retention=policies())):
        wait_until(lambda: there(store) == [newest], "the old job to go")
        wait_until(
            lambda: every(store, sa.select(system_settings).where(system_settings.c.key == LAST)),
            "the round to be told",
        )


def test_an_engine_that_was_told_nothing_takes_nothing_from_a_database_of_many(
    postgres_url: str, stores: Callable[..., Store], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruner_module, "FIRST_AFTER", 0.0)
    store = stores(postgres_url, clock)
    old = done(store)
    clock.advance(100 * DAY)
    newest = done(store)
    clock.advance(100 * DAY)
    later = next_month(next_month(month_of(clock.now())))
    with Engine(store, [], SWIFT):
        clock.advance(31 * DAY)
        wait_until(lambda: any(each.first == later for each in store.read(months)), "months, made ahead by a round")
    assert there(store) == [old, newest]
    assert events_of(store, job_id=old)
    assert every(store, sa.select(system_settings).where(system_settings.c.key == LAST)) == []


class Ahead(SystemClock):
    """That of a machine whose battery is empty."""

    def now(self) -> datetime:
        return super().now() + timedelta(days=400)


def test_a_machine_whose_clock_is_ahead_takes_nothing_from_the_others(
    postgres_url: str, stores: Callable[..., Store]
) -> None:
    right, wrong = stores(postgres_url), stores(postgres_url, Ahead())
    there_now = [done(right), done(right), done(right)]
    line = {"at": right.clock.now(), "level": "info", "logger": "x", "message": "said"}
    right.write("test", lambda tx: tx.conn.execute(sa.insert(logs), [line]))
    before = {each.name for each in right.read(months)}
    keep = Keeper(wrong, lambda: Settings(_env_file=None, retention_archive="off"))
    rule = Policy(Rule(), {"default": {"logs": 7.0}})
    assert preview(wrong, lambda _lanes: rule).goes == []
    assert sum((taken for taken in one_round(wrong, lambda _lanes: rule, keep=keep)), Counter()) == {}
    assert there(right) == there_now
    assert len(every(right, sa.select(logs))) == 1
    assert before <= {each.name for each in right.read(months)}


def test_a_walk_that_a_wrong_clock_began_is_not_the_last_for_years(still: Store, clock: ManualClock) -> None:
    kept, _ = done(still, last="failed"), done(still)
    clock.advance(1000 * DAY)
    prune(still)
    clock.advance(-900 * DAY)
    answered = sa.update(stages).values(failed=0, succeeded=stages.c.succeeded + stages.c.failed)
    still.write("test", lambda tx: tx.conn.execute(answered))
    still.write("test", lambda tx: tx.conn.execute(sa.update(items).values(status="succeeded")))
    prune(still)
    assert kept not in there(still)


def test_months_that_nobody_can_keep_stay(postgres_url: str, stores: Callable[..., Store], clock: ManualClock) -> None:
    store = stores(postgres_url, clock)
    done(store)
    before = {each.name for each in store.read(months)}
    clock.advance(300 * DAY)
    assert prune(store)["months"] == 0
    assert before <= {each.name for each in store.read(months)}


def test_months_are_made_before_an_engine_that_was_off_for_long_says_anything(
    postgres_url: str, stores: Callable[..., Store], clock: ManualClock
) -> None:
    store = stores(postgres_url, clock)
    job = submitted(store, one_step(), 2).job_id
    begin(store, claim(store, register(store, 0.0)))
    clock.advance(200 * DAY)
    Engine(store, [], SWIFT).start().stop()
    assert events_of(store, type="recovery", job_id=job)
    assert strays(store) == {}


def test_an_engine_starts_while_another_process_prunes(
    postgres_url: str, stores: Callable[..., Store], clock: ManualClock
) -> None:
    store, other = stores(postgres_url, clock), stores(postgres_url, clock)
    submit(store, one_step(), items=keys(1))
    clock.advance(200 * DAY)

    def prune_for_long(tx: Tx) -> None:
        tx.conn.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
        Engine(store, [], SWIFT).start().stop()

    other.write("test", prune_for_long)
    assert month_of(clock.now()) not in {month.first for month in store.read(months)}


def test_only_one_process_prunes_at_a_time(postgres_url: str, stores: Callable[..., Store]) -> None:
    first, second = stores(postgres_url), stores(postgres_url)

    def inside(tx: Tx) -> None:
        tx.conn.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
        with pytest.raises(Elsewhere):
            prune(second)

    first.write("test", inside)
    prune(second)


@pytest.mark.parametrize("troubled", [False, True])
def test_looking_for_jobs_reads_an_index_however_many_are_kept(store: Store, troubled: bool) -> None:
    done(store, last="failed")
    asked: list[str] = []

    def explain(tx: Tx) -> None:
        word = "EXPLAIN QUERY PLAN " if tx.conn.dialect.name == "sqlite" else "EXPLAIN "
        if tx.conn.dialect.name == "postgresql":
            tx.raw.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
        seen: list[tuple[str, Any]] = []

        def note(_c: Any, _cursor: Any, statement: str, parameters: Any, _ctx: Any, _many: Any) -> None:
            seen.append((statement, parameters))

        sa.event.listen(tx.conn, "before_cursor_execute", note)
        candidates(tx, "default", Place(tx.now, 0), Place(tx.now.replace(year=2020), 0), troubled=troubled)
        failed_bound(tx, "default", Rule(failed_last=5))
        sa.event.remove(tx.conn, "before_cursor_execute", note)
        for statement, parameters in seen:
            if "finished_at" not in statement and "job_id IN" not in statement:
                continue  # the newest of a table is its last row
            rows = tx.raw.execute(word + statement, parameters).fetchall()
            asked.append("\n".join(str(row) for row in rows))

    store.read(explain)
    assert "ix_jobs_troubled" in asked[0] if troubled else "ix_jobs_finished" in asked[0]
    assert any("ix_jobs_troubled" in plan for plan in asked)
    assert not [
        plan for plan in asked if re.search(r"SCAN (jobs|stages|items)\b(?! USING)|Seq Scan|TEMP B-TREE|Sort", plan)
    ]


def test_candidates_are_what_they_are_called(still: Store, clock: ManualClock) -> None:
    job = done(still, 3, last="failed")
    clock.advance(DAY)
    done(still)
    (found,) = still.read(lambda tx: candidates(tx, "default", Place(clock.now(), 0), None))
    assert (found.id, found.items, found.retriable) == (job, 3, 1)
    assert isinstance(found, Candidate)
