"""Navidrome, and every other server that speaks Subsonic or OpenSubsonic."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from urllib3.exceptions import HTTPError

from dalsegno.model.signal import ProviderError
from dalsegno.sources.http import Http
from dalsegno.sources.model import Gone, Media, Playlist, Pool, Source, Track, Unusable
from dalsegno.sources.registry import Config
from dalsegno.sources.subsonic_api import Api, Refused, number, part, parts, text, whole
from dalsegno.sources.suffixes import lossless

PAGE = 500
"""The most that the protocol lets one ask for at once."""
TITLE_MAX = 500
"""Letters of a title that are looked at: brackets without end take the square of them."""
POOLS = {"playlists": "Playlists", "starred": "Starred", "albums": "Albums", "library": "Whole library"}
_NOBODY = re.compile(r"\[(unknown|non-album)[^\]]*\]", re.IGNORECASE).fullmatch
_ASIDE = re.compile(r"\s*[(\[\uff08\u3010][^)\]\uff09\u3011]*[)\]\uff09\u3011]")
"""What stands in brackets, also in full-width ones."""


def open_source(config: Config) -> Source:
    http = Http()
    api = Api(
        http,
        config.text("SUBSONIC_URL"),
        user=config.text("SUBSONIC_USER"),
        password=config.text("SUBSONIC_PASSWORD"),
        key=config.text("SUBSONIC_API_KEY"),
    )
    return Subsonic(api)


class Subsonic(Source):
    name = "subsonic"
    one_host = True

    def __init__(self, api: Api) -> None:
        self.api = api
        self._lock = threading.Lock()
        self._extensions: frozenset[str] | None = None
        self._may_download: bool | None = None
        self._old_lyrics = True

    def pools(self) -> Iterable[Pool]:
        return [Pool(id=id, name=name, kind=id) for id, name in POOLS.items()]

    def playlists(self, pool: Pool) -> Iterable[Playlist]:
        match pool.id:
            case "playlists":
                for each in parts(part(self.api.call("getPlaylists"), "playlists"), "playlist"):
                    yield _playlist(each)
            case "albums":
                for each in self._albums():
                    yield _album(each)
            case "starred" | "library":
                yield Playlist(id=pool.id, name=POOLS[pool.id], kind=pool.id)
            case _:
                raise Gone(f'A Subsonic server has no pool "{pool.id}", only {", ".join(POOLS)}.')

    def tracks(self, playlist: Playlist) -> Iterable[Track]:
        kind, _, id = playlist.id.partition(":")
        match kind:
            case "playlist":
                songs = iter(parts(self._named("getPlaylist", "playlist", id), "entry"))
            case "album":
                songs = iter(parts(self._named("getAlbum", "album", id), "song"))
            case "starred":
                songs = iter(parts(part(self.api.call("getStarred2"), "starred2"), "song"))
            case "library":
                songs = self._library()
            case _:
                raise Gone(f'A Subsonic server has no playlist "{playlist.id}".')
        return (_track(song) for song in songs if _is_song(song))

    def search(self, track: Track) -> Iterable[Track]:
        artist = track.artists[0] if track.artists else ""
        bare = _ASIDE.sub("", " ".join(track.title[:TITLE_MAX].split())).strip()
        seen: set[str] = set()
        # Some servers look for every word in all fields, some for the whole text in the title: ask both ways.
        for query in dict.fromkeys((f"{track.title} {artist}".strip(), track.title, bare)):
            if not query or seen:
                continue
            found = self.api.call("search3", query=query, songCount=20, albumCount=0, artistCount=0)
            for song in parts(part(found, "searchResult3"), "song"):
                id = text(song, "id")
                if id and id not in seen and _is_song(song):
                    seen.add(id)
                    yield _track(song)

    def resolve(self, track: Track) -> Media:
        song = part(self.api.call("getSong", id=track.id), "song")
        if not song:
            raise Gone(f'{self.api.host} no longer has "{track.title}".')
        if self._downloads():
            url, secrets = self.api.address("download", id=track.id, format="raw")
        else:
            url, secrets = self.api.address("stream", id=track.id, format="raw", maxBitRate=0)
        suffix = f".{text(song, 'suffix').lower()}" if text(song, "suffix") else ""
        return Media(
            url=url,
            headers=self.api.headers,
            size=number(song, "size"),
            suffix=suffix,
            bitrate=number(song, "bitRate"),
            lossless=lossless(suffix),
            duration=number(song, "duration"),
            trusted=True,
            secrets=secrets,
            cover=self._cover(song),
            lyrics=self._lyrics(song),
        )

    def close(self) -> None:
        self.api.http.close()

    def _named(self, method: str, name: str, id: str) -> dict[str, Any]:
        """What has this id; an answer without it is no list that became empty."""
        answer = self.api.call(method, id=id)
        if not isinstance(answer.get(name), dict | list):
            raise Unusable(f"{self.api.host} was asked for the {name} {id} and says nothing of it.")
        return part(answer, name)

    def _albums(self) -> Iterator[dict[str, Any]]:
        def page(offset: int) -> list[dict[str, Any]]:
            answer = self.api.call("getAlbumList2", type="alphabeticalByName", size=PAGE, offset=offset)
            return parts(part(answer, "albumList2"), "album")

        return _paged(page)

    def _library(self) -> Iterator[dict[str, Any]]:
        def page(offset: int) -> list[dict[str, Any]]:
            answer = self.api.call("search3", query="", songCount=PAGE, songOffset=offset, albumCount=0, artistCount=0)
            return parts(part(answer, "searchResult3"), "song")

        songs = _paged(page)
        first = next(songs, None)
        if first is not None:
            yield first
            yield from songs
            return
        for album in self._albums():  # where an empty query finds nothing: Subsonic itself, Airsonic
            yield from parts(part(self.api.call("getAlbum", id=text(album, "id")), "album"), "song")

    def _downloads(self) -> bool:
        """Whether the user may download; one who may not can still listen to the original."""
        if self._may_download is None:
            self._may_download = self._ask_whether_downloads()
        return self._may_download

    def _ask_whether_downloads(self) -> bool:
        if not self.api.user:
            return True
        try:
            role = part(self.api.call("getUser", username=self.api.user), "user").get("downloadRole")
        except (Refused, Gone, Unusable):
            return True
        return role not in (False, "false")

    def _cover(self, song: Mapping[str, Any]) -> Media | None:
        id = text(song, "coverArt")
        if not id:
            return None
        url, secrets = self.api.address("getCoverArt", id=id)
        return Media(url=url, headers=self.api.headers, trusted=True, secrets=secrets)

    def _lyrics(self, song: Mapping[str, Any]) -> str | None:
        """Nice to have: whatever goes wrong here, the song is still good."""
        try:
            if "songLyrics" in self._known():
                found = part(self.api.call("getLyricsBySongId", id=text(song, "id")), "lyricsList")
                return _structured(parts(found, "structuredLyrics"))
            if self._old_lyrics and text(song, "artist") and text(song, "title"):
                answer = self.api.call("getLyrics", artist=text(song, "artist"), title=text(song, "title"))
                return text(part(answer, "lyrics"), "value").strip() or None
        except ProviderError as error:
            self._old_lyrics = self._old_lyrics and not isinstance(error, Refused) and error.status not in (404, 501)
        except (Gone, Unusable, HTTPError, OSError):
            pass
        return None

    def _known(self) -> frozenset[str]:
        """The OpenSubsonic extensions; other servers have never heard the question."""
        with self._lock:
            if self._extensions is None:
                try:
                    answer = parts(self.api.call("getOpenSubsonicExtensions"), "openSubsonicExtensions")
                except (Gone, ProviderError, Unusable):
                    answer = []
                self._extensions = frozenset(text(each, "name") for each in answer)
            return self._extensions


def _paged(page: Callable[[int], list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """One page in memory at a time. A server may send fewer than asked for, so only an empty page is the last; one that
    does not know offsets sends its first page for ever."""
    offset, before = 0, ""
    while found := page(offset):
        first = text(found[0], "id")
        if first == before:
            return
        yield from found
        offset, before = offset + len(found), first


def _is_song(song: Mapping[str, Any]) -> bool:
    return bool(text(song, "id")) and not _true(song.get("isDir")) and not _true(song.get("isVideo"))


def _true(value: Any) -> bool:
    return value in (True, "true")


def _playlist(found: Mapping[str, Any]) -> Playlist:
    return Playlist(
        id=f"playlist:{text(found, 'id')}",
        name=text(found, "name") or text(found, "id"),
        description=text(found, "comment"),
        owner=text(found, "owner"),
        count=number(found, "songCount"),
        snapshot={"changed": text(found, "changed")} if found.get("changed") else {},
    )


def _album(found: Mapping[str, Any]) -> Playlist:
    return Playlist(
        id=f"album:{text(found, 'id')}",
        name=text(found, "name") or text(found, "title") or text(found, "album"),
        kind="album",
        owner=_name(text(found, "artist")),
        count=number(found, "songCount"),
    )


def _track(song: Mapping[str, Any]) -> Track:
    artists = [_name(text(each, "name")) for each in parts(song, "artists")] or [_name(text(song, "artist"))]
    isrc = song.get("isrc")
    code = isrc[0] if isinstance(isrc, list) and isrc else isrc
    return Track(
        id=text(song, "id"),
        title=text(song, "title") or text(song, "id"),
        artists=tuple(name for name in artists if name),
        album=_name(text(song, "album")),
        track_no=number(song, "track"),
        disc_no=number(song, "discNumber"),
        year=number(song, "year"),
        duration=number(song, "duration"),
        isrc=code if isinstance(code, str) and code else None,
        snapshot={name: song[name] for name in ("suffix", "size", "bitRate") if song.get(name)},
    )


def _name(name: str) -> str:
    """Servers file what has no name under one of their own."""
    return "" if _NOBODY(name) else name


def _structured(found: list[dict[str, Any]]) -> str | None:
    """LRC where a text has times, and that text rather than another."""
    for lyrics in sorted(found, key=lambda each: not _true(each.get("synced"))):
        lines = parts(lyrics, "line")
        if not lines:
            continue
        if not _true(lyrics.get("synced")):
            return "\n".join(text(line, "value") for line in lines)
        offset = whole(lyrics.get("offset")) or 0
        return "\n".join(_stamp((number(line, "start") or 0) - offset) + text(line, "value") for line in lines)
    return None


def _stamp(milliseconds: int) -> str:
    minutes, rest = divmod(max(0, milliseconds), 60_000)
    return f"[{minutes:02d}:{rest // 1000:02d}.{rest % 1000 // 10:02d}]"
