"""What is written in M3U, XSPF and CSV files and in plain lists of URLs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import unquote

from defusedxml import ElementTree
from defusedxml.common import DefusedXmlException

from dalsegno.sources.model import Unusable
from dalsegno.sources.urls import path_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    title: str = ""
    artists: tuple[str, ...] = ()
    album: str = ""
    track_no: int | None = None
    disc_no: int | None = None
    year: int | None = None
    duration: float | None = None
    isrc: str | None = None
    place: str = ""
    """A URL or a path, as written; empty where only the song is named."""
    cover: str = ""
    known_as: str = ""
    """An identifier that means the same song in every list, such as spotify:track:…"""
    numbered: str = ""
    """One that means it in this list: in the next, the same may be another song's."""


@dataclass(frozen=True, slots=True)
class Listing:
    title: str
    read: Callable[[], Iterable[Entry]]

    @property
    def entries(self) -> Iterable[Entry]:
        """From the first to the last, read anew each time: of a long list few are held at once."""
        return self.read()


def parse(body: bytes, name: str) -> Listing:
    """By the suffix of its name, or by how it begins."""
    suffix = name.lower().rpartition(".")[2]
    text = _decoded(body, suffix)
    if "\n" not in text:
        text = text.replace("\r", "\n")  # as Macs ended lines once
    start = text.lstrip()[:2000]
    if suffix in ("xspf", "xml") or start.startswith(("<?xml", "<playlist")):
        return _xspf(body)
    if start[:200].lower().startswith(("<!doctype html", "<html")):
        raise Unusable("This is a web page, not a playlist.", code="not_a_playlist")
    if "\0" in text[:4000]:
        raise Unusable("This is no text, so it is no playlist.", code="not_a_playlist")
    if suffix in ("m3u", "m3u8") or start.startswith("#EXTM3U"):
        return _m3u(text)
    first = start.partition("\n")[0]
    if suffix in ("csv", "tsv") or (
        suffix not in ("txt", "list", "urls") and _columns(first, _delimiter(first)).get("title")
    ):
        return _csv(text)
    return Listing("", partial(_lines, text))


def _decoded(body: bytes, suffix: str) -> str:
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return body.decode("utf-16", "replace")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return body.decode("utf-8-sig", "replace") if suffix == "m3u8" else body.decode("latin-1")


# ---- M3U ----

_EXTINF = re.compile(r"#EXTINF:\s*(-?\d{1,9}(?:\.\d{1,9})?)?").match
_QUOTE_OR_COMMA = re.compile(r"[\",]").finditer


def _m3u(text: str) -> Listing:
    if "#EXT-X-" in text[:4000]:
        raise Unusable("This is one stream in pieces (HLS), not a playlist of songs.", code="not_a_playlist")
    title = re.search(r"^#PLAYLIST:(.*)$", text, re.MULTILINE)
    return Listing(title[1].strip() if title else "", partial(_m3u_entries, text))


def _m3u_entries(text: str) -> Iterator[Entry]:
    entry, artist, album = Entry(), "", ""
    for raw in io.StringIO(text):
        line = raw.strip()
        found = _EXTINF(line)
        if found:
            seconds = float(found[1] or 0)
            entry = replace(_spoken(_after_attributes(line[found.end() :])), duration=seconds if seconds > 0 else None)
        elif line.startswith("#EXTART:"):
            artist = line[8:].strip()
        elif line.startswith("#EXTALB:"):
            album = line[8:].strip()
        elif line and not line.startswith("#"):
            if artist:
                title = f"{' '.join(entry.artists)} - {entry.title}" if entry.artists else entry.title
                entry = replace(entry, artists=(artist,), title=title.removeprefix(f"{artist} - "))
            yield replace(entry, album=album, place=line, title=entry.title or stem(line))
            entry, artist = Entry(), ""


def _after_attributes(text: str) -> str:
    """What stands behind the first comma that is in no quotes: `tvg-id="x,y",Title`."""
    quoted = False
    for found in _QUOTE_OR_COMMA(text):
        if found[0] == '"':
            quoted = not quoted
        elif not quoted:
            return text[found.end() :]
    return text.partition(",")[2] if quoted else ""


def _spoken(text: str) -> Entry:
    """`Artist - Title`, as it is commonly written."""
    artist, dash, title = text.strip().partition(" - ")
    if dash and artist.strip() and title.strip():
        return Entry(title=title.strip(), artists=(artist.strip(),))
    return Entry(title=text.strip())


def stem(place: str) -> str:
    """A title for what has none: the last part of where it is."""
    path = unquote(path_of(place)) if "://" in place else place
    name = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return name.rpartition(".")[0] or name or place[:200]


# ---- lists of URLs ----


def _lines(text: str) -> Iterator[Entry]:
    for raw in io.StringIO(text):
        line = raw.strip()
        if line and not line.startswith(("#", "//")):
            yield Entry(title=stem(line), place=line)


# ---- XSPF ----


def _xspf(body: bytes) -> Listing:
    try:
        root = ElementTree.fromstring(body)
    except (ElementTree.ParseError, DefusedXmlException, ValueError) as error:
        raise Unusable(f"This XML cannot be read ({type(error).__name__}).", code="not_a_playlist") from None
    if _tag(root) != "playlist":
        raise Unusable("This XML is no XSPF playlist.", code="not_a_playlist")
    tracks = [track for listed in root if _tag(listed) == "trackList" for track in listed if _tag(track) == "track"]
    return Listing(_child(root, "title"), lambda: map(_xspf_entry, tracks))


def _xspf_entry(track: Any) -> Entry:
    place = _child(track, "location")
    creator = _child(track, "creator")
    milliseconds = _int(_child(track, "duration"))
    return Entry(
        title=_child(track, "title") or stem(place),
        artists=(creator,) if creator else (),
        album=_child(track, "album"),
        track_no=_int(_child(track, "trackNum")),
        duration=milliseconds / 1000 if milliseconds else None,
        place=place,
        cover=_child(track, "image"),
    )


def _tag(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


def _child(element: Any, name: str) -> str:
    return next(((child.text or "").strip() for child in element if _tag(child) == name), "")


# ---- CSV ----

NAMES = {
    "title": ("title", "track name", "track", "name", "song", "song name", "track title"),
    "artist": ("artist", "artist name", "creator", "performer"),
    "artists": ("artists", "artist name(s)", "artist names"),
    "album": ("album", "album name", "album title"),
    "place": ("url", "location", "link", "file", "path", "uri"),
    "seconds": ("duration", "length", "seconds", "duration (s)", "time"),
    "milliseconds": ("duration (ms)", "track duration (ms)", "duration_ms", "duration ms"),
    "isrc": ("isrc",),
    "track_no": ("track number", "track no", "track_no", "trackno"),
    "disc_no": ("disc number", "disc no", "disc_no", "discno"),
    "year": ("year", "release date", "album release date"),
    "id": ("track uri", "track id", "id"),
    "service_id": ("spotify uri", "spotify id"),
}
"""What a column may be called, in small letters, also as Exportify writes it."""


def _csv(text: str) -> Listing:
    first = text.partition("\n")[0]
    delimiter = _delimiter(first)
    columns = _columns(first, delimiter)
    if "title" not in columns and "place" not in columns:
        raise Unusable("This table has no column called title or url in its first line.", code="not_a_playlist")
    return Listing("", partial(_csv_entries, text, delimiter, columns))


def _csv_entries(text: str, delimiter: str, columns: dict[str, int]) -> Iterator[Entry]:
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        next(rows)
        for row in rows:
            values = {name: row[at].strip() for name, at in columns.items() if at < len(row)}
            entry = _row(values)
            if entry.title:
                yield entry
    except csv.Error as error:
        raise Unusable(f"This table cannot be read: {error}.", code="not_a_playlist") from None


def _row(values: dict[str, str]) -> Entry:
    several = re.split(";|, ", values["artists"]) if values.get("artists") else [values.get("artist", "")]
    milliseconds = _int(values.get("milliseconds", ""))
    year = re.match(r"[12]\d{3}", values.get("year", ""))
    place, own = values.get("place", ""), values.get("id", "")
    known_as = own if ":" in own else values.get("service_id", "")
    return Entry(
        title=values.get("title", "") or (stem(place) if place else ""),
        artists=tuple(each.strip() for each in several if each.strip()),
        album=values.get("album", ""),
        track_no=_int(values.get("track_no", "")),
        disc_no=_int(values.get("disc_no", "")),
        year=int(year[0]) if year else None,
        duration=milliseconds / 1000 if milliseconds else _clock(values.get("seconds", "")),
        isrc=values.get("isrc") or None,
        place=place,
        known_as=known_as,
        numbered="" if known_as else own,
    )


def _delimiter(first: str) -> str:
    """The one that finds the most names we know; csv.Sniffer guesses from letters that happen to repeat."""
    return max(",;\t|", key=lambda delimiter: len(_columns(first, delimiter)))


def _columns(first: str, delimiter: str) -> dict[str, int]:
    try:
        header = [name.strip().lower() for name in next(csv.reader([first.rstrip("\r\n")], delimiter=delimiter), [])]
    except csv.Error:
        return {}
    found = {}
    for name, spellings in NAMES.items():
        at = next((header.index(spelling) for spelling in spellings if spelling in header), None)
        if at is not None:
            found[name] = at
    return found


def _int(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 10 else None


def _clock(text: str) -> float | None:
    """`245`, `4:05` or `1:04:05`; a plain number too large for seconds is milliseconds."""
    try:
        total = 0.0
        for part in text.split(":"):
            total = total * 60 + float(part)
    except ValueError:
        return None
    if total >= 36_000 and ":" not in text:
        total /= 1000
    return total if 0 < total < 1e7 else None
