"""Illegal rows do not fit in the tables: one broken row for every CHECK constraint."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from dalsegno import Store, submit
from dalsegno.errors import InputInvalid
from tests.everything import metadata
from tests.helpers import keys, one_step, submitted

NOW = datetime(2026, 1, 1, tzinfo=UTC)

GOOD: dict[str, dict[str, Any]] = {
    "workflows": {"name": "x", "version": 1, "definition": {}, "created_at": NOW, "updated_at": NOW},
    "lanes": {"name": "x"},
    "jobs": {"workflow_id": 1, "lane": "default", "order_seq": 9, "created_at": NOW, "updated_at": NOW},
    "stages": {"job_id": 1, "seq": 9, "key": "x", "service": "s", "depends_on": [], "followed_by": [],
               "priority": 100, "order_seq": 1},
    "items": {"stage_id": 999, "job_id": 1, "seq": 1, "key": "x"},
    "leases": {"item_id": 1, "number": 1, "process_id": 1, "stage_id": 1, "claimed_at": NOW},
    "workers": {"process_id": 1, "name": "x-1", "service": "x", "updated_at": NOW},
    "nodes": {"name": "x", "labels": {}, "max_concurrency": {}, "last_seen": NOW},
    "commands": {"type": "pause", "job_id": 1, "created_at": NOW},
    "events": {"at": NOW, "type": "x", "source": "x"},
    "logs": {"at": NOW, "level": "info", "logger": "x", "message": "x"},
    "artifacts": {"job_id": 1, "stage_id": 1, "item_id": 1, "kind": "output", "key": "x", "size_bytes": 1,
                  "checksum": "x", "created_at": NOW},
    "error_groups": {"fingerprint": "x", "service": "x", "code": "x", "template": "x", "count": 1, "first_at": NOW,
                     "last_at": NOW, "sample_item_id": 1, "sample_error": "x"},
    "schedules": {"name": "x", "workflow": "x", "request": {}, "cron": "@daily", "created_at": NOW, "updated_at": NOW},
    "schedule_runs": {"schedule_id": 1, "due_at": NOW, "outcome": "skipped", "reason": "missed", "at": NOW},
    "retention": {"lane": "x", "kind": "jobs", "looked_at": NOW},
    "archives": {"name": "x", "kind": "events", "label": "2026-05", "until_at": NOW, "rows": 1, "size_bytes": 1,
                 "sha256": "0" * 64, "store": "file:///x", "key": "x", "last": [1], "revision": "0007",
                 "archived_at": NOW},
    "limits": {"name": "x", "updated_at": NOW},
    "breakers": {"name": "x", "updated_at": NOW},
    "songs": {"platform": "x", "remote_id": "x", "created_at": NOW, "updated_at": NOW},
    "file_assets": {"sha256": "0" * 64, "size_bytes": 1, "created_at": NOW},
    "object_storage_backends": {"kind": "s3", "url": "x", "created_at": NOW},
    "song_candidates": {"song_id": 1, "item_id": 1, "attempt": 0, "position": 0, "platform": "x", "verdict": "chosen",
                        "at": NOW},
    "parse_requests": {"job_id": 1, "hash": "0" * 64, "body": {}, "created_at": NOW},
    "contents": {"source": "x", "remote_id": "x", "created_at": NOW, "updated_at": NOW},
    "seasons": {"content_id": 1, "number": 1},
    "episodes": {"season_id": 1, "number": 1},
    "variants": {"episode_id": 1},
}  # fmt: skip

BROKEN: dict[str, list[dict[str, Any]]] = {
    "ck_songs_downloaded_has_file": [{"downloaded_at": NOW}],
    "ck_file_assets_size_not_negative": [{"size_bytes": -1}],
    "ck_file_assets_sha256_is_hex": [{"sha256": "abc"}],
    "ck_object_storage_backends_kind_known": [{"kind": "tape"}],
    "ck_song_candidates_verdict_known": [{"verdict": "perhaps"}],
    "ck_parse_requests_state_known": [{"state": "LOST"}],
    "ck_parse_requests_hash_is_hex": [{"hash": "abc"}],
    "ck_parse_requests_counts_not_negative": [{"hits": -1}, {"retry_count": -1}],
    "ck_variants_decoded_has_link": [{"mp4_link": "http://x/a.mp4"}, {"decoded_at": NOW}],
    "ck_workflows_version_positive": [{"version": 0}],
    "ck_lanes_recovery_known": [{"recovery": "hope"}],
    "ck_lanes_max_active_positive": [{"max_active": 0}, {"max_active": -1}],
    "ck_lanes_hold_has_reason": [{"held_at": NOW}, {"held_reason": "why"}],
    "ck_jobs_status_known": [{"status": "lost"}],
    "ck_jobs_progress_is_a_fraction": [{"progress": 1.01}, {"progress": -0.01}],
    "ck_jobs_finished_has_time": [
        {"finished_at": NOW},
        *({"status": end} for end in ("completed", "completed_with_errors", "failed", "canceled")),
    ],
    "ck_jobs_pause_has_reason": [{"status": "paused"}, {"status": "pause_requested"}],
    "ck_stages_status_known": [{"status": "lost"}],
    "ck_stages_follow_known": [{"follow": "some"}],
    "ck_stages_on_failure_known": [{"on_failure": "panic"}],
    "ck_stages_counters_add_up": [{"total": 1}, {"failed": 1}],
    "ck_stages_counters_not_negative": [{"running": -1, "total": -1}, {"pending": 1, "failed": -1}],
    "ck_stages_ready_is_pending": [
        {"ready": 1},
        {"pending": 1, "total": 1, "ready": 0, "returned": 1},
        {"pending": 1, "total": 1, "ready": 1, "returned": -1},
    ],
    "ck_stages_marks_in_order": [{"low_seq": 1}, {"low_seq": -1}],
    "ck_stages_claimable_means_open_and_ready": [
        {"claimable": True},
        {"status": "running", "open": True, "pending": 1, "total": 1, "ready": 1},
        {"pending": 1, "total": 1, "ready": 1, "claimable": True},
    ],
    "ck_stages_open_means_running": [{"open": True}, {"open": True, "status": "paused"}],
    "ck_stages_finished_has_time": [
        {"finished_at": NOW},
        *({"status": end} for end in ("completed", "failed", "skipped", "canceled")),
    ],
    "ck_items_status_known": [{"status": "lost"}],
    "ck_items_leased_has_number": [{"status": "claimed"}],
    "ck_items_due_is_pending": [{"status": "claimed", "lease": 1, "due_at": NOW}],
    "ck_items_returned_is_ready": [
        {"returned": True, "due_at": NOW},
        {"returned": True, "status": "claimed", "lease": 1},
    ],
    "ck_items_trouble_has_code": [{"status": "failed", "finished_at": NOW}, {"status": "interrupted"}],
    "ck_items_running_has_start": [{"status": "running", "lease": 1}],
    "ck_items_finished_has_time": [
        {"finished_at": NOW},
        *({"status": end, "error_code": "x"} for end in ("succeeded", "failed", "skipped", "canceled")),
    ],
    "ck_items_counts_not_negative": [{"attempt": -1}, {"interruptions": -1}],
    "ck_leases_number_positive": [{"number": 0}],
    "ck_workers_status_known": [{"status": "asleep"}],
    "ck_nodes_awake_state_known": [{"awake_state": "dozing"}],
    "ck_nodes_wake_method_known": [{"wake_method": "shout"}],
    "ck_commands_type_known": [{"type": "explode"}],
    "ck_commands_status_known": [{"status": "lost", "applied_at": NOW}],
    "ck_commands_applied_has_time": [{"applied_at": NOW}, {"status": "applied"}, {"status": "rejected"}],
    "ck_commands_has_target": [{"job_id": None}],
    "ck_events_level_known": [{"level": "fatal"}],
    "ck_logs_level_known": [{"level": "fatal"}],
    "ck_artifacts_kind_known": [{"kind": "secret"}],
    "ck_artifacts_size_not_negative": [{"size_bytes": -1}],
    "ck_error_groups_count_positive": [{"count": 0}],
    "ck_schedules_catch_up_known": [{"catch_up": "twice"}],
    "ck_schedules_overlap_known": [{"overlap": "maybe"}],
    "ck_schedules_catch_up_most_within": [{"catch_up_most": 0}, {"catch_up_most": 1001}],
    "ck_schedules_pause_has_reason": [{"paused_at": NOW}, {"pause_reason": "why"}],
    "ck_schedules_paused_is_never_due": [{"paused_at": NOW, "pause_reason": "why", "next_at": NOW}],
    "ck_schedule_runs_outcome_known": [{"outcome": "lost"}],
    "ck_schedule_runs_started_has_job": [{"outcome": "started"}, {"job_id": 1}],
    "ck_schedule_runs_else_has_reason": [{"reason": None}],
    "ck_schedule_runs_count_positive": [{"count": 0, "last_due_at": NOW}],
    "ck_schedule_runs_many_were_skipped": [
        {"count": 2},
        {"last_due_at": NOW},
        {"count": 2, "last_due_at": NOW, "outcome": "failed"},
    ],
    "ck_retention_removed_not_negative": [{"removed": -1}],
    "ck_archives_kind_known": [{"kind": "songs"}],
    "ck_archives_sha256_is_hex": [{"sha256": "short"}],
    "ck_limits_origin_known": [{"origin": "rumour"}],
    "ck_limits_not_negative": [{"concurrent": -1}, {"rate": -1}],
    "ck_limits_window_positive": [{"window": 0}],
    "ck_breakers_state_known": [{"state": "ajar"}],
    "ck_breakers_kind_known": [{"kind": "mood"}],
    "ck_breakers_open_has_reason": [{"state": "open"}, {"state": "half_open", "reason": "why"}],
    "ck_breakers_probe_has_time": [
        {"state": "half_open", "reason": "why", "tripped_at": NOW, "probe_at": NOW},
        {"probe_process_id": 1},
    ],
    "ck_breakers_probe_means_half_open": [{"probe_process_id": 1, "probe_at": NOW}],
    "ck_breakers_counts_not_negative": [{"failures": -1}, {"trips": -1}, {"epoch": -1}],
}
CASES = [(name, row) for name, rows in BROKEN.items() for row in rows]


def table_of(constraint: str) -> sa.Table:
    return next(table for name, table in metadata.tables.items() if constraint.startswith(f"ck_{name}_"))


def insert(store: Store, table: sa.Table, row: dict[str, Any]) -> None:
    store.write("test", lambda tx: tx.conn.execute(sa.insert(table).values(**GOOD[table.name], **row)))


@pytest.fixture
def filled(store: Store) -> Store:
    """With one job, for rows that refer to it."""
    submit(store, one_step(), items=keys(1))
    store.write(
        "test",
        lambda tx: tx.conn.execute(
            sa.insert(metadata.tables["processes"]).values(
                node="x", host="x", pid=1, version="1", started_at=NOW, heartbeat_at=NOW, lease_until=NOW
            )
        ),
    )
    return store


def test_every_check_constraint_of_the_schema_has_a_broken_row_here() -> None:
    named = {
        constraint.name
        for table in metadata.tables.values()
        for constraint in table.constraints
        if isinstance(constraint, sa.CheckConstraint)
    }
    assert named == set(BROKEN)


def test_the_good_rows_are_accepted(filled: Store) -> None:
    for name in GOOD:
        insert(filled, metadata.tables[name], {})


def test_each_broken_row_is_refused_by_the_constraint_made_for_it(filled: Store) -> None:
    for name, row in CASES:
        table = table_of(name)
        clean = {key: value for key, value in GOOD[table.name].items() if key not in row}
        with pytest.raises((sa.exc.IntegrityError, psycopg.IntegrityError), match="ck_") as caught:
            filled.write("test", lambda tx, t=table, v={**clean, **row}: tx.conn.execute(sa.insert(t).values(**v)))
        # A row can break two at once; the one it was made for must be real, which the next test shows alone.
        assert f"ck_{table.name}_" in str(caught.value), (name, row)


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_the_constraint_itself_evaluates_to_false_for_its_row(
    name: str, fresh_database: Callable[..., str], stores: Callable[..., Store]
) -> None:
    """On SQLite, where the first constraint to fail is named: some row fails on exactly this one."""
    store = stores(fresh_database("sqlite"))
    submit(store, one_step(), items=keys(1))
    table = table_of(name)
    blamed = []
    for row in BROKEN[name]:
        values = {**GOOD[table.name], **row}
        with pytest.raises(sa.exc.IntegrityError) as caught:
            store.write("test", lambda tx, v=values: tx.conn.execute(sa.insert(table).values(**v)))
        blamed.append(str(caught.value.orig))
    assert any(text == f"CHECK constraint failed: {name}" for text in blamed), blamed


def test_keys_and_numbers_of_items_are_unique_within_their_stage(store: Store) -> None:
    job = submitted(store, items=1).job_id
    table = metadata.tables["items"]
    for row in ({"seq": 1, "key": "other"}, {"seq": 2, "key": keys(1)[0]}):
        values = {"stage_id": 1, "job_id": job, **row}
        with pytest.raises((sa.exc.IntegrityError, psycopg.IntegrityError)):
            store.write("test", lambda tx, v=values: tx.conn.execute(sa.insert(table).values(**v)))


def test_two_unfinished_jobs_cannot_share_a_dedupe_key(store: Store) -> None:
    first = submit(store, one_step(), items=keys(1), dedupe="k").job_id
    jobs = metadata.tables["jobs"]
    twin = {**GOOD["jobs"], "dedupe_key": "k"}
    with pytest.raises((sa.exc.IntegrityError, psycopg.IntegrityError)):
        store.write("test", lambda tx: tx.conn.execute(sa.insert(jobs).values(**twin)))
    finished = sa.update(jobs).where(jobs.c.id == first).values(status="completed", finished_at=NOW)
    store.write("test", lambda tx: tx.conn.execute(finished))
    store.write("test", lambda tx: tx.conn.execute(sa.insert(jobs).values(**{**twin, "id": 50})))


def test_a_times_text_on_sqlite_sorts_as_time(sqlite_url: str, stores: Callable[..., Store]) -> None:
    from dalsegno.store.schema import from_text, to_text

    moments = [datetime(2026, 1, 1, 0, 0, second, micro, tzinfo=UTC) for second in (0, 1) for micro in (0, 7, 900_000)]
    texts = [to_text(moment) for moment in moments]
    assert texts == sorted(texts)
    assert len({len(text) for text in texts}) == 1
    assert [from_text(text) for text in texts] == moments


def test_a_bulk_insert_refused_by_the_database_is_explained(store: Store) -> None:
    with pytest.raises(InputInvalid, match="same key"):
        submit(store, one_step(), items=["a", "a"])
