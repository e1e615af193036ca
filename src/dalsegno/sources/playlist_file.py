"""Playlist files, local or over HTTP: each is a playlist, each line a track.

A line may name a URL, or a file under the folder of its playlist or under one of FOLDER_ROOTS; lists that came over
HTTP may name URLs only. A line that names just a song is a track too, for other sources to find.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dalsegno.model.signal import ProviderError
from dalsegno.sources.hosts import Hosts
from dalsegno.sources.http import MIB, Http
from dalsegno.sources.model import Gone, Media, Playlist, Pool, Source, Track, Unusable
from dalsegno.sources.paths import storable
from dalsegno.sources.playlist_formats import Entry, Listing, parse, stem
from dalsegno.sources.registry import Config
from dalsegno.sources.signed import Ties, identifying
from dalsegno.sources.suffixes import lossless, suffix_of
from dalsegno.sources.urls import host_of, joined, lasting, named, path_of, secrets_of, target, without_login

LIST_MAX = 16 * MIB
WEB = ("http://", "https://")
PATTERN = frozenset("*?[")
"""What makes a path stand for any number of files; any other is one, whether it is there or not."""


def open_source(config: Config) -> Source:
    files = config.list("PLAYLIST_FILES")
    hosts = Hosts(config, "playlist-file", (file for file in files if file.startswith(WEB)))
    return PlaylistFiles(files, [Path(root) for root in config.list("FOLDER_ROOTS")], hosts)


class PlaylistFiles(Source):
    name = "playlist-file"

    def __init__(self, files: Iterable[str], roots: Iterable[Path], hosts: Hosts) -> None:
        self._http = Http()
        self._hosts = hosts
        self._files = list(files)
        self._roots = [root.resolve() for root in roots]

    def pools(self) -> Iterable[Pool]:
        return [Pool(id="files", name="Playlist files", kind="files")]

    def playlists(self, pool: Pool) -> Iterable[Playlist]:
        if pool.id != "files":
            raise Gone(f'There is no pool "{pool.id}" of playlist files.')
        for id, place in self._places():
            title = ""
            if not place.startswith(WEB):
                try:
                    title = self._listing(place).title
                except (Gone, Unusable, ProviderError):  # told when this file itself is read
                    title = ""
            yield Playlist(
                id=id, name=title or stem(named(place)), kind="file", url=id if place.startswith(WEB) else None
            )

    def tracks(self, playlist: Playlist) -> Iterable[Track]:
        place = self._place(playlist.id)
        listing = self._listing(place)
        ties = _ties(place, listing)
        return (self._track(playlist.id, place, entry, ties) for entry in listing.entries)

    def resolve(self, track: Track) -> Media:
        id = str(track.snapshot.get("playlist") or "")
        place = self._place(id)
        where = str(track.snapshot.get("place") or "")
        if not where and track.snapshot.get("hidden"):
            where = self._hidden(id, place).get(track.id, "")
            if not where:
                raise Gone(f'"{track.title}" is no longer in {named(place)}.')
        if not where:
            raise Unusable(f'{named(place)} does not say where "{track.title}" is.', code="no_location")
        return self._remote(track, place, where) if where.startswith(WEB) else self._local(track, place, where)

    def close(self) -> None:
        self._http.close()

    def _places(self) -> Iterator[tuple[str, str]]:
        """Every file with its id: its path, or its URL without credentials."""
        for file in self._files:
            if file.startswith(WEB):
                yield named(file), file
            elif not PATTERN & set(file) or Path(file).is_file():
                yield storable(file), file
            else:
                for found in _matching(Path(file)):
                    yield storable(found), found

    def _place(self, id: str) -> str:
        place = next((place for name, place in self._places() if name == id), None)
        if place is None:
            raise Gone(f"{id} is not there, or no longer among PLAYLIST_FILES.")
        return place

    def _listing(self, place: str) -> Listing:
        if place.startswith(WEB):
            try:
                document = self._http.get(place, trusted=True, limit=LIST_MAX)
            except Gone:
                raise Gone(f"{host_of(place)} no longer has the playlist {named(place)}.") from None
            return parse(document.body, path_of(place))
        try:
            with Path(place).open("rb") as file:
                body = file.read(LIST_MAX + 1)
        except FileNotFoundError:
            raise Gone(f"{storable(place)} is not there.") from None
        except OSError as error:
            raise Unusable(f"{storable(place)} cannot be read: {error.strerror}.", code="unreadable_file") from None
        if len(body) > LIST_MAX:
            raise Unusable(f"{storable(place)} is larger than {LIST_MAX // MIB} MiB.", code="too_large")
        return parse(body, place)

    def _hidden(self, playlist: str, place: str) -> dict[str, str]:
        """Where those are now whose addresses may not be kept."""
        listing = self._listing(place)
        ties = _ties(place, listing)
        found: dict[str, str] = {}
        for entry in listing.entries:
            where = _whole(place, entry.place)
            if where and not _may_be_kept(where):
                found.setdefault(_id(playlist, where, entry, ties), where)
        return found

    def _track(self, playlist: str, place: str, entry: Entry, ties: Ties) -> Track:
        where = _whole(place, entry.place)
        snapshot = {"playlist": playlist}
        if where and _may_be_kept(where):
            snapshot["place"] = where
        elif where:
            snapshot["hidden"] = "yes"
        if entry.cover.startswith(WEB) and lasting(entry.cover):
            snapshot["cover"] = entry.cover
        return Track(
            id=_id(playlist, where, entry, ties),
            title=entry.title,
            artists=entry.artists,
            album=entry.album,
            track_no=entry.track_no,
            disc_no=entry.disc_no,
            year=entry.year,
            duration=entry.duration,
            isrc=entry.isrc,
            snapshot=snapshot,
        )

    def _remote(self, track: Track, place: str, url: str) -> Media:
        """What stands in a file that the operator keeps on this machine, the operator has named."""
        own = not place.startswith(WEB)
        suffix = suffix_of(path_of(url))
        login = target(url).authorization
        cover = str(track.snapshot.get("cover") or "")
        return Media(
            url=without_login(url),
            headers={"Authorization": login} if login else {},
            suffix=suffix,
            lossless=lossless(suffix),
            duration=track.duration,
            trusted=own or self._hosts.trust(url),
            secrets=secrets_of(url),
            cover=Media(url=cover, trusted=own or self._hosts.trust(cover)) if cover else None,
        )

    def _local(self, track: Track, place: str, where: str) -> Media:
        if place.startswith(WEB):
            raise Unusable("A playlist from the web may not name a file of this machine.", code="path_refused")
        folder = Path(place).resolve().parent
        path = Path(_sound(where)).resolve()
        if not any(path.is_relative_to(root) for root in (folder, *self._roots)):
            raise Unusable(
                f'"{track.title}" lies neither under the folder of its playlist nor under FOLDER_ROOTS.',
                code="path_refused",
            )
        if not (_exists(path) and path.is_file()):
            raise Gone(f'The file of "{track.title}" is not there.')
        suffix = suffix_of(path.name)
        return Media(
            path=path, size=path.stat().st_size, suffix=suffix, lossless=lossless(suffix), duration=track.duration
        )


def _matching(pattern: Path) -> list[str]:
    fixed = list(takewhile(lambda part: not PATTERN & set(part), pattern.parts))
    rest = pattern.parts[len(fixed) :]
    return sorted(str(path) for path in Path(*fixed).glob(str(Path(*rest))) if path.is_file()) if rest else []


def _whole(place: str, entry: str) -> str:
    """Where an entry of the playlist at `place` is: a URL, an absolute path, or empty for what cannot be fetched."""
    if entry.lower().startswith(WEB):
        scheme, colon, rest = entry.partition(":")
        return scheme.lower() + colon + rest
    if place.startswith(WEB):
        whole = "" if not entry or "\\" in entry[:3] else joined(without_login(place), entry)
        return whole if whole.startswith(WEB) else ""
    if entry.lower().startswith("file:"):
        return _of_file_url(entry)
    if not entry:
        return ""
    folder = Path(place).absolute().parent
    written = folder / _sound(entry)
    for path in (written, folder / _sound(entry.replace("\\", "/")), folder / _sound(unquote(entry))):
        if _exists(path):
            return storable(os.path.normpath(path))
    if "://" in entry or ":" in entry.partition("/")[0][2:]:  # smb://…, spotify:track:…
        return ""
    return storable(os.path.normpath(written))


def _of_file_url(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return storable(os.path.normpath(unquote(parts.path))) if parts.netloc in ("", "localhost") else ""


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _may_be_kept(where: str) -> bool:
    return not where.startswith(WEB) or lasting(where)


def _id(playlist: str, where: str, entry: Entry, ties: Ties) -> str:
    """How everybody calls it; or how its own list does; or where it is; or, failing all, the song itself."""
    if entry.known_as:
        return entry.known_as[:200]
    if entry.numbered:
        return f"{hashlib.sha256(playlist.encode()).hexdigest()[:12]}:{entry.numbered[:200]}"
    if where:
        return ties.told(_plain(where), where)
    return "song:" + hashlib.sha256(_song(entry).casefold().encode()).hexdigest()[:32]


def _plain(where: str) -> str:
    plain = named(where if lasting(where) else identifying(without_login(where)))
    return plain if len(plain) <= 300 else hashlib.sha256(plain.encode()).hexdigest()


def _song(entry: Entry) -> str:
    return "\n".join((entry.title, *entry.artists, entry.album))


def _ties(place: str, listing: Listing) -> Ties:
    """Among entries whose addresses lose something when they become ids."""
    numberless = (each for each in listing.entries if each.place and not each.known_as and not each.numbered)
    placed = ((_whole(place, each.place), each) for each in numberless)
    return Ties((_plain(where), where, _song(each)) for where, each in placed if where and not _may_be_kept(where))


def _sound(path: str) -> str:
    return path.replace("\0", "")
