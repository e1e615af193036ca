"""What a request is made of, a page at a time: the contents that it found, and the variants that it decodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from dalsegno.catalog.subjects import number_of
from dalsegno.errors import NotFound
from dalsegno.insight.finding import ITEMS, find_items
from dalsegno.insight.query import parse
from dalsegno.insight.walk import Page, Walk, begin, page_of, place_of, walk
from dalsegno.model.records import ItemRecord
from dalsegno.requests.export import weights_of
from dalsegno.requests.records import ContentRecord
from dalsegno.requests.schema import contents, episodes, request_contents, seasons, tree, variants
from dalsegno.requests.view import RequestView
from dalsegno.store.store import Tx

MOST_TRANSLATIONS = 200
LAST = 8
"""Requests that are named with a content."""


@dataclass(frozen=True, slots=True)
class ContentLine:
    content: ContentRecord
    position: int
    """Among those that the request found."""
    variants: int
    decoded: int


@dataclass(frozen=True, slots=True)
class Translation:
    """One season in one voice."""

    season: int
    title: str
    kind: str
    quality: str
    episodes: int
    decoded: int
    failed: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ContentCard:
    content: ContentRecord
    translations: list[Translation]
    more: bool
    """There are more of them than these."""
    requests: list[int]
    """The last that found it, newest first."""


@dataclass(frozen=True, slots=True)
class VariantLine:
    item: ItemRecord
    id: int | None
    """None: there is no such variant any more."""
    title: str = ""
    season: int = 0
    episode: int = 0
    translation: str = ""
    quality: str = ""
    link: str = ""
    mp4_link: str | None = None
    expires_at: datetime | None = None

    @property
    def name(self) -> str:
        return named(self.title, self.season, self.episode) if self.id is not None else self.item.key


def named(title: str, season: int, episode: int) -> str:
    """A film is the only episode of no season."""
    return f"{title} {season}×{episode:02}" if season or episode else title


# --- contents -------------------------------------------------------------------------------------

_FOUND = sa.select(contents, request_contents.c.position, request_contents.c.content_id).join(
    contents, contents.c.id == request_contents.c.content_id
)


def contents_of(tx: Tx, job_id: int, *, cursor: str | None = None, limit: int = 20) -> Page[ContentLine]:
    """In the order in which they were found."""
    keys = (request_contents.c.position, request_contents.c.content_id)
    path = Walk(_FOUND, keys, [request_contents.c.job_id == job_id], forward=True)
    found = walk(tx, path, after=place_of(cursor, 2), limit=limit + 1, budget=begin(tx, 1.0))
    weights = weights_of(tx, found.rows)
    lines = [ContentLine(_content(row), row["position"], *weights.get(row["id"], (0, 0))) for row in found.rows]
    return page_of(lines, found, limit, lambda line: (line.position, line.content.id))


def titles_of(tx: Tx, views: Iterable[RequestView]) -> dict[int, str]:
    """Of the first contents that were found by requests which name no title."""
    ids = [view.content_ids[0] for view in views if view.content_ids and "title" not in view.body]
    query = sa.select(contents.c.id, contents.c.title).where(contents.c.id.in_(ids), contents.c.title != "")
    return {row["id"]: row["title"] for row in tx.rows(query)} if ids else {}


def _content(row: sa.RowMapping) -> ContentRecord:
    return ContentRecord.model_validate({name: row[name] for name in ContentRecord.model_fields})


def content_card(tx: Tx, content_id: int) -> ContentCard:
    row = tx.row(sa.select(contents).where(contents.c.id == content_id))
    if row is None:
        raise NotFound(what="content", id=content_id)
    rows = tx.rows(_TRANSLATIONS, {"content": content_id})
    asked = request_contents.c.job_id
    last = sa.select(asked).where(request_contents.c.content_id == content_id).order_by(asked.desc()).limit(LAST)
    return ContentCard(
        _content(row),
        [Translation(**each) for each in rows[:MOST_TRANSLATIONS]],
        len(rows) > MOST_TRANSLATIONS,
        list(tx.conn.execute(last).scalars()),
    )


_TRANSLATIONS = (
    sa.select(
        seasons.c.number.label("season"),
        sa.func.max(variants.c.translation_title).label("title"),
        sa.func.max(variants.c.translation_type).label("kind"),
        sa.func.max(variants.c.quality).label("quality"),
        sa.func.count().label("episodes"),
        sa.func.count(variants.c.mp4_link).label("decoded"),
        sa.func.count(variants.c.error_code).label("failed"),
        sa.func.min(episodes.c.number).label("first"),
        sa.func.max(episodes.c.number).label("last"),
    )
    .select_from(tree)
    .where(seasons.c.content_id == sa.bindparam("content"), variants.c.missing_at.is_(None))
    .group_by(seasons.c.number, variants.c.translation_id)
    .order_by(seasons.c.number, variants.c.translation_id)
    .limit(MOST_TRANSLATIONS + 1)
)


# --- variants -------------------------------------------------------------------------------------

_VARIANTS = (
    sa.select(
        variants.c.id, contents.c.title, seasons.c.number.label("season"), episodes.c.number.label("episode"),
        variants.c.translation_title.label("translation"), variants.c.quality, variants.c.link, variants.c.mp4_link,
        variants.c.expires_at,
    )
    .select_from(tree.join(contents, contents.c.id == seasons.c.content_id))
    .where(variants.c.id.in_(sa.bindparam("ids", expanding=True)))
)  # fmt: skip


def variants_of(
    tx: Tx, job_id: int, *, state: str = "", cursor: str | None = None, limit: int = 50
) -> Page[VariantLine]:
    """Those that a request decodes, in the order of their episodes; of one state, where it says which."""
    query = parse(f"job:{job_id} stage:decode" + (f" state:{state}" if state else ""), ITEMS)
    page = find_items(tx, query, cursor=cursor, limit=limit, forward=True)
    known = {row["id"]: row for row in _known(tx, (line.item.key for line in page.lines))}
    lines = []
    for line in page.lines:
        row = known.get(number_of(line.item.key, "variant"))
        lines.append(VariantLine(line.item, None) if row is None else VariantLine(line.item, **row))
    return Page(lines, page.next_cursor, page.partial, page.looked)


def first_trouble(tx: Tx, job_id: int) -> ItemRecord | None:
    """The first of its items that failed."""
    page = find_items(tx, parse(f"job:{job_id} state:failed", ITEMS), limit=1, forward=True)
    return page.lines[0].item if page.lines else None


def names_of_variants(tx: Tx, keys: Iterable[str]) -> dict[str, str]:
    """By the keys of their items: `variant:17` is an episode in a voice."""
    return {
        f"variant:{row['id']}": " · ".join(
            filter(None, [named(row["title"], row["season"], row["episode"]), row["translation"]])
        )
        for row in _known(tx, keys)
    }


def _known(tx: Tx, keys: Iterable[str]) -> list[Any]:
    ids = {number for key in keys if (number := number_of(key, "variant")) is not None}
    return list(tx.rows(_VARIANTS, {"ids": sorted(ids)})) if ids else []
