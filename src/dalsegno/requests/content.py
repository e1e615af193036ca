"""Contents: what searches found and decoders made of it, kept up to date.

Rows are compared one by one and only those that differ are written, so `updated_at` moves when, and only when, there
is something new to see. Whoever changes contents takes the clock's row first and holds it to the commit: the times it
gives out are unique and in the order of commits, and two writers never wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa

from dalsegno.requests.schema import (
    content_clock,
    contents,
    episodes,
    request_contents,
    seasons,
    variants,
)
from dalsegno.requests.upstream import Offer, Work

SOME = 500
"""Numbers in one question: SQLite takes a limited number of them."""
TICK = timedelta(microseconds=1)
Row = Mapping[str, Any]


# --- the clock ----------------------------------------------------------------------------------


class Clock:
    """Gives out times that only grow. Made first of all, in the transaction that changes contents."""

    def __init__(self, conn: sa.Connection, now: datetime) -> None:
        self._conn, self._now = conn, now
        row = conn.execute(sa.select(content_clock.c.last).where(content_clock.c.id == 1).with_for_update()).one()
        self._last: datetime = row.last

    def touch(self, content_ids: Iterable[int], ready: Iterable[int] = ()) -> None:
        """These have changed; those in `ready` are shown from now on, if they were not before."""
        fresh = self._not_yet(sorted(set(ready)))
        changed = sorted(set(content_ids) | set(fresh))
        if not changed:
            return
        rows = []
        for number in changed:
            self._last = max(self._now, self._last + TICK)
            rows.append({"number": number, "at": self._last})
        one = sa.update(contents).where(contents.c.id == sa.bindparam("number"))
        self._conn.execute(one.values(updated_at=sa.bindparam("at")), rows)
        if fresh:
            shown = sa.update(contents).where(contents.c.id == sa.bindparam("number")).values(ready=True)
            self._conn.execute(shown, [{"number": number} for number in fresh])
        kept = sa.update(content_clock).where(content_clock.c.id == 1)
        self._conn.execute(kept.values(last=self._last, ready=content_clock.c.ready + len(fresh)))

    def _not_yet(self, content_ids: Sequence[int]) -> list[int]:
        query = sa.select(contents.c.id).where(contents.c.ready.is_(False))
        return [row.id for row in _in(self._conn, query, contents.c.id, content_ids)]


def touch(conn: sa.Connection, content_ids: Iterable[int], now: datetime) -> None:
    Clock(conn, now).touch(content_ids)


# --- what a search found ------------------------------------------------------------------------


def keep(
    conn: sa.Connection, job_id: int, found: Mapping[str, Sequence[Work]], now: datetime, *, ready: bool
) -> list[int]:
    """The works a request found, by source, in the transaction that settles its search; returns their numbers.

    `ready`: nothing is to be decoded, so they are shown as they are. What is not told this time keeps its old value; an
    episode that its translation no longer has gets a time.
    """
    clock = Clock(conn, now)
    ids: list[int] = []
    changed: set[int] = set()
    for source, works in found.items():
        numbers = _keep_contents(conn, source, works, now, changed)
        by_content = {numbers[work.id]: work for work in works}
        _keep_tree(conn, by_content, now, changed)
        ids += by_content
    _link(conn, job_id, ids)
    clock.touch(changed, ids if ready else ())
    return ids


_TOLD = ("type", "title", "title_orig", "other_title", "year", "kinopoisk_id", "imdb_id", "shikimori_id")


def _keep_contents(
    conn: sa.Connection, source: str, works: Sequence[Work], now: datetime, changed: set[int]
) -> dict[str, int]:
    query = sa.select(contents).where(contents.c.source == source)
    names = [work.id for work in works]
    known = {row.remote_id: row._mapping for row in _in(conn, query, contents.c.remote_id, names)}
    new, differing = [], []
    for work in works:
        told = {name: getattr(work, name) for name in _TOLD if getattr(work, name)}
        row = known.get(work.id)
        if row is None:
            empty = dict.fromkeys(("year", "kinopoisk_id", "imdb_id", "shikimori_id")) | dict.fromkeys(_TOLD[:4], "")
            new.append({**empty, **told, "source": source, "remote_id": work.id, "created_at": now, "updated_at": now})
        elif different := {name: value for name, value in told.items() if row[name] != value}:
            differing.append((row["id"], different))
    if new:
        conn.execute(sa.insert(contents), new)
        rows = _in(conn, query, contents.c.remote_id, [row["remote_id"] for row in new])
        known |= {row.remote_id: row._mapping for row in rows}
        changed |= {known[row["remote_id"]]["id"] for row in new}
    for number, different in differing:
        conn.execute(sa.update(contents).where(contents.c.id == number).values(**different))
        changed.add(number)
    return {work.id: known[work.id]["id"] for work in works}


def _keep_tree(conn: sa.Connection, works: Mapping[int, Work], now: datetime, changed: set[int]) -> None:
    offers = [(number, offer) for number, work in works.items() for offer in work.offers]
    at_season = _keep_level(
        conn, seasons, "content_id", "number", changed,
        {(number, offer.season): (number, {"title": offer.season_title, "link": offer.season_link})
         for number, offer in offers},
    )  # fmt: skip
    at_episode = _keep_level(
        conn, episodes, "season_id", "number", changed,
        {(at_season[number, offer.season], offer.episode): (number, {"title": offer.episode_title, "link": ""})
         for number, offer in offers},
    )  # fmt: skip
    places = {
        (at_episode[at_season[number, offer.season], offer.episode], offer.translation_id): (number, offer)
        for number, offer in offers
    }
    _keep_variants(conn, works, places, now, changed)


def _keep_level(
    conn: sa.Connection,
    table: sa.Table,
    parent: str,
    own: str,
    changed: set[int],
    wanted: Mapping[tuple[int, int], tuple[int, dict[str, str]]],
) -> dict[tuple[int, int], int]:
    """Seasons, or episodes: by parent and number, with the content they belong to. Their numbers in the table."""
    parents = sorted({place[0] for place in wanted})

    def look() -> dict[tuple[int, int], Row]:
        rows = _in(conn, sa.select(table), table.c[parent], parents)
        return {(row._mapping[parent], row._mapping[own]): row._mapping for row in rows}

    known = look()
    new = [{parent: place[0], own: place[1], **told} for place, (_, told) in wanted.items() if place not in known]
    for place, (content, told) in wanted.items():
        row = known.get(place)
        different = {name: text for name, text in told.items() if text and row is not None and row[name] != text}
        if row is not None and different:
            conn.execute(sa.update(table).where(table.c.id == row["id"]).values(**different))
        if row is None or "title" in different:
            changed.add(content)
    if new:
        conn.execute(sa.insert(table), new)
        known = look()
    return {place: known[place]["id"] for place in wanted}


_SEEN = ("translation_title", "translation_type", "quality")


def _keep_variants(
    conn: sa.Connection,
    works: Mapping[int, Work],
    places: Mapping[tuple[int, str], tuple[int, Offer]],
    now: datetime,
    changed: set[int],
) -> None:
    known: dict[tuple[int, str], Row] = {}
    query = (
        sa.select(variants, seasons.c.content_id)
        .join(episodes, episodes.c.id == variants.c.episode_id)
        .join(seasons, seasons.c.id == episodes.c.season_id)
    )
    for row in _in(conn, query, seasons.c.content_id, sorted(works)):
        known[row.episode_id, row.translation_id] = row._mapping
    new = []
    for place, (content, offer) in places.items():
        row = known.get(place)
        told = {name: getattr(offer, name) for name in (*_SEEN, "link")}
        if row is None:
            new.append({"episode_id": place[0], "translation_id": place[1], **told})
            changed.add(content)
            continue
        different: dict[str, Any] = {name: text for name, text in told.items() if text and row[name] != text}
        if row["missing_at"] is not None:
            different["missing_at"] = None
        if "link" in different and row["mp4_link"] is not None:
            different["expires_at"] = now  # what was decoded belongs to another page
        if different:
            conn.execute(sa.update(variants).where(variants.c.id == row["id"]).values(**different))
        if different.keys() & {*_SEEN, "missing_at"}:
            changed.add(content)
    if new:
        conn.execute(sa.insert(variants), new)
    gone = [row for place, row in known.items() if place not in places and _is_gone(row, works[row["content_id"]])]
    for row in gone:
        conn.execute(sa.update(variants).where(variants.c.id == row["id"]).values(missing_at=now))
        changed.add(row["content_id"])


def _is_gone(row: Row, work: Work) -> bool:
    """Its translation was told of, whole, and it was not among it. Of others nothing is known."""
    return row["missing_at"] is None and work.whole and row["translation_id"] in _translations(work)


def _translations(work: Work) -> set[str]:
    return {offer.translation_id for offer in work.offers}


def _link(conn: sa.Connection, job_id: int, content_ids: Sequence[int]) -> None:
    query = sa.select(request_contents.c.content_id).where(request_contents.c.job_id == job_id)
    known = set(conn.execute(query).scalars())
    new = [
        {"job_id": job_id, "content_id": number, "position": len(known) + at}
        for at, number in enumerate(dict.fromkeys(content_ids))
        if number not in known
    ]
    if new:
        conn.execute(sa.insert(request_contents), new)


# --- what a decoder made of it ------------------------------------------------------------------


class Decode(NamedTuple):
    """One variant that was decoded, and from which link."""

    variant_id: int
    link: str
    mp4_link: str
    quality: str
    decoded_at: datetime
    expires_at: datetime | None


def keep_decoded(conn: sa.Connection, rows: list[Decode]) -> None:
    """In the transaction that settles their items. What was decoded from a link that has changed since is dropped."""
    clock = Clock(conn, max(row.decoded_at for row in rows))
    query = (
        sa.select(variants.c.id, variants.c.link, variants.c.mp4_link, variants.c.quality, seasons.c.content_id)
        .join(episodes, episodes.c.id == variants.c.episode_id)
        .join(seasons, seasons.c.id == episodes.c.season_id)
    )
    known = {row.id: row for row in _in(conn, query, variants.c.id, [row.variant_id for row in rows])}
    values = []
    changed, ready = set(), set()
    for row in rows:
        old = known.get(row.variant_id)
        if old is None or old.link != row.link:
            continue
        quality = row.quality or old.quality
        values.append({**row._asdict(), "quality": quality})
        ready.add(old.content_id)
        if (old.mp4_link, old.quality) != (row.mp4_link, quality):
            changed.add(old.content_id)
    if values:
        conn.execute(_DECODED, values)
    clock.touch(changed, ready)


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


def keep_error(conn: sa.Connection, variant_id: int, code: str, message: str) -> None:
    """Why it could not be decoded this time. No reader of contents sees it, so no time moves."""
    one = sa.update(variants).where(variants.c.id == variant_id)
    conn.execute(one.values(error_code=code, error_message=message[:2000]))


def _in(
    conn: sa.Connection, query: sa.Select[Any], column: sa.ColumnElement[Any], values: Sequence[Any]
) -> list[sa.Row[Any]]:
    """The rows whose column has one of these values, asked for in several questions where they are many."""
    distinct = list(dict.fromkeys(values))
    found: list[sa.Row[Any]] = []
    for at in range(0, len(distinct), SOME):
        found += conn.execute(query.where(column.in_(distinct[at : at + SOME])))
    return found
