"""What the database knows about its own troubles: each is made for real, told, and gone when it is mended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.clock import ManualClock
from dalsegno.engine.breakers import reset, trip
from dalsegno.engine.commander import request
from dalsegno.engine.heart import Heart
from dalsegno.engine.holds import hold, release
from dalsegno.engine.looper import Looper
from dalsegno.insight.health import clocks, deep, file, holders, keeping, loops, queries, schema, server, tables, work
from dalsegno.insight.health.finding import Finding
from dalsegno.store.schema import events, system_settings
from tests.conftest import Postgres
from tests.helpers import claim, one_step, register, submitted, wait_until

LONG_AGO = timedelta(hours=2)


def codes(store: Store, look: Callable[..., list[Finding]], *more: Any, **named: Any) -> dict[str, Finding]:
    return {each.code: each for each in store.read(lambda tx: look(tx, *more, **named))}


class Still(Looper):
    """A loop that never comes round by itself."""

    name = "claimer"
    interval = 1.0

    def tick(self) -> float | None:
        raise RuntimeError("no route to host")


# --- processes and loops ----------------------------------------------------------------------------


def test_nobody_at_work_is_worse_when_somebody_waits(store: Store) -> None:
    assert codes(store, loops.look)["no_engine"].severity == "warning"
    submitted(store)
    told = codes(store, loops.look)["no_engine"]
    assert told.severity == "error"
    assert "dalsegno serve" in told.fix
    register(store)
    assert codes(store, loops.look).keys() == {"engine_fine"}


def test_a_process_whose_lease_has_ended_is_named(store: Store) -> None:
    heart = Heart(store, "attic", {}, -5.0, lambda: None)
    heart.register({})
    told = codes(store, loops.look)["process_lost"]
    assert (told.severity, told.data["node"]) == ("error", "attic")
    assert told.since is not None
    heart.unregister()
    assert "process_lost" not in codes(store, loops.look)


def test_a_loop_that_does_not_come_round_is_late_and_vanishes_when_it_does(store: Store) -> None:
    loop = Still()
    heart = Heart(store, "attic", {}, 30.0, lambda: None)
    heart.loops = lambda: [heart, loop]
    heart.register({})
    loop._began, loop.ticked_at = loop_began_ago(200.0)
    heart.tick()
    told = codes(store, loops.look)["loop_late"]
    assert (told.severity, told.data["loop"]) == ("error", "claimer")
    assert told.data["late_seconds"] >= 200
    assert store.read(loops.read_loops)[0].stuck == ["claimer"]
    loop._began, loop.ticked_at = loop_began_ago(0.0)
    heart.tick()
    assert codes(store, loops.look).keys() == {"engine_fine"}


def loop_began_ago(seconds: float) -> tuple[float, float]:
    import time

    return time.monotonic() - seconds, time.time() - seconds


def test_a_loop_that_fails_says_what_it_met_without_secrets(store: Store) -> None:
    loop = Still()
    heart = Heart(store, "attic", {}, 30.0, lambda: None)
    heart.loops, heart.secrets = lambda: [loop], ["host"]
    heart.register({})
    loop._tick_safely()
    heart.tick()
    told = codes(store, loops.look)["loop_failing"]
    assert (told.severity, told.data["failures"]) == ("warning", 1)
    assert "RuntimeError: no route to ***" in told.says
    for _ in range(loops.FAILURES):
        loop._tick_safely()
    heart.tick()
    assert codes(store, loops.look)["loop_failing"].severity == "error"


def test_another_version_is_told(store: Store) -> None:
    register(store)
    store.write("test", lambda tx: tx.conn.execute(sa.text("UPDATE processes SET version = '0.0.1'")))
    assert codes(store, loops.look)["version_differs"].data["version"] == "0.0.1"


# --- work -------------------------------------------------------------------------------------------


def test_what_is_held_is_a_note_or_a_warning(store: Store) -> None:
    assert codes(store, work.look).keys() == {"work_fine"}
    store.write("test", lambda tx: hold(tx, "service:download", "film night", "console@127.0.0.1"))
    told = codes(store, work.look)["held_service"]
    assert (told.severity, told.fix) == ("note", "`dalsegno resume --service download`")
    store.write("test", lambda tx: release(tx, "service:download", "test"))
    submitted(store)
    store.write("test", lambda tx: hold(tx, "lane:default", "crash recovery", "rescuer"))
    assert codes(store, work.look)["held_lane"].severity == "warning"


def test_a_breaker_is_told_once_it_has_been_open_for_long(still: Store, clock: ManualClock) -> None:
    still.write("test", lambda tx: trip(tx, "source:qq", "banned", "test"))
    assert "breaker_open_long" not in codes(still, work.look)
    clock.advance(2 * 3600)
    assert codes(still, work.look)["breaker_open_long"].data["name"] == "source:qq"
    still.write("test", lambda tx: reset(tx, "source:qq", "test"))
    assert "breaker_open_long" not in codes(still, work.look)


def test_items_that_nobody_takes_are_told_with_the_gate_before_them(still: Store, clock: ManualClock) -> None:
    job = submitted(still, one_step("render")).job_id
    assert "queue_stuck" not in codes(still, work.look)
    clock.advance(600)
    told = codes(still, work.look)["queue_stuck"]
    assert (told.data["job_id"], told.data["ready"]) == (job, 3)
    assert "render" in told.says, "no live process offers it"
    claim(still, register(still), 1, "render")
    assert "queue_stuck" not in codes(still, work.look)


def test_a_command_that_nobody_applies_is_told(still: Store, clock: ManualClock) -> None:
    job = submitted(still).job_id
    still.write("test", lambda tx: request(tx, "pause", job_id=job, requested_by="test"))
    assert "command_waits" not in codes(still, work.look)
    clock.advance(120)
    assert codes(still, work.look)["command_waits"].data["type"] == "pause"


# --- the schema and the clocks ------------------------------------------------------------------------


@pytest.mark.parametrize(("revision", "code"), [("0001", "schema_behind"), ("9999", "schema_ahead")])
def test_a_schema_of_another_time_is_told(store: Store, revision: str, code: str) -> None:
    assert codes(store, schema.look) == {}
    change = sa.text("UPDATE alembic_version SET version_num = :to")
    store.write("test", lambda tx: tx.conn.execute(change, {"to": revision}))
    assert codes(store, schema.look)[code].data["found"] == revision


def test_a_clock_that_is_off_is_told(still: Store, clock: ManualClock, backend: str) -> None:
    assert codes(still, clocks.look, clock).keys() == {"clocks_fine"}
    if backend == "sqlite":
        submitted(still)  # writes events, at this machine's time
        clock.advance(-3600)
        assert codes(still, clocks.look, clock).keys() == {"clock_set_back"}
        clock.advance(3600)
    else:
        clock.advance(5)
        assert codes(still, clocks.look, clock)["clock_here"].severity == "warning"
        clock.advance(60)
        told = codes(still, clocks.look, clock)["clock_here"]
        assert told.severity == "error"
        assert 60 <= told.data["skew_seconds"] < 80
        clock.advance(-65)
    assert codes(still, clocks.look, clock).keys() == {"clocks_fine"}


def test_a_node_whose_clock_is_off_is_named(
    postgres_url: str, stores: Callable[..., Store], clock: ManualClock
) -> None:
    clock.advance(-40)
    heart = Heart(stores(postgres_url, clock), "attic", {}, 30.0, lambda: None)
    heart.loops = lambda: [heart]
    heart.register({})
    heart.tick()
    seen = stores(postgres_url)
    told = codes(seen, clocks.look, seen.clock)["clock_skew"]
    assert (told.severity, told.data["node"], told.data["ahead"]) == ("error", "attic", False)
    assert seen.read(loops.read_loops)[0].clock_skew == pytest.approx(-40, abs=15)


# --- PostgreSQL ---------------------------------------------------------------------------------------


@contextmanager
def held(url: str, *statements: str, application: str = "a report") -> Iterator[psycopg.Connection]:
    """A session of somebody else, in the middle of a transaction."""
    with psycopg.connect(url, application_name=application) as session:
        for statement in statements or ("SELECT 1",):
            session.execute(statement)
        yield session
        session.rollback()


@pytest.fixture
def server_store(postgres_url: str, stores: Callable[..., Store]) -> Store:
    return stores(postgres_url)


@pytest.mark.parametrize(
    ("statements", "keeps"),
    [
        (("SELECT count(*) FROM items",), False),
        (("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM items"), True),
        (("CREATE TABLE mine (id int)",), True),
    ],
)
def test_whoever_holds_a_transaction_is_named_until_it_ends(
    server_store: Store, postgres_url: str, statements: tuple[str, ...], keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held(postgres_url, *statements) as session:
        assert "transaction_held" not in codes(server_store, holders.look), "not before it is long"
        monkeypatch.setattr(holders, "LONG", 0.0)
        told = codes(server_store, holders.look)["transaction_held"]
        assert told.severity == "warning"
        assert told.data["pid"] == session.info.backend_pid
        assert told.data["application"] == "a report"
        assert told.data["state"] == "idle in transaction"
        assert told.data["query"] == statements[-1]
        assert f"pg_terminate_backend({session.info.backend_pid})" in told.fix
        assert told.since is not None
        monkeypatch.setattr(holders, "TOO_LONG", 0.0)
        assert codes(server_store, holders.look)["transaction_held"].severity == "error"
        (holder,) = server_store.read(holders.read_holders)
        assert (holder.age is not None) == keeps
    assert codes(server_store, holders.look) == {}


def test_a_replication_slot_that_nobody_reads_is_named(postgres: Postgres, server_store: Store) -> None:
    with postgres.admin() as admin:
        if admin.execute("SHOW wal_level").fetchone() != ("logical",):
            slot = "SELECT pg_create_physical_replication_slot('forgotten', true)"
        else:
            slot = "SELECT pg_create_logical_replication_slot('forgotten', 'pgoutput')"
        admin.execute(slot)
        try:
            if admin.execute("SELECT coalesce(xmin, catalog_xmin) FROM pg_replication_slots").fetchone() == (None,):
                assert "slot_holds" not in codes(server_store, holders.look), "it keeps no rows"
            else:
                assert "forgotten" in codes(server_store, holders.look)["slot_holds"].fix
        finally:
            admin.execute("SELECT pg_drop_replication_slot('forgotten')")
    assert "slot_holds" not in codes(server_store, holders.look)


def test_a_query_that_runs_for_long_is_named(server_store: Store, postgres_url: str) -> None:
    assert "query_running" not in codes(server_store, queries.look, seconds=0.0)
    import threading

    with psycopg.connect(postgres_url, autocommit=True, application_name="a report") as session:
        running = threading.Thread(target=lambda: _until_canceled(session))
        running.start()
        try:
            told = wait_until(lambda: codes(server_store, queries.look, seconds=0.0).get("query_running"), "the query")
            assert told.data["query"] == "SELECT pg_sleep(60)"
            assert f"pg_cancel_backend({session.info.backend_pid})" in told.fix
        finally:
            session.cancel()
            running.join()
    assert "query_running" not in codes(server_store, queries.look, seconds=0.0)


def _until_canceled(session: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.QueryCanceled):
        session.execute("SELECT pg_sleep(60)")


def test_dead_rows_are_counted_until_they_are_cleared_away(server_store: Store, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute("CREATE TABLE bloat (id int) WITH (autovacuum_enabled = false)")
        session.execute("INSERT INTO bloat SELECT generate_series(1, 2000)")
        session.execute("DELETE FROM bloat WHERE id > 100")
        session.execute("SELECT pg_stat_force_next_flush()")
        told = wait_until(lambda: codes(server_store, tables.look, dead=1000).get("table_bloated"), "its dead rows")
        assert (told.data["table"], told.data["dead"]) == ("bloat", 1900)
        assert "VACUUM (ANALYZE) bloat" in told.fix
        session.execute("VACUUM bloat")
        session.execute("SELECT pg_stat_force_next_flush()")
        wait_until(lambda: "table_bloated" not in codes(server_store, tables.look, dead=1000), "them to be gone")


def test_the_server_is_looked_at(server_store: Store) -> None:
    assert codes(server_store, server.look) == {}
    assert codes(server_store, server.look, scarce=0.0).keys() == {"connections_scarce"}


def test_what_other_users_do_may_be_hidden(server_store: Store, postgres_url: str, postgres: Postgres) -> None:
    with postgres.admin() as admin:
        admin.execute("CREATE ROLE onlooker LOGIN")
        try:
            with psycopg.connect(postgres_url) as session:
                hidden = (
                    "SET ROLE onlooker; SELECT count(*) FROM pg_stat_activity WHERE query = '<insufficient privilege>'"
                )
                session.execute(hidden)
            server_store.write("test", lambda tx: tx.conn.exec_driver_sql("GRANT onlooker TO CURRENT_USER"))

            def look(tx: Any) -> list[Finding]:
                tx.conn.exec_driver_sql("SET LOCAL ROLE onlooker")
                return server.look(tx)

            with held(postgres_url):
                assert "sessions_hidden" in {each.code for each in server_store.read(look)}
        finally:
            admin.execute("DROP ROLE onlooker")


def test_rows_in_a_default_partition_are_told(server_store: Store, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute("CREATE TABLE days (at date) PARTITION BY RANGE (at)")
        session.execute("CREATE TABLE days_default PARTITION OF days DEFAULT")
        assert "default_partition" not in codes(server_store, keeping.look)
        session.execute("INSERT INTO days VALUES ('2026-01-01')")
        assert codes(server_store, keeping.look)["default_partition"].data["partition"] == "days_default"
        session.execute("DELETE FROM days")
        assert "default_partition" not in codes(server_store, keeping.look)


# --- SQLite -------------------------------------------------------------------------------------------

HOLD = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute(sys.argv[2])
held.execute("SELECT count(*) FROM jobs").fetchone()
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def other_process(path: Path, begin: str) -> Iterator[int]:
    """Another program in the middle of a transaction on the file."""
    command = [sys.executable, "-c", HOLD, str(path), begin]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process.pid
        process.stdin.close()


@pytest.fixture
def file_store(sqlite_url: str, stores: Callable[..., Store]) -> Store:
    return stores(sqlite_url)


def path_of(store: Store) -> Path:
    return Path(store.url.removeprefix("sqlite:///"))


@pytest.mark.skipif(not file.LOCKS.exists(), reason="the system does not tell who holds locks")
def test_a_process_that_keeps_the_write_lock_is_named(file_store: Store) -> None:
    assert codes(file_store, file.look) == {}
    with other_process(path_of(file_store), "BEGIN IMMEDIATE") as pid:
        told = codes(file_store, file.look)["writer_held"]
        assert (told.severity, told.data["pid"], told.fix.endswith(f"`kill {pid}`")) == ("warning", pid, True)
        assert "import sqlite3" in told.data["program"]
        again = codes(file_store, file.look)["writer_held"]
        assert again.since == told.since
    assert codes(file_store, file.look) == {}


@pytest.mark.skipif(not file.LOCKS.exists(), reason="the system does not tell who holds locks")
def test_a_log_that_has_grown_names_who_reads(file_store: Store) -> None:
    submitted(file_store)
    with other_process(path_of(file_store), "BEGIN") as pid:
        told = codes(file_store, file.look, log=0)["log_large"]
        assert str(pid) in told.data["pids"].split(",")
        assert told.data["wal_bytes"] > 0
    assert "log_large" not in codes(file_store, file.look)


def test_space_that_holds_nothing_is_told(file_store: Store) -> None:
    def fill(tx: Any) -> None:
        tx.conn.exec_driver_sql("CREATE TABLE bulk (x)")
        tx.conn.exec_driver_sql("INSERT INTO bulk VALUES (zeroblob(2000000))")

    file_store.write("test", fill)
    assert codes(file_store, file.look, empty=0) == {}
    file_store.write("test", lambda tx: tx.conn.exec_driver_sql("DROP TABLE bulk"))
    told = codes(file_store, file.look, empty=0)["file_sparse"]
    assert told.data["free_bytes"] >= 2_000_000
    assert codes(file_store, file.look) == {}


def test_a_file_without_incremental_vacuum_is_told(tmp_path: Path, stores: Callable[..., Store]) -> None:
    import sqlite3

    path = tmp_path / "old.db"
    with sqlite3.connect(path) as old:
        old.execute("CREATE TABLE x (y)")
    old.close()
    told = codes(stores(f"sqlite:///{path}"), file.look)["file_keeps_space"]
    assert (told.severity, str(path) in told.fix) == ("note", True)


# --- keeping, and what is only looked at when asked for -----------------------------------------------


def test_backups_are_missed_and_grow_old(still: Store, clock: ManualClock) -> None:
    assert "backup_never" in codes(still, keeping.look)
    row = {"key": keeping.BACKUP, "value": {"at": clock.now().isoformat()}, "updated_at": clock.now()}
    still.write("test", lambda tx: tx.conn.execute(sa.insert(system_settings).values(row)))
    assert codes(still, keeping.look)["backup_fine"].severity == "ok"
    clock.advance(8 * 86_400)
    assert codes(still, keeping.look)["backup_old"].severity == "warning"


def test_retention_that_has_stopped_is_told(still: Store, clock: ManualClock) -> None:
    row = {"key": keeping.RETENTION, "value": {"at": clock.now().isoformat()}, "updated_at": clock.now()}
    still.write("test", lambda tx: tx.conn.execute(sa.insert(system_settings).values(row)))
    assert "retention_old" not in codes(still, keeping.look)
    clock.advance(2 * 86_400)
    assert "retention_old" in codes(still, keeping.look)


def test_a_damaged_file_is_found(tmp_path: Path, sqlite_url: str, stores: Callable[..., Store]) -> None:
    store = stores(sqlite_url)
    submitted(store, items=200)
    assert codes(store, deep.look) == {}
    store.close()
    path = path_of(store)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 4096 * 8] = b"\xa5" * (4096 * 8)
    path.write_bytes(content)
    assert codes(stores(sqlite_url), deep.look)["file_damaged"].severity == "error"


def test_what_is_asked_stays_small_with_a_long_history(store: Store) -> None:
    """No table that grows with the work is read whole."""
    asked: list[str] = []

    def look(tx: Any) -> None:
        sa.event.listen(tx.conn, "before_cursor_execute", lambda *args: asked.append(str(args[2])))
        for each in (loops.look, work.look, schema.look, holders.look, queries.look, tables.look, server.look):
            each(tx)
        for each in (file.look, keeping.look):
            each(tx)
        clocks.look(tx, store.clock)

    submitted(store)
    store.read(look)
    assert asked
    for text in asked:
        assert "FROM items" not in text
        grows = "FROM logs" in text or f"FROM {events.name}" in text
        assert not grows or "LIMIT" in text, text
