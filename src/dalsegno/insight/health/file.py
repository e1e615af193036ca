"""The file of a SQLite database: what of it is empty, how long its log has grown, and who holds its locks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from dalsegno.insight.health.finding import Finding, found
from dalsegno.store.schema import processes
from dalsegno.store.store import Tx

EMPTY = 256_000_000
"""Bytes that may hold nothing; beyond, a third of the file may."""
SHARE = 1 / 3
LOG = 256_000_000
"""Bytes: four times what it is cut back to when nobody reads from it."""
SAMPLES, PAUSE = 10, 0.05
"""Looks at the locks: who holds the write lock in each of them holds it for long."""
WRITING = 120
READING = range(123, 128)
"""Bytes of the index file that SQLite's locks are on."""
LOCKS = Path("/proc/locks")

_held_since: dict[tuple[Path, int], datetime] = {}
"""Since when the same process was seen to hold a write lock."""


@dataclass(frozen=True, slots=True)
class File:
    path: Path
    size: int
    free: int
    """Bytes inside it that hold nothing."""
    wal: int
    """Bytes of the write-ahead log."""
    incremental: bool
    """Space that becomes free can be given back."""


@dataclass(frozen=True, slots=True)
class Lock:
    pid: int
    byte: int


def read_file(tx: Tx) -> File | None:
    """None on PostgreSQL."""
    if tx.shared:
        return None

    def pragma(name: str) -> int:
        return int(tx.conn.exec_driver_sql(f"PRAGMA {name}").scalar() or 0)

    where = next((row[2] for row in tx.conn.exec_driver_sql("PRAGMA database_list") if row[1] == "main"), "")
    page = pragma("page_size")
    size, free = pragma("page_count") * page, pragma("freelist_count") * page
    return File(Path(where), size, free, _size(Path(f"{where}-wal")), pragma("auto_vacuum") == 2)


def look(tx: Tx, empty: int = EMPTY, log: int = LOG) -> list[Finding]:
    file = read_file(tx)
    return [] if file is None else [*_space(file, empty, log), *_writer(tx, file)]


def _space(file: File, empty: int, log: int) -> Iterable[Finding]:
    path = str(file.path)
    if file.free > empty and file.free > SHARE * file.size:
        yield found("file_sparse", "note", "file", free_bytes=file.free, size_bytes=file.size, path=path)
    if not file.incremental:
        yield found("file_keeps_space", "note", "file", path=path)
    if file.wal > log:
        pids = sorted({lock.pid for lock in locks_of(file.path)})
        told = ",".join(map(str, pids)) or "–"
        yield found("log_large", "warning", "wal", wal_bytes=file.wal, pids=told)


def _writer(tx: Tx, file: File) -> Iterable[Finding]:
    engines = set(tx.conn.execute(sa.select(processes.c.pid)).scalars())
    pid = _writing(file.path)
    for tries in range(SAMPLES):
        if pid is None or pid in engines:
            break
        if tries:
            time.sleep(PAUSE)
        pid = pid if _writing(file.path) == pid else None
    for known in [key for key in _held_since if key[0] == file.path and key[1] != pid]:
        _held_since.pop(known, None)
    if pid is not None and pid not in engines:
        since = _held_since.setdefault((file.path, pid), tx.now)
        held = max((tx.now - since).total_seconds(), SAMPLES * PAUSE)
        yield found(
            "writer_held", "error" if held > 60 else "warning", f"process:{pid}", since, pid=pid, held_seconds=held,
            program=_program(pid),
        )  # fmt: skip


def _writing(path: Path) -> int | None:
    return next((lock.pid for lock in locks_of(path) if lock.byte == WRITING), None)


def locks_of(path: Path) -> list[Lock]:
    """Who reads and who writes right now; nobody where the system does not tell."""
    shared = Path(f"{path}-shm")
    try:
        told = shared.stat()
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return []
    device = f"{os.major(told.st_dev):02x}:{os.minor(told.st_dev):02x}"
    found_ = []
    for line in lines:
        # 12: POSIX  ADVISORY  WRITE 4711 fe:01:1234567 120 120
        fields = line.split()
        if "->" in fields or len(fields) != 8 or int(fields[4]) <= 0:  # no number: of another container
            continue
        place, _, inode = fields[5].rpartition(":")
        if inode != str(told.st_ino) or not (place == device or _has_open(int(fields[4]), shared)):
            continue
        first, last = int(fields[6]), fields[7]
        if last != "EOF" and first <= WRITING <= int(last) and fields[3] == "WRITE":
            found_.append(Lock(int(fields[4]), WRITING))
        elif first in READING:
            found_.append(Lock(int(fields[4]), first))
    return found_


def _has_open(pid: int, path: Path) -> bool:
    """Where the list of locks tells another device than the file does, as on overlays."""
    try:
        return any(Path(each).resolve() == path.resolve() for each in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()[:80]
    except OSError:
        return "?"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
