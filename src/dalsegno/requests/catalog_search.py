"""The catalog's own sources as search sources: a song is a work with one variant.

What such a variant links to is no page but the source's own note about the track: `catalog:subsonic:{…}`. The decoder
of the same module takes it back to the source, which says where the bytes are.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from itertools import islice
from typing import TYPE_CHECKING, Any

from dalsegno.catalog.passages import passage
from dalsegno.requests.decoders.model import Decoded, Decoder, Link
from dalsegno.requests.upstream import Found, Offer, Permit, SearchSource, Wanted, Work
from dalsegno.sources import forms
from dalsegno.sources.model import Source, Track, Unusable

if TYPE_CHECKING:
    from dalsegno.sources.registry import Sources

SCHEME = "catalog"
MOST = 20


class CatalogSearch(SearchSource):
    def __init__(self, source: Source) -> None:
        self._source = source

    def search(self, wanted: Wanted, page: str | None = None) -> Found:
        """By title alone: catalogs of music know none of the other ids."""
        if not wanted.title or page is not None:
            return Found()
        found = islice(self._source.search(Track(id="", title=wanted.title)), MOST)
        return Found(works=tuple(self._work(track) for track in found))

    def passage(self, permit: Permit) -> AbstractContextManager[Any, None]:
        """The source's own limits, which hold for whoever asks it."""
        return passage(permit, "source", self._source)

    def _work(self, track: Track) -> Work:
        note = json.dumps(forms.written(track), ensure_ascii=False, sort_keys=True)
        return Work(
            id=track.id,
            type="song",
            title=track.title,
            other_title=", ".join(track.artists),
            year=track.year,
            offers=(Offer(link=f"{SCHEME}:{self._source.name}:{note}", translation_title=track.album),),
        )


class CatalogDecoder(Decoder):
    name = SCHEME

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def can(self, link: Link) -> bool:
        return link.url.startswith(f"{SCHEME}:")

    def passage(self, permit: Permit, link: Link) -> AbstractContextManager[Any, None]:
        return passage(permit, "source", self._source(link))

    def decode(self, link: Link) -> Decoded:
        media = self._source(link).resolve(forms.track(json.loads(link.url.split(":", 2)[2])))
        if media.url is None:
            raise Unusable("This is a file on the machine that found it; it has no address.", code="no_address")
        if media.headers or (media.secrets and media.expires_at is None):  # what expires is for this file alone
            raise Unusable("Its address holds credentials, which are not given out.", code="holds_credentials")
        return Decoded(url=media.url, expires_at=media.expires_at)

    def _source(self, link: Link) -> Source:
        return self._sources.get(link.url.split(":", 2)[1])
