"""What processes that were killed have left in a library's staging: songs that are finished, written down or not."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.catalog.landing import in_place
from dalsegno.catalog.part import clear, part_path
from dalsegno.catalog.receipts import Receipt, receipts_of
from dalsegno.catalog.schema import file_assets, songs

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

AT_ONCE = 500


def part_key(song_id: int) -> str:
    return f"song-{song_id}"


def look_over(store: Store, root: Path) -> list[Receipt]:
    """Receipts of songs that are written down go. Of the others, which their songs will adopt, returns those whose
    files are in place."""
    receipts: dict[int, Receipt] = {}
    for key, receipt in receipts_of(root).all().items():
        number = key.removeprefix("song-")
        if number.isdecimal():
            receipts[int(number)] = receipt
    written: dict[int, str] = {}
    numbers = list(receipts)
    for start in range(0, len(numbers), AT_ONCE):
        some = numbers[start : start + AT_ONCE]
        written.update(store.read(lambda tx, some=some: _written(tx, some)))  # type: ignore[misc]
    landed = []
    for song_id, receipt in receipts.items():
        key = part_key(song_id)
        if written.get(song_id) == receipt.sha256:
            if not part_path(root, key).exists():
                with suppress(OSError):
                    clear(root, key)
        elif in_place(root, receipt):
            landed.append(receipt)
    return landed


def _written(tx: Tx, numbers: list[int]) -> dict[int, str]:
    """Songs that have a file, and its checksum."""
    query = sa.select(songs.c.id, file_assets.c.sha256).join(file_assets, file_assets.c.id == songs.c.asset_id)
    return {row.id: row.sha256 for row in tx.conn.execute(query.where(songs.c.id.in_(numbers)))}
