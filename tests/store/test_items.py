"""Inserting items: in bulk, and only those that are missing."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from dalsegno import Store, submit
from dalsegno.engine.planner import add_items
from dalsegno.errors import InputInvalid
from dalsegno.store.hot import NewItem
from dalsegno.store.schema import jobs
from tests.helpers import (
    assert_counters,
    claim,
    every,
    items_of,
    keys,
    one_step,
    register,
    stage_of,
    submitted,
)


def test_bulk_insert_keeps_order_numbers_and_params(store: Store) -> None:
    texts = ["plain", 'quo"te', "back\\slash", "tab\there", "new\nline", "日本", "\\N", "", "é" * 100]
    job = submit(store, one_step(), items=[(f"key {n} {text}"[:500], {"t": text}) for n, text in enumerate(texts)])
    found = items_of(store, job.job_id)
    assert [row["seq"] for row in found] == list(range(1, len(texts) + 1))
    assert [row["params"]["t"] for row in found] == texts
    assert [row["key"] for row in found] == [f"key {n} {text}" for n, text in enumerate(texts)]
    assert {row["status"] for row in found} == {"pending"}
    assert_counters(store)


def test_a_duplicate_key_in_a_bulk_insert_is_refused_whole(store: Store) -> None:
    with pytest.raises(InputInvalid, match="same key"):
        submit(store, one_step(), items=["a", "b", "a"])
    assert every(store, sa.select(jobs)) == []


def test_insert_missing_adds_only_new_keys_and_names_them(store: Store) -> None:
    job = submitted(store, items=["a", "b"]).job_id
    stage = stage_of(store, job)["id"]
    rows = [NewItem(10, "b"), NewItem(11, "c", '{"n":1}', 7, "hash"), NewItem(12, "c"), NewItem(13, "d")]
    inserted = store.write("test", lambda tx: tx.hot.insert_missing(tx, job, stage, rows))
    assert [key for _, key in inserted] == ["c", "d"]
    found = {row["key"]: row for row in items_of(store, job)}
    assert found.keys() == {"a", "b", "c", "d"}
    assert {row["id"] for row in found.values()} >= {number for number, _ in inserted}
    assert (found["c"]["params"], found["c"]["parent_id"], found["c"]["input_hash"]) == ({"n": 1}, 7, "hash")
    assert found["b"]["seq"] == 2


def test_adding_items_to_a_live_stage_keeps_counters_and_can_be_claimed(store: Store) -> None:
    me = register(store)
    job = submitted(store, items=["a", "b"]).job_id
    stage = stage_of(store, job)["id"]
    claim(store, me, 1)
    rows = [NewItem(0, key) for key in ("b", "c", "a", "d")]
    assert store.write("test", lambda tx: add_items(tx, stage, rows)) == 2
    assert store.write("test", lambda tx: add_items(tx, stage, rows)) == 0
    assert_counters(store)
    assert [item.key for item in claim(store, me, 10)] == ["b", "c", "d"]
    assert_counters(store)


def test_many_items_are_inserted_in_one_go(store: Store) -> None:
    job = submitted(store, items=5000).job_id
    assert stage_of(store, job)["total"] == 5000
    me = register(store)
    assert [item.key for item in claim(store, me, 500)] == keys(5000)[:500]
