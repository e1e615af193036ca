"""A month that was put away comes back: checked first, filled beside, and shown when it is whole."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.archive.form import BATCH, Manifest, finished, unpack
from dalsegno.archive.keeper import archive_of, checking
from dalsegno.archive.places import open_place
from dalsegno.errors import ArchiveRefused, NotFound
from dalsegno.model.records import ArchiveRecord
from dalsegno.objects import StoreError
from dalsegno.store.months import attach, make_table, months
from dalsegno.store.schema import archives

if TYPE_CHECKING:
    from dalsegno.objects.model import ObjectStore
    from dalsegno.settings import Settings
    from dalsegno.store.store import Store, Tx

_MADE = """
FROM unnest(%(lines)s::text[]) WITH ORDINALITY AS v (line, n), json_populate_record(NULL::{kind}, v.line::json) AS made
ORDER BY v.n
"""
# Numbers of transactions mean nothing in another cluster, and a restore there puts what it brings at 0 (moves/
# restore_postgres.py): so does a month that seems to be of the future, or whose successors are there. Its rows keep
# their order by their ids, which go on across clusters.
_PAST = """
UPDATE "{name}" SET tx = 0 WHERE tx <> 0 AND (
    EXISTS (SELECT 1 FROM "{name}" WHERE tx >= pg_current_xact_id()::text::bigint)
    OR EXISTS (SELECT 1 FROM events WHERE tx = 0 AND at >= :until)
)
"""


def list_archives(tx: Tx) -> list[ArchiveRecord]:
    """Newest first."""
    rows = tx.rows(sa.select(archives).order_by(archives.c.until_at.desc(), archives.c.kind))
    return [ArchiveRecord.model_validate(dict(row)) for row in rows]


def find_archives(tx: Tx, label: str, kind: str | None = None) -> list[ArchiveRecord]:
    """Those of a month, by what people call it."""
    found = [each for each in list_archives(tx) if each.label == label and kind in (None, each.kind)]
    if not found:
        raise NotFound(what="archive", id=label)
    return found


def restore(store: Store, settings: Settings, name: str) -> Manifest:
    """All of it or nothing. What is not what was put away is refused before anything is changed."""
    if not store.shared:
        raise ArchiveRefused(problem="Only PostgreSQL keeps months.")
    known = store.read(lambda tx: archive_of(tx, name))
    if known is None:
        raise NotFound(what="archive", id=name)
    kept = known["dropped_at"] is None or known["restored_at"] is not None
    if kept and store.read(lambda tx: _has_a_month(tx, known)):
        raise ArchiveRefused(problem=f"{name} is in the database already.")
    place = open_place(settings, known["store"])
    try:
        manifest = finished(checking(place, known["key"]))
        if manifest.sha256 != known["sha256"]:
            problem = f"{name} has another checksum than the archive that was made of it; it was replaced since."
            raise ArchiveRefused(problem=problem)
        store.write("restore", lambda tx: _fill(tx, place, known, manifest))
    except StoreError as error:
        raise ArchiveRefused(problem=f"The archive of {name} cannot be read: {error}") from error
    finally:
        place.close()
    return manifest


def _has_a_month(tx: Tx, known: sa.RowMapping) -> bool:
    return any(month.meets(known["first_at"], known["until_at"]) for month in months(tx, known["kind"]))


def _fill(tx: Tx, place: ObjectStore, known: sa.RowMapping, manifest: Manifest) -> None:
    kind, name = manifest.kind, manifest.name
    # Where all was moved here, its time is that of the first month, which has all from before the move.
    joins = _has_a_month(tx, known)
    beside = f"{name}_back" if joins else name
    make_table(tx, kind, beside)
    insert = f'INSERT INTO "{beside}" SELECT made.* {_MADE.format(kind=kind)}'
    lines = unpack(place.read(known["key"]), manifest)
    while some := [line.decode().rstrip("\n") for line in itertools.islice(lines, BATCH)]:
        tx.raw.execute(insert, {"lines": some})
    if kind == "events":
        tx.conn.execute(sa.text(_PAST.format(name=beside)), {"until": known["until_at"]})
    if joins:
        tx.raw.execute(f'INSERT INTO {kind} SELECT * FROM "{beside}"')  # noqa: S608
        tx.raw.execute(f'DROP TABLE "{beside}"')
    else:
        attach(tx, kind, name, known["first_at"], known["until_at"])
    tx.conn.execute(sa.update(archives).where(archives.c.name == name).values(restored_at=tx.now))
