"""Podcasts: each RSS or Atom feed is a playlist, each entry with something to hear a track."""

from __future__ import annotations

import hashlib
import io
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import feedparser
from urllib3.exceptions import HTTPError

from dalsegno.model.signal import ProviderError
from dalsegno.sources.hosts import Hosts
from dalsegno.sources.http import MIB, Document, Http
from dalsegno.sources.model import Gone, Media, Playlist, Pool, Source, Track, Unusable
from dalsegno.sources.registry import Config
from dalsegno.sources.signed import Ties, identifying
from dalsegno.sources.suffixes import lossless, suffix_of
from dalsegno.sources.urls import host_of, joined, lasting, named, secrets_of, target, without_login

FEED_MAX = 16 * MIB
"""Parsed, a feed takes about ten times its size in memory."""
FRESH_SEC = 60.0
"""How long a feed that was read for one track serves its neighbours."""
NOT_HEARD = ("image/", "text/", "application/pdf", "application/x-bittorrent", "application/epub")


def open_source(config: Config) -> Source:
    return Feeds(config.list("FEED_URLS"), Hosts(config, "feed", config.list("FEED_URLS")))


@dataclass(frozen=True, slots=True)
class Read:
    """A feed as it was at one moment."""

    url: str
    title: str
    author: str
    cover: str
    entries: list[Mapping[str, Any]]


class Feeds(Source):
    name = "feed"

    def __init__(self, urls: Iterable[str], hosts: Hosts) -> None:
        self._http = Http()
        self._hosts = hosts
        self._feeds = dict(_ids(urls))
        self._last: tuple[str, float, dict[str, str]] | None = None
        self._lock = threading.Lock()

    def pools(self) -> Iterable[Pool]:
        return [Pool(id="feeds", name="Podcasts", kind="feeds")]

    def playlists(self, pool: Pool) -> Iterable[Playlist]:
        if pool.id != "feeds":
            raise Gone(f'There is no pool "{pool.id}" of feeds.')
        for id in self._feeds:
            try:
                feed = self._read(id)
            except (Gone, Unusable, ProviderError, HTTPError, OSError):  # told when this feed itself is read
                place = urlsplit(id)
                yield Playlist(id=id, name=f"{place.hostname or ''}{place.path}", kind="feed", url=id)
            else:
                count = sum(1 for _ in _heard(feed))
                yield Playlist(id=id, name=feed.title or id, kind="feed", owner=feed.author, url=id, count=count)

    def tracks(self, playlist: Playlist) -> Iterable[Track]:
        feed = self._read(playlist.id)
        ties = _ties(feed)
        return (self._track(playlist.id, feed, entry, sound, ties) for entry, sound in _heard(feed))

    def resolve(self, track: Track) -> Media:
        id = str(track.snapshot.get("feed") or "")
        source = self._feeds.get(id)
        if source is None:
            raise Gone(f'The feed of "{track.title}" is no longer among FEED_URLS.')
        url = str(track.snapshot.get("url") or "") or self._sounds(id).get(track.id)
        if not url:
            raise Gone(f'{host_of(source)} no longer has "{track.title}" in its feed.')
        suffix = suffix_of(urlsplit(url).path)
        return Media(
            url=without_login(url),
            headers=_login(url, source),
            suffix=suffix,
            lossless=lossless(suffix),
            duration=track.duration,
            trusted=self._hosts.trust(url),
            secrets=(*secrets_of(url), *secrets_of(source)),
            cover=self._cover(track),
        )

    def close(self) -> None:
        self._http.close()

    def _cover(self, track: Track) -> Media | None:
        url = str(track.snapshot.get("cover") or "")
        return Media(url=url, trusted=self._hosts.trust(url)) if url else None

    def _read(self, id: str) -> Read:
        source = self._feeds.get(id)
        if source is None:
            raise Gone(f"{id} is no longer among FEED_URLS.")
        try:
            document = self._http.get(source, trusted=True, limit=FEED_MAX)
        except Gone:
            raise Gone(f"{host_of(source)} no longer has the feed {id}.") from None
        parsed = _parsed(document)
        # Of nothing at all it does not even say that it has no version.
        if parsed is None or (not parsed.get("version") and not parsed.entries):
            raise Unusable(f"{host_of(source)} sent something that is neither RSS nor Atom.", code="not_a_feed")
        about = parsed.feed
        cover = (about.get("image") or {}).get("href") or ""
        return Read(document.url, _line(about.get("title")), _line(about.get("author")), cover, parsed.entries)

    def _sounds(self, id: str) -> dict[str, str]:
        """Where each track of a feed is now; for those whose URLs may not be stored."""
        with self._lock:
            if self._last is None or self._last[0] != id or time.monotonic() - self._last[1] > FRESH_SEC:
                feed = self._read(id)
                ties = _ties(feed)
                found = {_id(id, entry, sound, ties): _sound_url(feed, sound) for entry, sound in _heard(feed)}
                self._last = (id, time.monotonic(), found)
            return self._last[2]

    def _track(self, id: str, feed: Read, entry: Mapping[str, Any], sound: Mapping[str, Any], ties: Ties) -> Track:
        url = _sound_url(feed, sound)
        # The entries of a feed behind credentials may be so too, in ways that do not show.
        kept = lasting(url) and lasting(self._feeds[id])
        cover = (
            joined(feed.url, (entry.get("image") or {}).get("href") or feed.cover)
            if feed.cover or entry.get("image")
            else ""
        )
        author = _line(entry.get("author")) or feed.author or feed.title
        published = entry.get("published_parsed") or entry.get("updated_parsed")
        snapshot = {"feed": id, "url": url if kept else "", "cover": cover if lasting(cover) else ""}
        return Track(
            id=_id(id, entry, sound, ties),
            title=_line(entry.get("title")) or urlsplit(url).path.rpartition("/")[2],
            artists=(author,) if author else (),
            album=feed.title,
            track_no=_number(entry.get("itunes_episode")),
            disc_no=_number(entry.get("itunes_season")),
            year=published[0] if published else None,
            duration=_seconds(entry.get("itunes_duration")),
            snapshot={name: value for name, value in snapshot.items() if value},
        )


def _parsed(document: Document) -> Any:
    """As a file, because feedparser opens a text that looks like a path or a URL."""
    try:
        return feedparser.parse(
            io.BytesIO(document.body),
            response_headers={"content-type": document.headers.get("content-type") or "application/xml"},
            sanitize_html=False,
            resolve_relative_uris=False,
        )
    except Exception:  # whatever a broken feed makes a parser do, it is that feed's trouble
        return None


def _ids(urls: Iterable[str]) -> Iterator[tuple[str, str]]:
    """By their names; of two that differ only in credentials, the second is numbered."""
    seen: dict[str, int] = {}
    for url in dict.fromkeys(urls):
        name = named(url)
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name}#{seen[name]}"), url


def _heard(feed: Read) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Entries and what is to be heard of them: what calls itself audio, else what may be."""
    for entry in feed.entries:
        sounds = [
            link
            for link in entry.get("links", ())
            if link.get("rel") == "enclosure"
            and link.get("href")
            and not (link.get("type") or "").lower().startswith(NOT_HEARD)
            and urlsplit(_sound_url(feed, link)).scheme in ("http", "https")
        ]
        sounds.sort(key=lambda link: not (link.get("type") or "").lower().startswith("audio/"))
        if sounds:
            yield entry, sounds[0]


def _sound_url(feed: Read, sound: Mapping[str, Any]) -> str:
    return joined(feed.url, str(sound["href"]).strip())


def _id(feed: str, entry: Mapping[str, Any], sound: Mapping[str, Any], ties: Ties) -> str:
    """Short identifiers repeat between feeds, so the feed is part of it."""
    own = str(entry.get("id") or "")
    plain = _plain(own) if own else ties.told(_plain_sound(sound), str(sound["href"]))
    return f"{hashlib.sha256(feed.encode()).hexdigest()[:10]}:{plain}"


def _plain(own: str) -> str:
    own = named(own) if "://" in own else own
    return own if len(own) <= 200 else hashlib.sha256(own.encode()).hexdigest()


def _plain_sound(sound: Mapping[str, Any]) -> str:
    return _plain(identifying(str(sound["href"])))


def _ties(feed: Read) -> Ties:
    """Among entries that have no name of their own."""
    return Ties(
        (_plain_sound(sound), str(sound["href"]), _line(entry.get("title")))
        for entry, sound in _heard(feed)
        if not entry.get("id")
    )


def _login(url: str, feed: str) -> dict[str, str]:
    """A login in the URL itself, or the feed's own for what lies on the same host."""
    own = target(url).authorization
    if not own and host_of(url) == host_of(feed) and url.startswith(feed.partition(":")[0] + ":"):
        own = target(feed).authorization
    return {"Authorization": own} if own else {}


def _line(value: Any) -> str:
    return " ".join(str(value or "").split())


def _number(value: Any) -> int | None:
    text = str(value or "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _seconds(value: Any) -> float | None:
    """`3723`, `62:03` or `1:02:03`."""
    try:
        total = 0.0
        for part in str(value).split(":"):
            total = total * 60 + float(part)
    except ValueError:
        return None
    return total if 0 < total < 1e7 else None
