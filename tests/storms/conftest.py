"""A server that these tests have for themselves: they stop it, cut its connections and fill its disk."""

from __future__ import annotations

import itertools
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from dalsegno import open_store
from tests.outages import BOUNCER, NO_BOUNCER, Server, own_postgres, pgbouncer
from tests.web.conftest import consoles, plain

__all__ = ["consoles", "plain"]

_NUMBERS = itertools.count(1)
TEMPLATE = "migrated"


@pytest.fixture(scope="session")
def own_server() -> Iterator[Server]:
    with own_postgres(max_connections="60") as server:
        open_store(server.create(TEMPLATE)).close()
        yield server


@pytest.fixture
def server(own_server: Server) -> Iterator[Server]:
    """It runs when a test begins, whatever the one before did to it."""
    if not own_server.running:
        own_server.start()
    yield own_server
    if not own_server.running:
        own_server.start()


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    """A database on it."""
    name = f"storm_{next(_NUMBERS)}"
    yield server.create(name, TEMPLATE)
    with server.admin() as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def bounced(server: Server) -> Iterator[Callable[..., str]]:
    """`bounced(url, default_pool_size="1")`: the same database through PgBouncer in transaction mode."""
    if BOUNCER is None:
        pytest.skip(NO_BOUNCER)
    with ExitStack() as stack:

        def make(url: str, **settings: str) -> str:
            return server.url(url.rpartition("/")[2], port=stack.enter_context(pgbouncer(server, **settings)))

        yield make


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that other users may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="dalsegno-home-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def mounted(home: Path) -> Iterator[Callable[[str, Path], Path]]:
    """`mounted("8m", folder)`: a disk of that size, there; gone before `home` is."""
    points: list[Path] = []

    def mount(size: str, point: Path) -> Path:
        point.mkdir(exist_ok=True)
        words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(point)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"this machine does not let us mount: {done.stderr.strip()}")
        points.append(point)
        return point

    yield mount
    for point in points:
        subprocess.run(["umount", "-l", str(point)], check=True)


def ask(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True, application_name="test") as connection:
        return connection.execute(query).fetchall()
