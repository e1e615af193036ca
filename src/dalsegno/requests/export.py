"""What is ready, for other services: contents in the order in which they changed, a page at a time.

A content is ready once one of its variants was decoded, or once a request that wanted nothing decoded found it; it
stays so. Its variants are shown once they have a link, or all of them to whoever asks for `every`. Times are unique and
in the order of commits (`content_clock`), and every page is read from one snapshot: whoever goes on from the last place
misses no change and is shown no version of a content twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from dalsegno.errors import NotFound, RequestInvalid
from dalsegno.requests.content_clock import TICK, of_these
from dalsegno.requests.records import ContentRecord
from dalsegno.requests.schema import content_clock, contents, episodes, seasons, tree, variants
from dalsegno.store.schema import UtcTime

if TYPE_CHECKING:
    from dalsegno.store.store import Tx

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9999, 12, 31, tzinfo=UTC)
ENOUGH = 20_000
"""Variants after which a page that is read by cursor ends early: some serials have thousands."""

FEW = 10_000
"""Contents that are counted in one go at first."""


class Place(NamedTuple):
    """Where a reader is: after this version of this content."""

    at: datetime
    id: int

    def __str__(self) -> str:
        return f"{(self.at - EPOCH) // TICK}.{self.id}"

    @classmethod
    def before(cls, moment: datetime) -> Place:
        """Of all that changed at this moment or later, before the first."""
        return cls(min(max(moment, EPOCH), LATEST), 0)

    @classmethod
    def parse(cls, text: str) -> Place:
        """An empty text is the beginning."""
        if not text:
            return START
        at, _, number = text.partition(".")
        try:
            if not (at.isascii() and at.isdecimal() and number.isascii() and number.isdecimal() and len(text) <= 40):
                raise ValueError
            found = cls(EPOCH + int(at) * TICK, int(number))
            if found.at > LATEST or found.id >= 2**63:
                raise ValueError
        except (ValueError, OverflowError):
            problem = "This cursor is not one of ours; take nextCursor of the page before, or leave it empty to begin."
            raise RequestInvalid(problem=problem) from None
        return found


START = Place(EPOCH, 0)


class Variant(NamedTuple):
    id: int
    translation_id: str
    translation_title: str
    translation_type: str
    quality: str
    mp4_link: str | None


class Episode(NamedTuple):
    number: int
    title: str
    variants: list[Variant]


class Season(NamedTuple):
    number: int
    title: str
    episodes: list[Episode]


class Content(ContentRecord):
    """A content with what it offers. Made without checks: there are thousands of variants on a page."""

    found: int
    """Variants that its source offers, of which `decoded` have a link."""
    decoded: int
    seasons: list[Season]

    @property
    def place(self) -> Place:
        return Place(self.updated_at, self.id)


@dataclass(frozen=True, slots=True)
class Ready:
    contents: list[Content]
    next: Place
    """Where to go on: after the last of them, or where this page began if there was none."""
    more: bool
    total: int | None = None


def ready_after(tx: Tx, after: Place, *, limit: int, every: bool = False) -> Ready:
    """What changed after this place, in that order."""
    rows = tx.rows(_AFTER, {"at": after.at, "id": after.id, "limit": limit + 1})
    weights = weights_of(tx, rows[:limit])
    kept = _light_enough(rows[:limit], weights)
    return _ready(tx, kept, weights, after, more=len(kept) < len(rows), every=every)


def ready_page(tx: Tx, *, page: int, size: int, since: datetime | None = None, every: bool = False) -> Ready:
    """A page by its number. What changes while somebody turns pages moves to the last one, and the others close up."""
    after = START if since is None else Place.before(since)
    total = count_ready(tx, since)
    skipped = page * size
    rows: list[sa.RowMapping] = []
    if skipped < total:
        rows = tx.rows(_PAGE, {"at": after.at, "id": after.id, "limit": size, "offset": skipped})
    return _ready(tx, rows, weights_of(tx, rows), after, more=skipped + len(rows) < total, every=every, total=total)


def count_ready(tx: Tx, since: datetime | None = None) -> int:
    """All are counted as they become ready. For a moment, those after or before it are, whichever are fewer."""
    total = int(tx.conn.execute(_READY).scalar_one())
    if since is None:
        return total
    start, most = Place.before(since)._asdict(), FEW
    while True:
        if (after := _counted(tx, _COUNT_AFTER, start, most)) < most:
            return after
        if (before := _counted(tx, _COUNT_BEFORE, start, most)) < most:
            return total - before
        most *= 10


def _counted(tx: Tx, query: sa.Select[Any], start: dict[str, Any], most: int) -> int:
    return int(tx.conn.execute(query, start | {"most": most}).scalar_one())


def one_content(tx: Tx, content_id: int, *, every: bool = False) -> Content:
    """Ready or not."""
    found = these_contents(tx, [content_id], every=every)
    if not found:
        raise NotFound(what="content", id=content_id)
    return found[0]


def these_contents(tx: Tx, ids: Sequence[int], *, every: bool = False) -> list[Content]:
    """Those of these that there are, in this order, ready or not."""
    known = {row["id"]: row for row in of_these(tx.conn, _HEAD, contents.c.id, ids)}
    rows = [known[number] for number in ids if number in known]
    return _ready(tx, rows, weights_of(tx, rows), START, more=False, every=every).contents


# --- the questions --------------------------------------------------------------------------------

_HEAD = sa.select(contents)
_SHOWN = sa.text("contents.ready")  # as the partial index says it: SQLAlchemy's own words differ on SQLite
_LATER = sa.tuple_(contents.c.updated_at, contents.c.id) > sa.tuple_(
    sa.bindparam("at", type_=UtcTime()), sa.bindparam("id", type_=sa.BigInteger())
)
_ORDER = (contents.c.updated_at, contents.c.id)
_AFTER = _HEAD.where(_SHOWN, _LATER).order_by(*_ORDER).limit(sa.bindparam("limit"))
# What is skipped is skipped in the index alone.
_NUMBERS = (
    sa.select(contents.c.id)
    .where(_SHOWN, _LATER)
    .order_by(*_ORDER)
    .limit(sa.bindparam("limit"))
    .offset(sa.bindparam("offset"))
    .subquery("numbers")
)
_PAGE = _HEAD.join(_NUMBERS, _NUMBERS.c.id == contents.c.id).order_by(*_ORDER)
_READY = sa.select(content_clock.c.ready).where(content_clock.c.id == 1)


def _up_to(*where: sa.ColumnElement[bool] | sa.TextClause) -> sa.Select[Any]:
    some = sa.select(contents.c.id).where(*where).order_by(*_ORDER).limit(sa.bindparam("most"))
    return sa.select(sa.func.count()).select_from(some.subquery())


_COUNT_AFTER = _up_to(_SHOWN, _LATER)
_COUNT_BEFORE = _up_to(_SHOWN, sa.not_(_LATER))
_IDS: sa.BindParameter[Any] = sa.bindparam("ids", expanding=True)
_OFFERED = (seasons.c.content_id.in_(_IDS), variants.c.missing_at.is_(None))
_WEIGHTS = (
    sa.select(seasons.c.content_id, sa.func.count().label("found"), sa.func.count(variants.c.mp4_link).label("decoded"))
    .select_from(tree)
    .where(*_OFFERED)
    .group_by(seasons.c.content_id)
)
_TREE = (
    sa.select(
        seasons.c.content_id, seasons.c.number, episodes.c.number.label("episode"), variants.c.id,
        variants.c.translation_id, variants.c.translation_title, variants.c.translation_type, variants.c.quality,
        variants.c.mp4_link, seasons.c.title.label("season_title"), episodes.c.title.label("episode_title"),
    )
    .select_from(tree)
    .where(*_OFFERED)
    .order_by(seasons.c.content_id, seasons.c.number, episodes.c.number, variants.c.translation_id)
)  # fmt: skip
_DECODED = _TREE.where(variants.c.mp4_link.is_not(None))


def weights_of(tx: Tx, rows: Sequence[sa.RowMapping]) -> dict[int, tuple[int, int]]:
    """How many variants each of these contents has, and how many with a link; those without any are not in it."""
    if not rows:
        return {}
    found = tx.conn.execute(_WEIGHTS, {"ids": [row["id"] for row in rows]})
    return {row.content_id: (row.found, row.decoded) for row in found}


def _light_enough(rows: list[sa.RowMapping], weights: dict[int, tuple[int, int]]) -> list[sa.RowMapping]:
    """As many as come to `ENOUGH` variants, and at least one."""
    weight = 0
    for at, row in enumerate(rows):
        weight += weights.get(row["id"], (0, 0))[0]
        if weight > ENOUGH and at:
            return rows[:at]
    return rows


def _ready(
    tx: Tx,
    rows: Sequence[sa.RowMapping],
    weights: dict[int, tuple[int, int]],
    start: Place,
    *,
    more: bool,
    every: bool,
    total: int | None = None,
) -> Ready:
    trees = _trees(tx, [row["id"] for row in rows], every=every) if rows else {}
    found = []
    for row in rows:
        offered, decoded = weights.get(row["id"], (0, 0))
        tree = trees.get(row["id"], [])
        found.append(Content.model_construct(**row, found=offered, decoded=decoded, seasons=tree))
    return Ready(found, found[-1].place if found else start, more, total)


def _trees(tx: Tx, ids: list[int], *, every: bool) -> dict[int, list[Season]]:
    trees: dict[int, list[Season]] = {}
    inside: tuple[int, int] | None = None
    number: int | None = None
    parts: list[Episode] = []
    offered: list[Variant] = []
    for row in tx.conn.execute(_TREE if every else _DECODED, {"ids": ids}):
        content, season, episode, *variant = row
        if (content, season) != inside:
            inside, number, parts = (content, season), None, []
            trees.setdefault(content, []).append(Season(season, row.season_title, parts))
        if episode != number:
            number, offered = episode, []
            parts.append(Episode(episode, row.episode_title, offered))
        offered.append(Variant._make(variant[:6]))
    return trees
