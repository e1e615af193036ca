"""Decode: from the page that plays a variant to its file. One item is one variant."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.catalog.trouble import trouble
from dalsegno.engine.item import storable
from dalsegno.engine.service import Service
from dalsegno.model.outcome import Fail, Outcome, Retry, Skip
from dalsegno.requests.body import DECODE as DECODE_LINKS
from dalsegno.requests.decoders.model import Decoded, Link
from dalsegno.requests.links import Made, keep_at_once, keep_decoded, keep_error
from dalsegno.requests.schema import contents, episodes, request_contents, seasons, tree, variants
from dalsegno.requests.workflow import DECODE
from dalsegno.store.schema import UtcTime

if TYPE_CHECKING:
    from dalsegno.engine.item import Item
    from dalsegno.engine.planner import Plan
    from dalsegno.requests.room import Room

_FOUND = (
    sa.select(request_contents.c.content_id)
    .where(request_contents.c.job_id == sa.bindparam("job"))
    .order_by(request_contents.c.position, request_contents.c.content_id)
)
_UNDECODED = (
    sa.select(variants.c.id)
    .select_from(tree)
    .where(
        seasons.c.content_id == sa.bindparam("content"),
        variants.c.link != "",
        variants.c.missing_at.is_(None),
        sa.or_(variants.c.mp4_link.is_(None), variants.c.expires_at <= sa.bindparam("now", type_=UtcTime)),
    )
    .order_by(seasons.c.number, episodes.c.number, variants.c.id)
)  # fmt: skip
_ONE = (
    sa.select(
        variants, contents.c.source, contents.c.title, seasons.c.number.label("season"),
        episodes.c.number.label("episode"),
    )
    .select_from(tree.join(contents, contents.c.id == seasons.c.content_id))
    .where(variants.c.id == sa.bindparam("variant"))
)  # fmt: skip


class Decode:
    def __init__(self, room: Room) -> None:
        self._room = room

    def service(self) -> Service:
        workers = self._room.settings.requests_decode_workers
        return Service(DECODE, self.decode, workers=workers, planner=self.plan, closing=self._room.close)

    def plan(self, plan: Plan) -> Iterator[str]:
        """One item for each variant of what was found that has no link, or none that is still good."""
        if not plan.scope.get(DECODE_LINKS):
            return
        store = self._room.store
        for content in store.read(lambda tx: list(tx.conn.execute(_FOUND, {"job": plan.job_id}).scalars())):
            asked = {"content": content, "now": store.clock.now()}
            ids = store.read(lambda tx, asked=asked: list(tx.conn.execute(_UNDECODED, asked).scalars()))  # type: ignore[misc]
            yield from (f"variant:{number}" for number in ids)

    def decode(self, item: Item) -> Any:
        self._room.begin(item)
        number = int(item.key.partition(":")[2])
        store = self._room.store
        row = store.read(lambda tx: tx.row(_ONE, {"variant": number}))
        if row is None:
            return Fail(f"there is no variant {number}", code="not_found")
        if row["missing_at"] is not None:
            return Skip("it is no longer offered")
        if row["mp4_link"] is not None and not item.forced and not _is_old(row, store.clock.now()):
            return Skip("it has a link that is still good")
        link = Link(
            url=row["link"],
            **{name: row[name] for name in ("source", "title", "season", "episode")},
            **{name: row[name] for name in ("translation_id", "translation_title", "quality")},
        )
        found = self._try(item, link)
        if isinstance(found, Fail | Retry):
            code, message = found.code, storable(found.error)
            item.note(lambda conn: keep_error(conn, number, code, message, store.clock.now()))
            return found
        name, decoded = found
        now = store.clock.now()
        expires = decoded.expires_at or now + timedelta(seconds=self._room.settings.requests_link_ttl_sec)
        made = Made(number, link.url, storable(decoded.url), storable(decoded.quality), now, expires)
        if not keep_at_once(store, item, made):
            item.record(keep_decoded, made)
        return {"decoder": name, "quality": decoded.quality or row["quality"]}

    def _try(self, item: Item, link: Link) -> tuple[str, Decoded] | Fail | Retry:
        """The decoders in their order, until one knows. An error that may pass outweighs those that will not."""
        doing = f"decoding {link.title} {link.season}x{link.episode}".strip()
        troubles: list[Outcome] = []
        try:
            decoders = self._room.decoders.of(link)
        except Exception as error:
            troubles.append(trouble(error, doing))
            decoders = []
        for decoder in decoders:
            try:
                with decoder.passage(self._room.permit(item), link):
                    return decoder.name, decoder.decode(link)
            except Exception as error:
                troubles.append(trouble(error, f"{doing} with {decoder.name}"))
            if item.cancelled:
                break
        for kind in (Retry, Fail):
            for each in troubles:
                if isinstance(each, kind):
                    return each
        return Fail(f"{doing}: no decoder knows links like this one; see REQUESTS_DECODERS", code="no_decoder")


def _is_old(row: sa.RowMapping, now: Any) -> bool:
    return row["expires_at"] is not None and row["expires_at"] <= now
