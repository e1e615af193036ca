"""A PostgreSQL database dumped by pg_dump in its own format, as it was at one moment, and read back to be sure."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psycopg
import sqlalchemy as sa
from psycopg import sql

from dalsegno.errors import BackupDamaged, DatabaseUnavailable, ToolFailed
from dalsegno.store import ours
from dalsegno.store.line import Line, words_of
from dalsegno.store.manifest import Told, untold
from dalsegno.store.postgres_tools import CHUNK, Tools

DUMPING = re.compile(r'dumping contents of table "(?:[^".]+\.)?"?([^"]+)"')
COPY = re.compile(rb"^COPY (?:[^ .]+\.)?\"?([^ \"]+)\"? \(.*\) FROM stdin;$", re.MULTILINE)
END = b"\n\\.\n"


@dataclass(slots=True)
class Moment:
    """One snapshot of a database, and what of ours is in it."""

    connection: psycopg.Connection
    snapshot: str
    home: str = ""
    """The schema that it is in; empty: there is none."""
    counts: dict[str, int] = field(default_factory=dict)
    """A partition is counted for itself, since it is dumped so, and told as its parent."""
    parents: dict[str, str] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    """What other programs have in the same schema."""

    def tables(self) -> dict[str, int]:
        """Rows by table, partitions with their parents."""
        told: dict[str, int] = {}
        for name, count in self.counts.items():
            told[self.parents[name]] = told.get(self.parents[name], 0) + count
        return dict(sorted(told.items()))

    def ask(self, query: str) -> list[tuple[str, ...]]:
        return [tuple(map(str, row)) for row in self.connection.execute(query.encode())]

    def has(self, table: str) -> bool:
        return table in self.parents.values()


def server_version(url: sa.URL) -> tuple[int, str]:
    """The major version, and all of it."""
    with connected(url) as connection:
        number = connection.info.server_version
    return number // 10_000, f"{number // 10_000}.{number % 10_000}"


@contextmanager
def connected(url: sa.URL) -> Iterator[Line]:
    try:
        with Line.connect(words_of(url), application_name="dalsegno backup", prepare_threshold=None) as connection:
            yield connection
    except psycopg.OperationalError as error:
        problem = str(error).strip().splitlines()
        raise DatabaseUnavailable(problem=problem[0] if problem else "no answer") from error


@contextmanager
def one_moment(url: sa.URL, told: Told = untold) -> Iterator[Moment]:
    """Counted, and held until the block ends, so that what is dumped within is what was counted."""
    with connected(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        row = connection.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None
        moment = Moment(connection, row[0], ours.home_of(connection) or "")
        if moment.home:
            moment.parents = ours.parts_of(connection, moment.home)
            moment.others = ours.others_in(connection, moment.home)
        for done, name in enumerate(moment.parents, 1):
            table = sql.Identifier(moment.home, name)
            count = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(table)).fetchone()
            assert count is not None
            moment.counts[name] = count[0]
            told("counting rows", done, len(moment.parents))
        yield moment


def dump(url: sa.URL, moment: Moment, tools: Tools, write: Callable[[bytes], object], told: Told = untold) -> None:
    """Our part of the database as it was at that moment, in pg_dump's custom format.

    Said as a schema without what others have in it: where tables are named, pg_dump leaves out the functions that their
    triggers call.
    """
    total = max(1, sum(moment.counts.values()))
    words = ["--format=custom", "--compress=1", "--no-password", "--verbose", f"--snapshot={moment.snapshot}"]
    words.append(f"--schema={_pattern(moment.home)}")
    words += [f"--exclude-table={_pattern(moment.home)}.{_pattern(name)}" for name in moment.others]
    said: list[bytes] = []
    with tools.running("pg_dump", *words, url=url, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        listener = threading.Thread(target=_listen, args=(process.stderr, said, moment.counts, total, told))
        listener.start()
        try:
            while chunk := process.stdout.read(CHUNK):
                write(chunk)
        except BaseException:
            process.kill()
            raise
        finally:
            listener.join()
        tools.check("pg_dump", process, b"".join(said))
    told("dumping rows", total, total)


def _pattern(name: str) -> str:
    """In quotes nothing in it is a pattern."""
    quoted = name.replace('"', '""')
    return f'"{quoted}"'


def _listen(stream: IO[bytes], said: list[bytes], counts: dict[str, int], total: int, told: Told) -> None:
    """pg_dump says which table it has come to: those before it are done."""
    done, current = 0, ""
    for line in stream:
        said.append(line)
        del said[:-50]
        found = DUMPING.search(line.decode(errors="replace"))
        if found is not None:
            done += counts.get(current, 0)
            current = found[1]
            told("dumping rows", done, total)


def listed(path: Path, tools: Tools) -> list[str]:
    """The archive's table of contents, an entry a line."""
    with tools.running("pg_restore", "--list", str(path), stdout=subprocess.PIPE) as process:
        out, err = process.communicate()
        try:
            tools.check("pg_restore", process, err)
        except ToolFailed as error:
            raise BackupDamaged(path=path, problem=error.details["problem"]) from None
    return [line for line in out.decode(errors="replace").splitlines() if line and not line.startswith(";")]


@contextmanager
def script_of(path: Path, tools: Tools, wanted: Path | None = None) -> Iterator[Iterable[bytes]]:
    """What comes out of an archive, in chunks: the statements that make the database again.

    `wanted`: a file with the entries of its table of contents that are asked for.
    """
    only = (f"--use-list={wanted}",) if wanted is not None else ()
    words = ("--no-owner", "--no-privileges", *only, "--file=-", str(path))
    with tools.running("pg_restore", *words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        out = process.stdout

        def chunks() -> Iterator[bytes]:
            while chunk := out.read(CHUNK):
                yield chunk
            assert process.stderr is not None
            try:
                tools.check("pg_restore", process, process.stderr.read())
            except ToolFailed as error:
                raise BackupDamaged(path=path, problem=error.details["problem"]) from None

        yield chunks()


def verify(path: Path, tools: Tools, told: Told = untold) -> tuple[dict[str, int], int]:
    """Reads all of an archive. Rows by table as dumped, and how many bytes came out."""
    counts: dict[str, int] = {}
    held, size, table, packed = b"", 0, "", path.stat().st_size
    with script_of(path, tools) as chunks:
        for chunk in chunks:
            size += len(chunk)
            held += chunk
            while held:
                if not table:
                    found = COPY.search(held)
                    if found is None:
                        held = held[held.rfind(b"\n") + 1 :]
                        break
                    table = found[1].decode()
                    counts[table] = 0
                    held = held[found.end() :]  # from the line's end, so that an empty table ends at once
                end = held.find(END)
                if end < 0:
                    whole = max(0, len(held) - len(END))
                    counts[table] += held.count(b"\n", 1, whole + 1) if whole else 0
                    held = held[whole:]
                    break
                counts[table] += held.count(b"\n", 1, end + 1)
                held, table = held[end + len(END) :], ""
            told("reading it back", min(size, packed), packed)
    return counts, size
