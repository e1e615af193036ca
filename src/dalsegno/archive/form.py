"""What an archived month is: its rows as lines of JSON in the order of their key, compressed, and a manifest beside it.

The same rows always make the same bytes: times are in UTC, and the compressed file has no name and no date.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dalsegno.errors import ArchiveDamaged
from dalsegno.store.months import KEYS

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

T = TypeVar("T")

BATCH = 5_000
"""Rows that are read or written together: a month never changes, so it need not be read in one breath."""
LEVEL = 6
FORM = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    name: str
    """The month's table."""
    kind: str
    label: str
    first_at: str | None
    until_at: str
    rows: int
    first: list[int]
    """The key of the first row, and of the last."""
    last: list[int]
    content_sha256: str
    """Of the lines."""
    sha256: str
    """Of the compressed file."""
    size_bytes: int
    revision: str
    """The schema that the rows are of."""
    form: int = FORM

    def written(self) -> bytes:
        return (json.dumps(asdict(self), indent=2, sort_keys=True) + "\n").encode()


def read_manifest(content: bytes) -> Manifest:
    try:
        return Manifest(**json.loads(content))
    except (ValueError, TypeError) as error:
        raise ArchiveDamaged(name="manifest", problem=f"it cannot be read: {error}") from None


def lines_of(store: Store, kind: str, name: str) -> Iterator[tuple[list[int], str]]:
    """A month's rows in the order of their key, each with it."""
    after: list[int] | None = None
    while True:
        found = store.read(lambda tx, after=after: _batch(tx, kind, name, after))  # type: ignore[misc]
        yield from found
        if len(found) < BATCH:
            return
        after = found[-1][0]


def _batch(tx: Tx, kind: str, name: str, after: list[int] | None) -> list[tuple[list[int], str]]:
    tx.raw.execute("SET LOCAL TIME ZONE 'UTC'")
    columns = KEYS[kind].split(", ")
    beyond, given = "", {}
    if after is not None:
        given = {f"k{number}": value for number, value in enumerate(after)}
        beyond = f"WHERE ({KEYS[kind]}) > ({', '.join(f'%({name})s' for name in given)})"
    keys = KEYS[kind]
    query = f'SELECT {keys}, row_to_json(m)::text FROM "{name}" m {beyond} ORDER BY {keys} LIMIT {BATCH}'  # noqa: S608
    return [(list(row[: len(columns)]), row[-1]) for row in tx.raw.execute(query, given).fetchall()]


@dataclass(frozen=True, slots=True)
class Packed:
    rows: int
    first: list[int]
    last: list[int]
    content_sha256: str


def pack(lines: Iterable[tuple[list[int], str]], path: Path) -> Generator[None, None, Packed]:
    """Write them down, compressed, with a pause now and then."""
    digest, rows = hashlib.sha256(), 0
    first: list[int] = []
    last: list[int] = []
    with path.open("wb") as file, gzip.GzipFile("", "wb", LEVEL, file, mtime=0) as packed:
        for key, text in lines:
            line = text.encode() + b"\n"
            digest.update(line)
            packed.write(line)
            first, last, rows = first or key, key, rows + 1
            if rows % BATCH == 0:
                yield
    return Packed(rows, first, last, digest.hexdigest())


def finished(steps: Generator[None, None, T]) -> T:
    """All of it, without pauses."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(T, end.value)


def unpack(chunks: Iterable[bytes], manifest: Manifest) -> Iterator[bytes]:
    """The lines of an archived month; raises ArchiveDamaged at their end unless they are what the manifest says."""
    whole, content = hashlib.sha256(), hashlib.sha256()
    source = _Chunks(chunks, whole)
    rows = 0
    try:
        with gzip.GzipFile(fileobj=cast(Any, source), mode="rb") as packed:
            for line in packed:
                content.update(line)
                rows += 1
                yield line
        while source.read(1 << 20):
            pass
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ArchiveDamaged(name=manifest.name, problem=f"it cannot be unpacked: {error}") from None
    found = {"rows": rows, "sha256": whole.hexdigest(), "content_sha256": content.hexdigest()}
    for what, value in found.items():
        if value != getattr(manifest, what):
            problem = f"its {what} is {value}, and the manifest says {getattr(manifest, what)}"
            raise ArchiveDamaged(name=manifest.name, problem=problem)


class _Chunks:
    """Pieces of a file as something to read from; everything that goes by is hashed."""

    def __init__(self, chunks: Iterable[bytes], digest: Any) -> None:
        self._chunks = iter(chunks)
        self._digest = digest
        self._left = b""

    def read(self, size: int = -1) -> bytes:
        while not self._left or (size < 0):
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self._digest.update(chunk)
            self._left += chunk
        cut = len(self._left) if size < 0 else size
        found, self._left = self._left[:cut], self._left[cut:]
        return found
