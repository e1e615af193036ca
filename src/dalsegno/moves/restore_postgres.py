"""An archive of pg_dump brought into a PostgreSQL database, in one transaction.

psql gets the statements from us, and COMMIT only at the very end: however this process dies, nothing has changed.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa
from psycopg import sql

from dalsegno import faults
from dalsegno.errors import BackupDamaged, ToolFailed
from dalsegno.moves.alone import nobody_at_work
from dalsegno.moves.clearing import clearing_of, refused
from dalsegno.moves.contents import Contents, contents_of
from dalsegno.moves.placed import Placed, Settle
from dalsegno.store import backup_postgres as postgres
from dalsegno.store import ours
from dalsegno.store.manifest import Manifest, Told
from dalsegno.store.past import past_pooler
from dalsegno.store.postgres_tools import Tools, find_tools
from dalsegno.store.revisions import check
from dalsegno.store.upgrade import is_vacant

_VERSION = re.compile(rb"^COPY \S+ \(version_num\) FROM stdin;\n(\S+)\n", re.MULTILINE)
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
    past_pooler(url, None)
    major, _ = postgres.server_version(url)
    programs = find_tools(major, tools)
    contents = contents_of(postgres.listed(path, programs))
    if contents.home is None:
        raise BackupDamaged(path=path, problem="it is an archive of something else.")
    schema = _schema(path, contents.home, programs)
    check(schema)
    counts, unpacked = postgres.verify(path, programs, told)
    if manifest is not None and sum(counts.values()) != manifest.rows:
        problem = f"{manifest.rows:,} rows were dumped, and {sum(counts.values()):,} are in it."
        raise BackupDamaged(path=path, problem=problem)
    with postgres.connected(url) as connection:
        nobody_at_work(connection, url)
        if not _is_vacant(url) and not force:
            raise refused(url, "there is work in it. Name another with --database, or replace what is there: --force")
        clearing = clearing_of(connection, url, contents)
    after = _SAME_PAST.format(events=sql.Identifier(contents.home, "events").as_string()).encode()
    with _chosen(contents) as wanted:
        _load(path, url, programs, clearing, after, unpacked, told, wanted)
    with postgres.connected(url) as connection:
        connection.commit()
        connection.autocommit = True
        told("gathering statistics", 0, 1)
        every = sql.SQL(", ").join(sql.Identifier(contents.home, name) for name in sorted(contents.tables))
        connection.execute(sql.SQL("ANALYZE {}").format(every))
        told("gathering statistics", 1, 1)
    rescued = settle(url.render_as_string(hide_password=False))
    return Placed(schema, sum(counts.values()), rescued)


def _is_vacant(url: sa.URL) -> bool:
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg"), poolclass=sa.pool.NullPool)
    try:
        with engine.connect() as connection:
            return is_vacant(connection)
    finally:
        engine.dispose()


def _schema(path: Path, home: str, tools: Tools) -> str:
    words = ("--data-only", f"--schema={home}", f"--table={ours.VERSION}", "--file=-", str(path))
    with tools.running("pg_restore", *words, stdout=subprocess.PIPE) as process:
        out, err = process.communicate()
        tools.check("pg_restore", process, err)
    found = _VERSION.search(out)
    if found is None:
        raise BackupDamaged(path=path, problem="it does not say which schema it has.")
    return found[1].decode()


@contextlib.contextmanager
def _chosen(contents: Contents) -> Iterator[Path | None]:
    """What is ours, as pg_restore wants it listed. None: all of it."""
    if contents.others:
        yield None
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="dalsegno-", suffix=".list") as file:
        file.write("\n".join([*contents.wanted, ""]))
        file.flush()
        yield Path(file.name)


def _load(
    path: Path, url: sa.URL, tools: Tools, before: bytes, after: bytes, total: int, told: Told, wanted: Path | None
) -> None:
    words = ("--no-psqlrc", "--quiet", "--no-password", "--set=ON_ERROR_STOP=1", "--file=-")
    said: list[bytes] = []
    with (
        tools.running("psql", *words, url=url, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as psql,
        postgres.script_of(path, tools, wanted) as chunks,
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
