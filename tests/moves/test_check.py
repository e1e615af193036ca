"""Checking: what agrees is not complained about, and every kind of disagreement is found, with its fix."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Engine, Fail, Store, service, submit
from dalsegno.catalog.agreement import check_files
from dalsegno.catalog.schema import file_assets, file_locations, object_storage_backends, songs
from dalsegno.engine.commander import cancel_items
from dalsegno.engine.planner import advance
from dalsegno.engine.rows import lock_job
from dalsegno.insight.agreement import Agreement, Deadline, check_records
from dalsegno.insight.drawer import STATES
from dalsegno.insight.events import events_of_item
from dalsegno.store.schema import items, jobs, leases, stages
from dalsegno.store.store import Tx
from tests.cli.tool import say
from tests.helpers import (
    EVENT_STATUS,
    SWIFT,
    assert_sound,
    begin,
    claim,
    command,
    keys,
    one_step,
    register,
    settle,
    submitted,
    wait_for_job,
)


@service("work", workers=3)
def work(item: Any) -> Any:
    return Fail("no", "bad") if item.key == "k00002" else None


def looked(store: Store) -> Agreement:
    report = Agreement()
    check_records(store, report, Deadline(None))
    return report


def change(store: Store, statement: sa.Executable) -> None:
    store.write("test", lambda tx: tx.conn.execute(statement) and None)


@pytest.fixture
def played(store: Store) -> Store:
    """Jobs in every state of things: done, failed, paused, in hand."""
    done = submit(store, one_step(max_attempts=1), items=keys(20)).job_id
    with Engine(store, [work], SWIFT):
        wait_for_job(store, done, timeout=90)
    submitted(store, one_step(max_attempts=1), 10, scope=1)
    begin(store, claim(store, register(store), 4)[:2])
    paused = submitted(store, one_step(), 5, scope=2).job_id
    command(store, "pause", job_id=paused, payload={"reason": "test"})
    return store


def test_what_agrees_is_left_in_peace(played: Store, database_url: str) -> None:
    report = looked(played)
    assert report.named == []
    assert report.looked["items"] == 35
    assert report.looked["leases"] == 4
    told = say("check", "--database", database_url, "--json").data["check"]
    assert told["agrees"] is True
    assert told["looked"]["items"] == 35


@pytest.mark.parametrize(
    ("kind", "harm"),
    [
        ("stage_counters", sa.update(stages).where(stages.c.id == 1).values(succeeded=18, failed=2)),
        ("stage_counters", sa.update(stages).where(stages.c.id == 2).values(ready=3)),
        ("item_event", sa.update(items).where(items.c.id == 3).values(status="skipped")),
        ("leases", sa.delete(leases).where(leases.c.item_id == 21)),
        ("leases", sa.update(leases).where(leases.c.item_id == 22).values(number=99)),
        ("job_event", sa.update(jobs).where(jobs.c.id == 1).values(status="completed")),
    ],
)
def test_each_disagreement_is_found_with_its_fix(kind: str, harm: sa.Executable, played: Store) -> None:
    change(played, harm)
    report = looked(played)
    assert kind in report.found
    assert all(each.fix and each.says for each in report.named)


def test_the_time_it_may_take_is_kept_and_told(played: Store) -> None:
    report = Agreement()
    check_records(played, report, Deadline(-1))
    assert report.complete is False


def test_items_whose_events_were_pruned_are_no_disagreement(played: Store) -> None:
    from dalsegno.store.schema import events

    change(played, sa.delete(events))
    report = looked(played)
    assert report.agrees
    assert report.looked["items whose events are gone"] == 24


def test_a_cancel_that_waited_for_a_finish_comes_after_it(postgres_url: str, stores: Callable[..., Store]) -> None:
    """Its transaction is the older one all the same."""
    store = stores(postgres_url)
    job = submitted(store, items=1).job_id
    held = claim(store, register(store))
    begin(store, held)
    command(store, "cancel", job_id=job)
    begun, released = threading.Event(), threading.Event()

    def cancel(tx: Tx) -> None:
        lock_job(tx, job)
        begun.set()
        assert released.wait(30)
        cancel_items(tx, job)

    canceling = threading.Thread(target=store.write, args=("cancel", cancel))
    canceling.start()
    assert begun.wait(30)
    settle(store, held, "pending", then=False)
    released.set()
    canceling.join(30)
    store.write("advance", lambda tx: advance(tx, [job]))
    assert looked(store).named == []
    told = store.read(lambda tx: events_of_item(tx, held[0].id))
    assert [event.type for event in told] == ["item_claimed", "item_started", "item_returned", "item_canceled"]
    assert told[-1].tx < told[-2].tx
    assert_sound(store, job)


def test_events_mean_here_what_they_mean_in_the_tests() -> None:
    assert STATES == EVENT_STATUS


def test_files_are_looked_for(store: Store, database_url: str, tmp_path: Path) -> None:
    import hashlib

    root = tmp_path / "library"
    root.mkdir()
    content = {"whole": b"one", "gone": b"two", "cut": b"three", "changed": b"four"}
    now = store.clock.now()

    def fill(tx: Any) -> None:
        rows = [{"kind": "library", "url": str(root)}, {"kind": "s3", "url": "s3://far/away"}]
        for row in rows:
            tx.conn.execute(sa.insert(object_storage_backends).values(created_at=now, **row))
        for number, (name, data) in enumerate([*content.items(), ("nowhere", b"five")], 1):
            asset = {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data), "created_at": now}
            tx.conn.execute(sa.insert(file_assets).values(**asset))
            song = {"platform": "demo", "remote_id": name, "asset_id": number, "downloaded_at": now}
            tx.conn.execute(sa.insert(songs).values(created_at=now, updated_at=now, **song))
            if name != "nowhere":
                where = {"asset_id": number, "path": f"{name}.flac", "size_bytes": len(data)}
                for backend in (1, 2):
                    place = {"backend_id": backend, "created_at": now, "verified_at": now, **where}
                    tx.conn.execute(sa.insert(file_locations).values(**place))

    store.write("test", fill)
    for name, data in content.items():
        (root / f"{name}.flac").write_bytes(data)
    (root / "gone.flac").unlink()
    (root / "cut.flac").write_bytes(b"thr")
    (root / "changed.flac").write_bytes(b"4our")
    report = Agreement()
    check_files(store, report, Deadline(None))
    assert report.found == {"file_missing": 1, "file_changed": 1, "song_nowhere": 1}
    assert report.looked["files"] == 4
    assert report.unsaid == ["4 files in s3://far/away: only the store itself can tell"]
    deep = say("check", "--deep", "--database", database_url, "--json", fine=False)
    assert deep.code == 3
    named = {(each["kind"], each["subject"]) for each in deep.data["check"]["named"]}
    assert named == {
        ("file_missing", str(root / "gone.flac")),
        ("file_changed", str(root / "cut.flac")),
        ("file_changed", str(root / "changed.flac")),
        ("song_nowhere", "song:5"),
    }
    shown = say("check", "--database", database_url, fine=False)
    assert "dalsegno download --song 2" in shown.out
    root.rename(tmp_path / "elsewhere")
    report = Agreement()
    check_files(store, report, Deadline(None))
    assert report.found == {"folder_missing": 1, "song_nowhere": 1}
