"""Links: what decoders made of variants. A decode may take minutes of somebody's machine, so none is made twice."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from dalsegno.errors import DalSegnoError
from dalsegno.requests.content_clock import Clock, of_these
from dalsegno.requests.schema import seasons, tree, variants
from dalsegno.store.schema import leases

if TYPE_CHECKING:
    from dalsegno.engine.item import Item
    from dalsegno.store.store import Store, Tx


class Made(NamedTuple):
    """One variant that was decoded, and from which link."""

    variant_id: int
    link: str
    mp4_link: str
    quality: str
    decoded_at: datetime
    expires_at: datetime | None


def keep_at_once(store: Store, item: Item, made: Made) -> bool:
    """Before its item is settled, and only while it is ours. False: nothing is known to be written.

    An item that is run again because its worker died in between finds its link here, and decodes nothing.
    """
    held = {"item": item.id, "number": item.claimed.lease}

    def work(tx: Tx) -> bool:
        if tx.row(_HELD, held) is None:
            return False
        keep_decoded(tx.conn, [made])
        return True

    try:
        return store.write("decoded", work)
    except DalSegnoError:  # the database is away
        return False


# Held to the commit, so that nobody can be given the item meanwhile.
_HELD = (
    sa.select(leases.c.item_id)
    .where(leases.c.item_id == sa.bindparam("item"), leases.c.number == sa.bindparam("number"))
    .with_for_update(read=True, key_share=True)
)


def keep_decoded(conn: sa.Connection, rows: list[Made]) -> None:
    """What was decoded from a link that has changed since is dropped."""
    clock = Clock(conn, max(row.decoded_at for row in rows))
    known = {row["id"]: row for row in of_these(conn, _KNOWN, variants.c.id, [row.variant_id for row in rows])}
    values = []
    changed, ready = set(), set()
    for row in rows:
        old = known.get(row.variant_id)
        if old is None or old["link"] != row.link:
            continue
        quality = row.quality or old["quality"]
        values.append({**row._asdict(), "quality": quality})
        ready.add(old["content_id"])
        if (old["mp4_link"], old["quality"]) != (row.mp4_link, quality):
            changed.add(old["content_id"])
    if values:
        conn.execute(_DECODED, values)
    clock.touch(changed, ready)


_KNOWN = sa.select(
    variants.c.id, variants.c.link, variants.c.mp4_link, variants.c.quality, seasons.c.content_id
).select_from(tree)  # fmt: skip
_DECODED = (
    sa.update(variants)
    .where(variants.c.id == sa.bindparam("variant_id"))
    .values(
        mp4_link=sa.bindparam("mp4_link"),
        quality=sa.bindparam("quality"),
        decoded_at=sa.bindparam("decoded_at"),
        expires_at=sa.bindparam("expires_at"),
        error_code=None,
        error_message=None,
    )
)


def keep_error(conn: sa.Connection, variant_id: int, code: str, message: str, now: datetime) -> None:
    """Why it could not be decoded this time. No reader of contents sees it, so no time moves."""
    Clock(conn, now)  # in line with whoever writes variants
    one = sa.update(variants).where(variants.c.id == variant_id)
    conn.execute(one.values(error_code=code, error_message=message[:2000]))
