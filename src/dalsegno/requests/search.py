"""Search: what there is of what a request asks for. One item is one request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dalsegno.catalog.trouble import trouble
from dalsegno.engine.service import Service
from dalsegno.model.outcome import Fail, Outcome, Retry
from dalsegno.requests.body import body_of
from dalsegno.requests.content import keep
from dalsegno.requests.kodik_shape import joined
from dalsegno.requests.upstream import SearchSource, Wanted, Work
from dalsegno.requests.workflow import SEARCH

if TYPE_CHECKING:
    from dalsegno.engine.item import Item
    from dalsegno.requests.room import Room

PAGES_MAX = 20
"""Of one answer. What asks for more than 2,000 results is not a title."""


class Search:
    def __init__(self, room: Room) -> None:
        self._room = room

    def service(self) -> Service:
        return Service(SEARCH, self.search, workers=self._room.settings.requests_search_workers)

    def search(self, item: Item) -> Any:
        self._room.begin(item)
        body = body_of(item.stage.scope)
        wanted = Wanted(
            title=body.title or "",
            kinopoisk_id=body.kinopoisk_id or "",
            imdb_id=body.imdb_id or "",
            shikimori_id=body.shikimori_id or "",
        )
        upstreams = self._room.upstreams
        names = upstreams.names()
        if not names:
            return Fail(
                "No search source is configured, so nothing can be found. Set KODIK_URL in dalsegno.env.",
                code="no_search_source",
            )
        found: dict[str, list[Work]] = {}
        troubles: list[Outcome] = []
        for name in names:
            try:
                found[name] = self._ask(item, upstreams.get(name), wanted)
            except Exception as error:
                troubles.append(trouble(error, f"searching {name}"))
        if (worst := _worst(troubles, item, some=bool(found))) is not None:
            return worst
        for each in troubles:
            item.log.warning("%s", getattr(each, "error", each))
        now = self._room.store.clock.now()
        item.also(lambda conn: keep(conn, item.job_id, found, now, ready=not body.decode_links))
        works = [work for works in found.values() for work in works]
        return {"contents": len(works), "variants": sum(len(work.offers) for work in works)}

    def _ask(self, item: Item, source: SearchSource, wanted: Wanted) -> list[Work]:
        """All pages of the answer. Each is a call of its own, with a permit of its own."""
        works: dict[str, Work] = {}
        page: str | None = None
        for number in range(1, PAGES_MAX + 1):
            with source.passage(self._room.permit(item)):
                answer = source.search(wanted, page)
            for odd in answer.drift:
                item.log.warning("%s answers otherwise than documented: %s", source.name, odd)
            for work in answer.works:
                works[work.id] = joined(works[work.id], work) if work.id in works else work
            page = answer.next_page
            if page is None or item.cancelled:
                break
            item.progress(text=f"{source.name}: page {number}, {len(works)} found")
        else:
            item.log.warning("%s has more than %d pages; the rest was left out", source.name, PAGES_MAX)
        return list(works.values())


def _worst(troubles: list[Outcome], item: Item, *, some: bool) -> Outcome | None:
    """What ends the attempt. Where some sources answered, others are tried again, but not to the bitter end."""
    passing = next((each for each in troubles if isinstance(each, Retry)), None)
    last = item.attempt + 1 >= item.stage.max_attempts
    if passing is not None and not (some and last):
        return passing
    return troubles[0] if troubles and not some else None
