"""Somebody holds a transaction: nothing that dies can be removed, and nobody looks at it all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from dalsegno import Store
from dalsegno.store.hot import Delta
from dalsegno.store.postgres_sql import KNOWN_STAGES, LOCK_STAGES, ONLY_BY_INDEX, STAGES_ADJUSTED
from tests.helpers import assert_sound, register, stage_of, submitted, work_off

pytestmark = pytest.mark.xdist_group("storms")

VERSIONS = 3_000
FEW = 30


@pytest.fixture
def held(url: str) -> Iterator[None]:
    with psycopg.connect(url) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1 FROM lanes")
        yield
        holder.rollback()


def pages(conn: psycopg.Connection[Any], statement: str, params: Any) -> int:
    """How many the statement looks at."""
    ((told,),) = conn.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", params).fetchall()
    plan = told[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_the_newest_of_thousands_of_versions_of_a_stage_is_found_at_once(
    url: str, stores: Callable[..., Store], held: None
) -> None:
    store = stores(url)
    job = submitted(store, items=20).job_id
    stage = stage_of(store, job)["id"]
    with psycopg.connect(url, autocommit=True) as conn:
        with conn.pipeline():
            for number in range(VERSIONS):
                conn.execute("UPDATE stages SET last_error = %s WHERE id = %s", (str(number), stage))
        delta = Delta()
        values = {**delta.by_name(), "id": stage, "total": 0, "ready": 0, "returned": 0}
        conn.execute(ONLY_BY_INDEX)
        assert pages(conn, "SELECT ready FROM stages WHERE id = %s", (stage,)) > FEW, "or this test says nothing"
        assert pages(conn, KNOWN_STAGES, ([stage],)) < FEW
        assert pages(conn, LOCK_STAGES, ([stage],)) < FEW
        assert pages(conn, STAGES_ADJUSTED, values) < FEW
        conn.execute("COMMIT")
    assert len(work_off(store, register(store))) == 20
    assert_sound(store, job)
