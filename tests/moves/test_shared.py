"""A PostgreSQL database that other programs keep tables in, too: theirs are neither taken along nor touched."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from dalsegno import Store, open_store, submit
from dalsegno.errors import RestoreRefused, SchemaNewer
from dalsegno.moves.restore import restore
from dalsegno.store.backup import backup
from dalsegno.store.backup_postgres import listed
from dalsegno.store.open import parse_url
from dalsegno.store.ours import MONTH, TABLES, VERSION, is_ours
from dalsegno.store.postgres_tools import find_tools
from dalsegno.store.revisions import known_revisions
from tests.cli.tool import say
from tests.everything import metadata
from tests.helpers import items_of, keys, one_step
from tests.moves.test_restore import taken, tools
from tests.store.test_migrate import dump, stamp

Make = Callable[..., str]
Stores = Callable[..., Store]

SHOP = """
    CREATE TABLE orders (id bigserial PRIMARY KEY, what text, CONSTRAINT something CHECK (what <> ''));
    CREATE INDEX ON orders (what);
    CREATE TYPE mood AS ENUM ('good', 'bad');
    CREATE FUNCTION changed() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
    CREATE TRIGGER changed BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION changed();
    CREATE VIEW recent AS SELECT * FROM orders;
    CREATE SEQUENCE tickets;
    CREATE SCHEMA warehouse;
    CREATE TABLE warehouse.items (id int PRIMARY KEY, shelf text);
    CREATE TABLE warehouse.alembic_version (version_num text);
    INSERT INTO orders (what) VALUES ('a song');
    INSERT INTO warehouse.items VALUES (1, 'top'), (2, 'bottom');
    INSERT INTO warehouse.alembic_version VALUES ('3f2a7c');
"""


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def ask(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


def test_every_table_of_ours_is_known_by_name(postgres_url: str) -> None:
    assert set(metadata.tables) == TABLES
    there = set(dump(postgres_url))
    assert {name for name in there if not MONTH.fullmatch(name)} == TABLES | {VERSION}
    assert all(map(is_ours, there))
    assert not is_ours("orders")
    assert not is_ours("events_archive")


def test_what_others_have_in_the_same_database_survives_a_restore(
    postgres_url: str, tmp_path: Path, stores: Stores
) -> None:
    store = stores(postgres_url)
    job = submit(store, one_step(), items=keys(3)).job_id
    run(postgres_url, SHOP)
    file = tmp_path / "b"
    told = say("backup", file, "--database", postgres_url, "--json").data
    assert told["tables"]["items"] == 3
    assert "orders" not in told["tables"]
    entries = "\n".join(listed(file, find_tools(1, tools())))
    assert "orders" not in entries
    assert "warehouse" not in entries
    submit(store, one_step(), items=keys(5))
    store.close()
    run(postgres_url, "INSERT INTO orders (what) VALUES ('another')", "DELETE FROM warehouse.items WHERE id = 1")
    say("restore", file, "--database", postgres_url, "--force", "--json")
    assert ask(postgres_url, "SELECT id, what FROM orders ORDER BY id") == [(1, "a song"), (2, "another")]
    assert ask(postgres_url, "SELECT id FROM warehouse.items") == [(2,)]
    assert ask(postgres_url, "SELECT count(*) FROM recent") == [(2,)]
    assert ask(postgres_url, "SELECT tgname FROM pg_trigger WHERE tgrelid = 'orders'::regclass") == [("changed",)]
    run(postgres_url, "SELECT nextval('tickets')", "INSERT INTO orders (what) VALUES ('a third')")
    there = stores(postgres_url)
    assert len(items_of(there, job)) == 3
    assert len(dump(postgres_url)["items"]) == 3


CATALOG = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attstattarget,
               pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
        WHERE c.relnamespace = current_schema()::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
          AND c.relkind IN ('r', 'p') ORDER BY 1, a.attnum""",
    "relations": """
        SELECT relname, relkind, reloptions, pg_get_expr(relpartbound, oid) FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace ORDER BY 1""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = current_schema()::regnamespace ORDER BY 1, 2""",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 2",
    "parts": "SELECT inhrelid::regclass::text, inhparent::regclass::text FROM pg_inherits ORDER BY 1",
    "triggers": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1",
    "functions": """
        SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace ORDER BY 1""",
    "sequences": """
        SELECT s.sequencename, s.last_value, s.start_value, d.refobjid::regclass::text, d.refobjsubid
        FROM pg_sequences s
        LEFT JOIN pg_depend d ON d.objid = format('%I.%I', s.schemaname, s.sequencename)::regclass
          AND d.deptype IN ('a', 'i')
        WHERE s.schemaname = current_schema() ORDER BY 1""",
    "remarks": """
        SELECT classoid::regclass::text, objsubid, description FROM pg_description
        WHERE description LIKE 'remark%' ORDER BY 3""",
}


@pytest.mark.parametrize("place", ["public", "studio"])
def test_a_restored_database_is_complete(place: str, fresh_database: Make, tmp_path: Path, stores: Stores) -> None:
    """Also in a schema of its own, which is not there yet where it is restored."""
    addition = f"{'&' if '?' in fresh_database('postgres', empty=True) else '?'}options=-csearch_path%3D{place}"
    origin, other = (fresh_database("postgres", empty=True) for _ in range(2))
    if place == "studio":
        run(origin, "CREATE SCHEMA studio")
    origin, target = origin + addition, other + addition
    store = stores(origin)
    submit(store, one_step(), items=keys(7))
    remarks = ("TABLE items", "COLUMN items.key", "INDEX ix_jobs_finished", "FUNCTION request_state()")
    run(origin, *(f"COMMENT ON {what} IS 'remark {n}'" for n, what in enumerate(remarks)))
    run(origin, "ALTER TABLE songs SET (autovacuum_vacuum_threshold = 77)")
    before = {name: ask(origin, query) for name, query in CATALOG.items()}
    assert all(before.values())
    backup(parse_url(origin), tmp_path / "b", tools=tools())
    restore(tmp_path / "b", parse_url(target), tools=tools())
    after = {name: ask(target, query) for name, query in CATALOG.items()}
    for name in CATALOG:
        assert after[name] == before[name], name
    submit(stores(target), one_step(), items=keys(1), scope=1)
    if place == "studio":
        with pytest.raises(RestoreRefused, match="search_path%3Dstudio"):
            restore(tmp_path / "b", parse_url(fresh_database("postgres", empty=True)), tools=tools())


@pytest.mark.parametrize(
    ("thing", "named"),
    [
        ("CREATE VIEW report AS SELECT id FROM jobs", "the view report"),
        (
            "CREATE TABLE invoices (job bigint, CONSTRAINT for_job FOREIGN KEY (job) REFERENCES jobs (id))",
            "the foreign key for_job of invoices",
        ),
    ],
)
def test_what_would_not_outlive_our_tables_is_named_and_kept(
    thing: str, named: str, postgres_url: str, tmp_path: Path, stores: Stores
) -> None:
    submit(stores(postgres_url), one_step(), items=keys(3))
    file = taken(postgres_url, tmp_path)
    stores(postgres_url).close()
    run(postgres_url, thing)
    before = dump(postgres_url)
    with pytest.raises(RestoreRefused, match=named):
        restore(file, parse_url(postgres_url), force=True, tools=tools())
    assert dump(postgres_url) == before


def test_tables_of_another_program_with_our_names_are_not_replaced(
    postgres_url: str, fresh_database: Make, tmp_path: Path
) -> None:
    file = taken(postgres_url, tmp_path)
    other = fresh_database("postgres", empty=True)
    run(other, "CREATE TABLE jobs (title text)", "INSERT INTO jobs VALUES ('baker')")
    for force in (False, True):
        with pytest.raises(RestoreRefused):
            restore(file, parse_url(other), force=force, tools=tools())
    assert ask(other, "SELECT title FROM jobs") == [("baker",)]


def test_an_archive_of_everything_goes_where_it_does_no_harm(
    postgres_url: str, fresh_database: Make, tmp_path: Path, stores: Stores
) -> None:
    """As older versions wrote it, and pg_dump does by itself."""
    store = stores(postgres_url)
    submit(store, one_step(), items=keys(3))
    store.close()
    run(postgres_url, SHOP)
    file = tmp_path / "all"
    subprocess.run([tools() / "pg_dump", "-Fc", f"--file={file}", f"--dbname={postgres_url}"], check=True)
    run(postgres_url, "INSERT INTO orders (what) VALUES ('another')")
    with pytest.raises(RestoreRefused, match="orders"):
        restore(file, parse_url(postgres_url), force=True, tools=tools())
    assert ask(postgres_url, "SELECT count(*) FROM orders") == [(2,)]
    empty = fresh_database("postgres", empty=True)
    restore(file, parse_url(empty), tools=tools())
    assert len(items_of(stores(empty), 1)) == 3
    run(postgres_url, "DROP TABLE orders CASCADE")
    fresh = tmp_path / "without"
    subprocess.run([tools() / "pg_dump", "-Fc", f"--file={fresh}", f"--dbname={postgres_url}"], check=True)
    run(postgres_url, "DELETE FROM warehouse.items WHERE id = 1")
    restore(fresh, parse_url(postgres_url), force=True, tools=tools())
    assert ask(postgres_url, "SELECT id FROM warehouse.items") == [(2,)], "a table in another schema was touched"


def test_of_a_newer_schema_no_part_is_taken_for_the_whole(postgres_url: str, tmp_path: Path) -> None:
    stamp(postgres_url, "9999")
    with pytest.raises(SchemaNewer, match="9999"):
        backup(parse_url(postgres_url), tmp_path / "b", tools=tools())
    assert list(tmp_path.iterdir()) == []
    stamp(postgres_url, known_revisions()[-1])
    open_store(postgres_url).close()
