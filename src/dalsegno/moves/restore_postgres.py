"""An archive of pg_dump brought into a PostgreSQL database, in one transaction.

psql gets the statements from us, and COMMIT only at the very end: however this process dies, nothing has changed.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path

import psycopg
import sqlalchemy as sa
from psycopg import sql

from dalsegno import faults
from dalsegno.errors import BackupDamaged, RestoreRefused, ToolFailed
from dalsegno.moves.alone import nobody_at_work
from dalsegno.moves.placed import Placed, Settle
from dalsegno.moves.tables import names
from dalsegno.store import backup_postgres as postgres
from dalsegno.store.manifest import Manifest, Told
from dalsegno.store.migrate import check
from dalsegno.store.postgres_tools import Tools, find_tools
from dalsegno.store.upgrade import is_vacant

_TABLE = re.compile(r"^\d+; \d+ \d+ TABLE (?!DATA |ATTACH )(\S+) (\S+) \S+$")
_VERSION = re.compile(rb"^COPY \S+ \(version_num\) FROM stdin;\n(\S+)\n", re.MULTILINE)
_FUNCTIONS = """
    SELECT DISTINCT p.oid::regprocedure::text FROM pg_trigger t
    JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_class c ON c.oid = t.tgrelid
    WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace
"""
# Numbers of transactions mean nothing in another cluster: what seems to be of the future would never be told. All of it
# becomes the past, in the order in which it was written: that of its ids, which stay, so that months in the archive
# find their place among them (archive/restoring.py).
_SAME_PAST = """
UPDATE {events} SET tx = 0
WHERE tx <> 0 AND EXISTS (SELECT 1 FROM {events} WHERE tx >= pg_current_xact_id()::text::bigint);
"""


def put(
    path: Path, url: sa.URL, manifest: Manifest | None, settle: Settle, *, force: bool, tools: Path | None, told: Told
) -> Placed:
    major, _ = postgres.server_version(url)
    programs = find_tools(major, tools)
    entries = postgres.listed(path, programs)
    tables = [(found[1], found[2]) for line in entries if (found := _TABLE.match(line))]
    if "alembic_version" not in {name for _, name in tables}:
        raise BackupDamaged(path=path, problem="it is an archive of something else.")
    schema = _schema(path, programs)
    check(schema)
    counts, unpacked = postgres.verify(path, programs, told)
    if manifest is not None and sum(counts.values()) != manifest.rows:
        problem = f"{manifest.rows:,} rows were dumped, and {sum(counts.values()):,} are in it."
        raise BackupDamaged(path=path, problem=problem)
    with postgres.connected(url) as connection:
        nobody_at_work(connection, url)
        if not _is_vacant(url) and not force:
            database = url.render_as_string(hide_password=True)
            problem = "there is work in it. Name another with --database, or replace what is there: --force"
            raise RestoreRefused(database=database, problem=problem)
        clearing = _clearing(connection, tables)
    events = next((f'"{schema_name}"."{name}"' for schema_name, name in tables if name == "events"), None)
    after = _SAME_PAST.format(events=events).encode() if events else b""
    _load(path, url, programs, clearing, after, unpacked, told)
    with postgres.connected(url) as connection:
        connection.commit()
        connection.autocommit = True
        told("gathering statistics", 0, 1)
        connection.execute("ANALYZE")
        told("gathering statistics", 1, 1)
    rescued = settle(postgres.dsn(url))
    return Placed(schema, sum(counts.values()), rescued)


def _is_vacant(url: sa.URL) -> bool:
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg"), poolclass=sa.pool.NullPool)
    try:
        with engine.connect() as connection:
            return is_vacant(connection)
    finally:
        engine.dispose()


def _schema(path: Path, tools: Tools) -> str:
    words = ("--data-only", "--table=alembic_version", "--file=-", str(path))
    with tools.running("pg_restore", *words, stdout=subprocess.PIPE) as process:
        out, err = process.communicate()
        tools.check("pg_restore", process, err)
    found = _VERSION.search(out)
    if found is None:
        raise BackupDamaged(path=path, problem="it does not say which schema it has.")
    return found[1].decode()


def _clearing(connection: psycopg.Connection, tables: Iterable[tuple[str, str]]) -> bytes:
    """Drops whatever of ours is there, older or newer than the archive, and nothing else."""
    row = connection.execute("SELECT current_schema()").fetchone()
    here = str(row[0]) if row and row[0] else "public"
    wanted = {*tables, *((here, name) for name in names()), (here, "alembic_version")}
    functions = [str(each[0]) for each in connection.execute(_FUNCTIONS)]
    drops = [
        sql.SQL("DROP TABLE IF EXISTS {} CASCADE;").format(sql.Identifier(*table)).as_string(connection)
        for table in sorted(wanted)
    ]
    drops += [f"DROP FUNCTION IF EXISTS {function} CASCADE;" for function in functions]
    return "\n".join(["SET client_min_messages = warning;", *drops, ""]).encode()


def _load(path: Path, url: sa.URL, tools: Tools, before: bytes, after: bytes, total: int, told: Told) -> None:
    words = ("--no-psqlrc", "--quiet", "--no-password", "--set=ON_ERROR_STOP=1", "--file=-")
    said: list[bytes] = []
    with (
        tools.running("psql", *words, url=url, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as psql,
        postgres.script_of(path, tools) as chunks,
    ):
        assert psql.stdin is not None
        assert psql.stderr is not None
        listener = threading.Thread(target=said.extend, args=(psql.stderr,))
        listener.start()
        done = 0
        try:
            psql.stdin.write(b"BEGIN;\n" + before)
            for chunk in chunks:
                psql.stdin.write(chunk)
                done += len(chunk)
                told("restoring", min(done, total), total)
                faults.point("restore.chunk")
            psql.stdin.write(b"\n" + after + b"COMMIT;\n")
            psql.stdin.close()
        except BrokenPipeError:  # it gave up; its own words say why
            with contextlib.suppress(BrokenPipeError):
                psql.stdin.close()
        except BaseException:
            psql.kill()
            raise
        finally:
            psql.wait()
            listener.join()
        if psql.returncode != 0:
            tools.check("psql", psql, b"".join(said))
            raise ToolFailed(tool="psql", problem="it ended early")
