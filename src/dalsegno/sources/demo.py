"""The built-in catalog, from wherever `demo_server` serves it (DEMO_URL)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode, urljoin

from dalsegno.sources.http import Http
from dalsegno.sources.model import Media, Playlist, Pool, Source, Track, Unusable
from dalsegno.sources.registry import Config
from dalsegno.sources.urls import secrets_of

PAGE = 200


def open_source(config: Config) -> Source:
    return Demo(config.text("DEMO_URL"))


class Demo(Source):
    name = "demo"
    one_host = True

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._http = Http()

    def pools(self) -> Iterator[Pool]:
        for row in self._get("/pools")["pools"]:
            yield Pool(id=row["id"], name=row["name"])

    def playlists(self, pool: Pool) -> Iterator[Playlist]:
        for row in self._rows(f"/pools/{_part(pool.id)}/playlists", "playlists"):
            yield Playlist(id=row["id"], name=row["name"], description=row["description"], count=row["count"])

    def tracks(self, playlist: Playlist) -> Iterator[Track]:
        return map(_track, self._rows(f"/playlists/{_part(playlist.id)}/tracks", "tracks"))

    def search(self, track: Track) -> Iterator[Track]:
        return map(_track, self._get("/search", q=track.title)["tracks"])

    def resolve(self, track: Track) -> Media:
        link = self._get(f"/tracks/{_part(track.id)}/link")
        url = urljoin(self.url, link["url"])
        return Media(
            url=url,
            size=link["size"],
            suffix=link["suffix"],
            bitrate=link["bitrate"],
            lossless=True,
            duration=link["duration"],
            expires_at=datetime.fromtimestamp(link["expires_at"], UTC),
            trusted=True,
            secrets=secrets_of(url),
            cover=Media(url=urljoin(self.url, link["cover"]), suffix=".png", trusted=True),
            lyrics=link["lyrics"],
        )

    def close(self) -> None:
        self._http.close()

    def _rows(self, path: str, name: str) -> Iterator[dict[str, Any]]:
        """One page in memory at a time."""
        offset = 0
        while True:
            page = self._get(path, offset=offset, limit=PAGE)
            yield from page[name]
            offset += len(page[name])
            if not page[name] or offset >= page["total"]:
                return

    def _get(self, path: str, **query: str | int) -> dict[str, Any]:
        answer = self._http.get(self.url + path + (f"?{urlencode(query)}" if query else ""), trusted=True)
        try:
            found = json.loads(answer.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Unusable(f"{self.url} does not answer like a demo server. Is DEMO_URL right?")
        return found


def _part(id: str) -> str:
    return quote(id, safe="")


def _track(row: Mapping[str, Any]) -> Track:
    return Track(
        id=row["id"],
        title=row["title"],
        artists=tuple(row["artists"]),
        album=row["album"],
        track_no=row["track_no"],
        year=row["year"],
        duration=row["duration"],
        isrc=row["isrc"],
    )
