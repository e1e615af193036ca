"""Contents without an upstream: found, decoded and changed by the same functions that services use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from dalsegno import Store
from dalsegno.requests.ask import ask
from dalsegno.requests.body import body_of
from dalsegno.requests.content import keep
from dalsegno.requests.content_clock import Clock
from dalsegno.requests.links import Made, keep_decoded
from dalsegno.requests.schema import contents, variants
from dalsegno.requests.upstream import Offer, Work
from dalsegno.settings import Settings
from dalsegno.store.store import Tx
from tests.helpers import every


class Shelf:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.job_id = ask(store, Settings(_env_file=None), body_of({"title": "everything"})).id

    def find(self, *works: Work, ready: bool = True) -> list[int]:
        """A search found these; returns their numbers."""
        now = self.store.clock.now()
        return self.store.write("test", lambda tx: keep(tx.conn, self.job_id, {"kodik": works}, now, ready=ready))

    def fill(self, count: int, *, ready: bool = True, episodes: int = 1, translations: int = 1) -> list[int]:
        """That many serials, each the same."""
        return self.find(
            *(serial(f"serial-{number}", episodes, translations) for number in range(1, count + 1)), ready=ready
        )

    def decode(self, *content_ids: int, translation: str | None = None) -> None:
        """All variants of these, or those of one translation, now have a link."""
        query = sa.select(variants.c.id, variants.c.link).where(variants.c.episode_id.in_(_EPISODES))
        if translation is not None:
            query = query.where(variants.c.translation_id == translation)
        found = self.store.read(lambda tx: tx.rows(query, {"contents": content_ids}))
        now = self.store.clock.now()
        rows = [
            Made(row["id"], row["link"], f"https://cdn.test/{row['id']}/720.mp4", "720p", now, None) for row in found
        ]
        self.store.write("test", lambda tx: keep_decoded(tx.conn, rows))

    def change(self, content_ids: Iterable[int], **values: Any) -> None:
        """Something about these is new."""
        self.store.write("test", lambda tx: changed(tx, content_ids, **values))

    def versions(self) -> dict[int, Any]:
        """When each last changed."""
        return {row["id"]: row["updated_at"] for row in every(self.store, sa.select(contents))}


def changed(tx: Tx, content_ids: Iterable[int], **values: Any) -> None:
    ids = list(content_ids)
    clock = Clock(tx.conn, tx.now)
    tx.conn.execute(sa.update(contents).where(contents.c.id.in_(ids)).values(**values))
    clock.touch(ids)


def serial(name: str, episodes: int = 1, translations: int = 1, **more: Any) -> Work:
    offers = tuple(
        Offer(
            link=f"https://kodik.test/{name}/{episode}/{translation}",
            season=1,
            episode=episode,
            translation_id=f"6{translation}",
            translation_title=f"Voice {translation}",
            translation_type="voice",
            quality="WEB-DLRip 720p",
        )
        for episode in range(1, episodes + 1)
        for translation in range(1, translations + 1)
    )
    return Work(id=name, type="anime-serial", title=f"Title of {name}", year=2026, offers=offers, **more)


_EPISODES = sa.text(
    "SELECT episodes.id FROM episodes JOIN seasons ON seasons.id = episodes.season_id"
    " WHERE seasons.content_id IN :contents"
).bindparams(sa.bindparam("contents", expanding=True))
