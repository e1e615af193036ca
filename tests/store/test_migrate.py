"""Schemas: fresh is what the code says, newer is refused, older is brought up with its data."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from dalsegno import Store, open_store, service, submit
from dalsegno.errors import SchemaMissing, SchemaNewer
from dalsegno.store.migrate import upgrade
from dalsegno.store.open import parse_url
from dalsegno.store.revisions import known_revisions
from tests.everything import metadata
from tests.helpers import every, items_of, job_of, keys, one_step, run_job, status_of

REVISIONS = known_revisions()


def engine_for(url: str) -> sa.Engine:
    parsed = parse_url(url)
    if parsed.get_backend_name() == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    return sa.create_engine(parsed, poolclass=sa.NullPool)


def dump(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Everything in the database, tables and rows."""
    engine = engine_for(url)
    with engine.connect() as conn:
        names = sorted(sa.inspect(conn).get_table_names())
        found = {name: sorted(map(repr, conn.execute(sa.text(f'SELECT * FROM "{name}"')))) for name in names}
    engine.dispose()
    return found  # type: ignore[return-value]


def stamp(url: str, revision: str) -> None:
    engine = engine_for(url)
    with engine.begin() as conn:
        conn.execute(sa.text("UPDATE alembic_version SET version_num = :r"), {"r": revision})
    engine.dispose()


def test_revisions_are_numbered_without_a_gap() -> None:
    assert [int(revision) for revision in REVISIONS] == list(range(1, len(REVISIONS) + 1))


def test_a_fresh_database_is_exactly_what_the_schema_says(empty_database_url: str) -> None:
    open_store(empty_database_url).close()
    engine = engine_for(empty_database_url)
    with engine.connect() as conn:
        context = MigrationContext.configure(conn, opts={"compare_type": True, "include_name": _is_no_month})
        assert compare_metadata(context, metadata) == []
        inspector = sa.inspect(conn)
        for table in metadata.sorted_tables:
            named = {str(c.name) for c in table.constraints if isinstance(c, sa.CheckConstraint)}
            assert {check["name"] for check in inspector.get_check_constraints(table.name)} == named, table.name
            indexes = {str(index.name) for index in table.indexes}
            assert {i["name"] for i in inspector.get_indexes(table.name)} >= indexes, table.name
    engine.dispose()


def _is_no_month(name: str | None, kind: str, _of: object) -> bool:
    """Events and logs have a table a month, which the schema knows nothing of."""
    return kind != "table" or re.match(r"(events|logs)_", name or "") is None


def test_opening_again_changes_nothing(empty_database_url: str) -> None:
    open_store(empty_database_url).close()
    before = dump(empty_database_url)
    open_store(empty_database_url).close()
    assert dump(empty_database_url) == before


def test_a_newer_schema_is_refused_and_nothing_is_changed(database_url: str) -> None:
    store = open_store(database_url)
    submit(store, one_step(), items=keys(3))
    store.close()
    stamp(database_url, "9999")
    before = dump(database_url)
    with pytest.raises(SchemaNewer, match="9999") as caught:
        open_store(database_url)
    assert "Nothing was changed" in str(caught.value)
    assert REVISIONS[-1] in str(caught.value)
    assert dump(database_url) == before


def test_without_leave_to_migrate_an_empty_database_is_refused(empty_database_url: str) -> None:
    with pytest.raises(SchemaMissing, match="dalsegno migrate"):
        open_store(empty_database_url, migrate=False)
    assert "jobs" not in dump(empty_database_url)


@pytest.mark.parametrize("revision", REVISIONS)
def test_an_upgrade_from_each_revision_keeps_the_data(
    revision: str, empty_database_url: str, stores: Callable[..., Store]
) -> None:
    if parse_url(empty_database_url).get_backend_name() == "sqlite":
        engine_for(empty_database_url).connect().close()
    upgrade(parse_url(empty_database_url), revision)
    _fill(empty_database_url)
    before = dump(empty_database_url)
    store = stores(empty_database_url)
    after = dump(empty_database_url)
    assert len(after["jobs"]) == len(before["jobs"]) == 1
    assert len(after["items"]) == len(before["items"]) == 2
    assert job_of(store, 1)["requested_by"] == "the past"
    assert [(item["key"], item["params"]) for item in items_of(store, 1)] == [
        ("one", {"n": 1}),
        ("two", None),
    ]

    @service("work")
    def work(item: object) -> None:
        return None

    assert run_job(store, [work], 1) == "completed"
    assert [row["status"] for row in every(store, sa.select(metadata.tables["items"]))] == ["succeeded"] * 2
    assert status_of(store, 1) == "completed"


def _fill(url: str) -> None:
    """One job with two items, in plain SQL that every revision understands."""
    engine = engine_for(url)
    now = "2026-01-01T00:00:00.000000Z"
    definition = '{"name":"old","steps":[{"key":"a","service":"work"}]}'
    workflow = f"(1, 'old', 1, '{definition}', '{now}', '{now}')"
    job = f"(1, 1, 'default', 1, 'the past', '{now}', '{now}')"
    stage = "(1, 1, 0, 'a', 'work', '[]', '[]', 100, 1, true, true, 2, 2, 2, 2)"
    items = """(1, 1, 1, 1, 'one', '{"n":1}'), (2, 1, 1, 2, 'two', NULL)"""
    rows = {
        "workflows (id, name, version, definition, created_at, updated_at)": workflow,
        "jobs (id, workflow_id, lane, order_seq, requested_by, created_at, updated_at)": job,
        "stages (id, job_id, seq, key, service, depends_on, followed_by, priority, order_seq, given, planned,"
        " high_seq, total, pending, ready)": stage,
        "items (id, stage_id, job_id, seq, key, params)": items,
    }
    with engine.begin() as conn:
        for columns, values in rows.items():
            conn.exec_driver_sql(f"INSERT INTO {columns} VALUES {values}")
    engine.dispose()


def test_processes_that_start_together_on_an_empty_database_all_succeed(empty_database_url: str) -> None:
    program = "import sys, dalsegno; dalsegno.open_store(sys.argv[1]).write('x', lambda tx: None)"
    started = [
        subprocess.Popen([sys.executable, "-c", program, empty_database_url], stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    ends = [(process.communicate(timeout=60)[1], process.returncode) for process in started]
    assert [code for _, code in ends] == [0] * 4, ends
    engine = engine_for(empty_database_url)
    with engine.connect() as conn:
        found = conn.execute(sa.text("SELECT version_num FROM alembic_version")).scalars().all()
    engine.dispose()
    assert found == [REVISIONS[-1]]
