"""Unfinished downloads that nothing would go on with: old, and no item that waits, runs or may be retried is theirs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.catalog.leftovers import AT_ONCE, part_key
from dalsegno.catalog.receipts import STAGING
from dalsegno.catalog.schema import object_storage_backends, uploads
from dalsegno.model.states import ItemStatus
from dalsegno.store.schema import items, stages

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

SERVICE = "download"
DONE = (ItemStatus.SUCCEEDED, ItemStatus.SKIPPED, ItemStatus.CANCELED)
_SONG = part_key(0).removesuffix("0")


@dataclass(frozen=True, slots=True)
class OldPart:
    path: Path
    size: int
    modified_at: datetime


def old_parts(root: Path, before: datetime) -> dict[int, OldPart]:
    """Parts that nobody has written to since, by song."""
    found = {}
    folder = root / STAGING
    for path in folder.glob(f"{_SONG}*.part") if folder.is_dir() else ():
        number = path.stem.removeprefix(_SONG)
        try:
            told = path.stat()
        except OSError:
            continue  # it has landed meanwhile
        modified = datetime.fromtimestamp(told.st_mtime, UTC)
        if number.isdecimal() and modified < before:
            found[int(number)] = OldPart(path, told.st_size, modified)
    return found


_UNDER_WAY = (
    sa.select(items.c.key)
    .join(stages, stages.c.id == items.c.stage_id)
    .where(stages.c.service == SERVICE, stages.c.finished_at.is_(None), items.c.status.not_in(DONE))
)
_RETRIABLE = sa.select(items.c.key).where(items.c.error_code.is_not(None), items.c.status.not_in(DONE))


def wanted(tx: Tx, songs: Iterable[int]) -> set[int]:
    """Those of the songs that an item may still go on with: it waits, runs, or could be retried."""
    keys = {f"song:{number}": number for number in songs}
    names, found = list(keys), set()
    for start in range(0, len(names), AT_ONCE):
        some = items.c.key.in_(names[start : start + AT_ONCE])
        for query in (_UNDER_WAY, _RETRIABLE):
            found |= {keys[key] for key in tx.conn.execute(query.where(some)).scalars()}
    return found


def library_roots(tx: Tx) -> list[Path]:
    """Every folder that songs were ever downloaded to."""
    query = sa.select(object_storage_backends.c.url).where(object_storage_backends.c.kind == "library")
    return [Path(url) for url in tx.conn.execute(query).scalars()]


def remembered_uploads(tx: Tx, identity: str) -> set[str]:
    """The numbers of multipart uploads at a store that will be gone on with."""
    query = sa.select(uploads.c.upload_id).join(
        object_storage_backends, object_storage_backends.c.id == uploads.c.backend_id
    )
    return set(tx.conn.execute(query.where(object_storage_backends.c.url == identity)).scalars())
