"""Pages that yt-dlp can read: each page a playlist. Needs the extra `ytdlp`.

yt-dlp fetches pages itself, so their addresses are checked before it is asked, but not each redirect it follows. The
bytes come through our own client, which checks everything.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dalsegno.errors import InputInvalid
from dalsegno.model.signal import ProviderError
from dalsegno.sources import addresses
from dalsegno.sources.hosts import Hosts
from dalsegno.sources.model import Gone, Media, Playlist, Pool, Source, Track, Unusable
from dalsegno.sources.registry import Config
from dalsegno.sources.suffixes import lossless
from dalsegno.sources.urls import lasting, named, secrets_of, target

log = logging.getLogger(__name__)
DEPTH = 4
"""How far pages of pages are followed."""
FORMAT = "/".join(f"{best}[protocol={scheme}]" for best in ("bestaudio", "best") for scheme in ("https", "http"))
"""The best sound that is one file; streams in pieces (HLS, DASH) are not."""
_GONE = re.compile(
    r"unavailable|private video|removed|deleted|does not exist|no longer|terminated|not found", re.IGNORECASE
).search
_LOGIN = re.compile(r"sign in|log ?in|cookies|members|your age|registered users|premium", re.IGNORECASE).search


def open_source(config: Config) -> Source:
    urls = config.list("YTDLP_URLS")
    return Pages(urls, Hosts(config, "ytdlp", urls))


class Pages(Source):
    name = "ytdlp"

    def __init__(self, urls: Iterable[str], hosts: Hosts) -> None:
        self._pages = {named(url): url for url in urls}
        self._hosts = hosts

    def pools(self) -> Iterable[Pool]:
        return [Pool(id="pages", name="Pages", kind="pages")]

    def playlists(self, pool: Pool) -> Iterable[Playlist]:
        if pool.id != "pages":
            raise Gone(f'There is no pool "{pool.id}" of pages.')
        for id in self._pages:
            try:
                with Session() as session:
                    page = self._page(session, id)
            except (Gone, Unusable, ProviderError):  # told when this page itself is read
                yield Playlist(id=id, name=id, kind="page", url=id)
            else:
                name, owner = _text(page, "title"), _text(page, "uploader", "channel")
                count = page.get("playlist_count")
                yield Playlist(
                    id=id,
                    name=name or id,
                    kind="page",
                    owner=owner,
                    url=id,
                    count=count if isinstance(count, int) else None,
                )

    def tracks(self, playlist: Playlist) -> Iterable[Track]:
        with Session() as session:  # open until the last entry: long lists are read as they are asked for
            for entry in self._entries(self._page(session, playlist.id), DEPTH):
                yield _track(playlist.id, entry)

    def resolve(self, track: Track) -> Media:
        url, page, entry = (str(track.snapshot.get(key) or "") for key in ("url", "page", "entry"))
        with Session() as session:
            if url:
                self._check(url)
                info = session.extract(url)
            else:
                entries = self._entries(self._page(session, page), DEPTH)
                embedded = next((each for each in entries if _key(each) == entry), None)
                if embedded is None:
                    raise Gone(f'"{track.title}" is no longer on {page}.')
                info = session.process(embedded)
        return self._media(track, info)

    def _page(self, session: Session, id: str) -> dict[str, Any]:
        url = self._pages.get(id)
        if url is None:
            raise Gone(f"{id} is no longer among YTDLP_URLS.")
        extractor = None
        for _ in range(DEPTH):
            info = session.peek(url, extractor)
            if info.get("_type") not in ("url", "url_transparent"):
                return info
            url, extractor = str(info.get("url") or ""), info.get("ie_key")
            self._check(url)
        raise Unusable(f"{named(url)} leads from page to page without end.", code="redirect_loop")

    def _entries(self, page: Mapping[str, Any], depth: int) -> Iterator[dict[str, Any]]:
        if "entries" not in page:
            yield dict(page)
            return
        entries = iter(page["entries"] or ())
        while True:
            with _told():
                entry = next(entries, None)
            if entry is None:
                return
            if "entries" in entry and depth:
                yield from self._entries(entry, depth - 1)
            elif entry.get("url") or entry.get("formats"):
                yield entry

    def _check(self, url: str) -> None:
        if url not in self._pages.values():
            check_page(url, trusted=self._hosts.trust(url))

    def _media(self, track: Track, info: Mapping[str, Any]) -> Media:
        url = str(info.get("url") or "")
        if info.get("protocol") not in ("http", "https") or not url:
            raise Unusable(f'"{track.title}" is offered only as a stream in pieces.', code="stream_only")
        suffix = f".{_text(info, 'ext').lower()}" if info.get("ext") not in (None, "unknown_video") else ""
        cover = _text(info, "thumbnail")
        headers = {str(name): str(value) for name, value in (info.get("http_headers") or {}).items()}
        headers = {name: value for name, value in headers.items() if name.lower() != "accept-encoding"}
        if info.get("cookies"):
            headers["Cookie"] = "; ".join(part.strip() for part in str(info["cookies"]).split(";") if _is_cookie(part))
        hidden = tuple(headers[name] for name in ("Cookie", "Authorization") if headers.get(name))
        return Media(
            url=url,
            headers=headers,
            size=_int(info.get("filesize")),
            suffix=suffix,
            bitrate=_int(info.get("abr")),
            lossless=lossless(suffix),
            duration=info.get("duration") or track.duration,
            expires_at=expiry(url),
            trusted=self._hosts.trust(url),
            secrets=(*secrets_of(url), *hidden),
            cover=Media(url=cover, trusted=self._hosts.trust(cover))
            if cover.startswith(("http://", "https://"))
            else None,
        )


def check_page(url: str, *, trusted: bool) -> None:
    """Before yt-dlp goes there; names it resolves itself moments later are beyond our reach."""
    place = target(url)
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ProviderError(message=f"{place.host} was not found: {error}.") from None
    for *_, address in found:
        addresses.check(str(address[0]), place.host, trusted)


class Session:
    """One YoutubeDL, whose words go to the log and whose errors become ours."""

    def __init__(self, wanted: str = FORMAT, whose: str = "source") -> None:
        self._format, self._whose = wanted, whose

    def __enter__(self) -> Session:
        try:
            module = import_module("yt_dlp")
        except ImportError:
            problem = f"The {self._whose} ytdlp needs yt-dlp: pip install 'dalsegno[ytdlp]'."
            raise InputInvalid(problem=problem) from None
        options = {
            "quiet": True, "no_warnings": True, "noprogress": True, "logger": _Log(), "cachedir": False,
            "skip_download": True, "noplaylist": True, "extract_flat": "in_playlist", "lazy_playlist": True,
            "format": self._format, "socket_timeout": 30,
        }  # fmt: skip
        self._ydl = module.YoutubeDL(options)
        return self

    def __exit__(self, *_: object) -> None:
        self._ydl.close()

    def peek(self, url: str, extractor: str | None) -> dict[str, Any]:
        with _told():
            return dict(self._ydl.extract_info(url, download=False, process=False, ie_key=extractor) or {})

    def extract(self, url: str) -> dict[str, Any]:
        with _told():
            return dict(self._ydl.extract_info(url, download=False) or {})

    def process(self, entry: dict[str, Any]) -> dict[str, Any]:
        with _told():
            return dict(self._ydl.process_ie_result(entry, download=False) or {})


class _Log:
    def debug(self, message: str) -> None:
        log.debug("%s", message)

    def info(self, message: str) -> None:
        log.debug("%s", message)

    def warning(self, message: str) -> None:
        log.info("%s", message)

    def error(self, message: str) -> None:
        log.info("%s", message)


class _told:  # noqa: N801 - reads as a verb where it is used
    """Turns what yt-dlp raises into what sources raise."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or not isinstance(error, Exception) or not type(error).__module__.startswith("yt_dlp"):
            return
        inner = (getattr(error, "exc_info", None) or (None, None))[1] or error
        cause = getattr(inner, "cause", None) or inner
        names = {base.__name__ for link in (error, inner, cause) for base in type(link).__mro__}
        status = getattr(cause, "status", None)
        message = _cleaned(str(error))
        response = getattr(cause, "response", None)
        if response is not None:
            response.close()  # the error holds it, and itself: its connection would stay open
        if status in (404, 410):
            raise Gone(message) from None
        if isinstance(status, int):
            raise ProviderError(status, headers=getattr(response, "headers", None), message=message) from None
        if "TransportError" in names:
            raise ProviderError(503, message=message) from None
        if "UnsupportedError" in names:
            raise Unusable(message, code="unsupported_page") from None
        if "GeoRestrictedError" in names:
            raise Unusable(message, code="geo_restricted") from None
        if "Requested format is not available" in message:
            raise Unusable("This is offered only as a stream in pieces.", code="stream_only") from None
        if _GONE(message):
            raise Gone(message) from None
        raise Unusable(message, code="login_needed" if _LOGIN(message) else "unusable_answer") from None


def _cleaned(message: str) -> str:
    """For people: without colours, and without where to report it."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", message).removeprefix("ERROR: ")
    plain = re.sub(r"https?://\S+", lambda found: named(found[0]).partition("?")[0], plain)
    return "yt-dlp: " + re.split(r"; please report|\(caused by", plain)[0].strip()[:400]


def _track(page: str, entry: Mapping[str, Any]) -> Track:
    url = _text(entry, "url", "webpage_url") if not entry.get("formats") else ""
    if entry.get("formats") and entry.get("direct"):
        url = _text(entry, "webpage_url")
    found_again = {"url": url} if url and lasting(url) else {"page": page, "entry": _key(entry)}
    artist = _text(entry, "artist", "creator", "uploader", "channel")
    return Track(
        id=_key(entry),
        title=_text(entry, "track", "title") or named(url) or _key(entry),
        artists=(artist,) if artist else (),
        album=_text(entry, "album"),
        track_no=_int(entry.get("track_number")),
        year=_int(entry.get("release_year")),
        duration=entry.get("duration") or None,
        snapshot=found_again,
    )


def _key(entry: Mapping[str, Any]) -> str:
    extractor = _text(entry, "ie_key", "extractor_key").lower() or "page"
    id = _text(entry, "id")
    if extractor in ("generic", "page", "html5mediaembed") or not id:  # whose ids are file names
        formats = entry.get("formats") or [{}]
        place = _text(entry, "webpage_url", "url") or _text(formats[0], "url")
        return named(place).partition("?")[0] if place else f"{extractor}:{id}"
    return f"{extractor}:{id}"


def _text(entry: Mapping[str, Any], *names: str) -> str:
    return next((str(entry[name]) for name in names if entry.get(name)), "")


def _int(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and value > 0 else None


def _is_cookie(part: str) -> bool:
    name, equals, _ = part.strip().partition("=")
    return bool(equals) and name.lower() not in ("domain", "path", "expires", "max-age", "samesite", "version")


def expiry(url: str) -> datetime | None:
    for name, values in parse_qs(urlsplit(url).query).items():
        if name.lower() in ("expire", "expires", "e", "exp") and values[0].isdigit() and len(values[0]) == 10:
            return datetime.fromtimestamp(int(values[0]), UTC)
    return None
