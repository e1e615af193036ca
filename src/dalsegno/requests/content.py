"""Contents: what searches found, kept up to date.

Rows are compared one by one and only those that differ are written, so `updated_at` moves when, and only when, there
is something new to see (`content_clock.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from dalsegno.requests.content_clock import Clock, of_these
from dalsegno.requests.schema import contents, episodes, request_contents, seasons, tree, variants
from dalsegno.requests.upstream import Offer, Work

Row = sa.RowMapping


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
    known = {row["remote_id"]: row for row in of_these(conn, query, contents.c.remote_id, names)}
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
        rows = of_these(conn, query, contents.c.remote_id, [row["remote_id"] for row in new])
        known |= {row["remote_id"]: row for row in rows}
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
        rows = of_these(conn, sa.select(table), table.c[parent], parents)
        return {(row[parent], row[own]): row for row in rows}

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
    query = sa.select(variants, seasons.c.content_id).select_from(tree)
    for each in of_these(conn, query, seasons.c.content_id, sorted(works)):
        known[each["episode_id"], each["translation_id"]] = each
    new: list[dict[str, Any]] = []
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for place, (content, offer) in places.items():
        row = known.get(place)
        told = {name: getattr(offer, name) for name in (*_SEEN, "link")}
        if row is None:
            new.append({"episode_id": place[0], "translation_id": place[1], **told})
            changed.add(content)
            continue
        if row["mp4_link"] is not None and row["link"] == offer.link:
            del told["quality"]  # its decoder has seen the file
        different: dict[str, Any] = {name: text for name, text in told.items() if text and row[name] != text}
        if row["missing_at"] is not None:
            different["missing_at"] = None
        if "link" in different and row["mp4_link"] is not None:
            different["expires_at"] = now  # what was decoded belongs to another page
        if different:
            alike.setdefault(tuple(different), []).append({"number": row["id"], **different})
        if different.keys() & {*_SEEN, "missing_at"}:
            changed.add(content)
    if new:
        conn.execute(sa.insert(variants), new)
    for names, rows in alike.items():
        one = sa.update(variants).where(variants.c.id == sa.bindparam("number"))
        conn.execute(one.values({name: sa.bindparam(name) for name in names}), rows)
    told_of = {(number, offer.translation_id) for number, work in works.items() if work.whole for offer in work.offers}
    for place, old in known.items():
        # Its translation was told of, whole, and it was not among it. Of others nothing is known.
        gone = place not in places and (old["content_id"], old["translation_id"]) in told_of
        if gone and old["missing_at"] is None:
            conn.execute(sa.update(variants).where(variants.c.id == old["id"]).values(missing_at=now))
            changed.add(old["content_id"])


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
