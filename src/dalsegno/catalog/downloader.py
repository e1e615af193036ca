"""The downloader: finds a song's bytes and puts them into the library, whole and verified, or not at all.

Its names are those of spec 002: `resolve_song_row`, `download_resolved_song`, and `download_song_row` for both.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dalsegno.catalog import landing, names, space
from dalsegno.catalog.audio import NotAudio
from dalsegno.catalog.candidates import Resolution
from dalsegno.catalog.chain import chain, spoken
from dalsegno.catalog.companions import write_companions
from dalsegno.catalog.fetch import Broken, Cancelled, Fetched, fetch
from dalsegno.catalog.hedging import Latencies
from dalsegno.catalog.leftovers import part_key
from dalsegno.catalog.library import (
    Copy,
    Filed,
    Holding,
    file_songs,
    look,
    same_content,
    songs_sharing,
)
from dalsegno.catalog.part import Part, clear, clear_landed, cover_path, discard, read_receipt
from dalsegno.catalog.passages import is_gibberish, passage
from dalsegno.catalog.resolve import Resolver
from dalsegno.catalog.shelf import Shelf
from dalsegno.catalog.trouble import FINAL
from dalsegno.catalog.turns import Turns
from dalsegno.catalog.upsert import known_as, track_of
from dalsegno.catalog.watch import Watch
from dalsegno.engine.flow import MustWait, Troubled
from dalsegno.model.signal import Signal
from dalsegno.sources.model import Gone, Media, Source, Unusable

if TYPE_CHECKING:
    from dalsegno.catalog.catalog import Catalog

logger = logging.getLogger("dalsegno.catalog")

AUDIO: dict[str, Any] = {
    **dict.fromkeys(("format", "codec", "quality", "verified"), ""),
    **dict.fromkeys(("bitrate", "sample_rate", "bits", "channels", "duration", "lossless")),
}
"""What is written down about a file, and what stands there while nothing is known."""
COVER_MAX = 10_000_000
USELESS = FINAL | {404, 410}
"""Answers after which nothing will come of a candidate."""


@dataclass(slots=True)
class ResolvedDownload:
    """A song that can be fetched now. In memory only: what was found is out of date tomorrow."""

    holding: Holding
    snapshot: Mapping[str, Any]
    library_root: Path
    resolution: Resolution
    display_text: str
    rejected: dict[tuple[str, str], str] = field(default_factory=dict)
    """Candidates whose bytes turned out to be no good, and why."""

    @property
    def media(self) -> Media:
        assert self.resolution.media is not None
        return self.resolution.media

    @property
    def song_id(self) -> int:
        return int(self.holding.song["id"])

    @property
    def is_own(self) -> bool:
        """From the source that listed it, not the same song from elsewhere."""
        song, track = self.holding.song, self.resolution.track
        found = None if track is None else known_as(track.id)
        return (self.resolution.platform, found) == (song["platform"], song["remote_id"])


class Unresolved(Exception):
    """Nowhere to fetch this song from."""

    def __init__(self, resolution: Resolution) -> None:
        assert resolution.failure is not None
        super().__init__(resolution.failure.message)
        self.resolution = resolution
        self.code = resolution.failure.code
        self.retryable = resolution.failure.retryable


class CatalogDownloader:
    """Finds a song's bytes and puts them into the library: whole and verified, or not at all."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._resolver = Resolver(Latencies())
        self._turns = Turns()
        self._lock = threading.Lock()
        self._shelves: dict[Path, Shelf] = {}

    # --- the names of spec 002 ----------------------------------------------------------------

    def resolve_song_row(
        self,
        row: Mapping[str, Any],
        *,
        snapshot: Mapping[str, Any] | None = None,
        watch: Watch | None = None,
        rejected: Mapping[tuple[str, str], str] | None = None,
    ) -> ResolvedDownload | None:
        """Where a song (a row of `songs`) can be fetched now. None: it is in the library already.

        Raises Unresolved when no source has it, with every candidate and why it was not taken.
        """
        snapshot, watch = snapshot or self._catalog.settings.snapshot(), watch or Watch()
        found = self.look(int(row["id"]))
        if found is None:
            raise LookupError(f"there is no song {row['id']}")
        if not watch.forced and (found.local() or found.changed()) is not None:
            return None
        return self.resolve(found, snapshot, watch, dict(rejected or {}))

    def download_resolved_song(self, resolved: ResolvedDownload, *, watch: Watch | None = None) -> bool:
        """Fetch, verify, put in place and write down. True: the song is in the library now."""
        filed = self.fetch(resolved, watch or Watch())
        self._catalog.store.write("download", lambda tx: file_songs(tx.conn, [filed]))
        self.settled(resolved.library_root, filed)
        return True

    def download_song_row(
        self, row: Mapping[str, Any], *, snapshot: Mapping[str, Any] | None = None, watch: Watch | None = None
    ) -> bool:
        """Both, one after the other. False: nothing was left to do."""
        resolved = self.resolve_song_row(row, snapshot=snapshot, watch=watch)
        return resolved is not None and self.download_resolved_song(resolved, watch=watch)

    # --- resolving ----------------------------------------------------------------------------

    def look(self, song_id: int) -> Holding | None:
        return look(self._catalog.store, song_id)

    def resolve(
        self, found: Holding, snapshot: Mapping[str, Any], watch: Watch, rejected: dict[tuple[str, str], str]
    ) -> ResolvedDownload:
        song, sources = found.song, self._catalog.sources(snapshot)

        def permit(name: str) -> AbstractContextManager[None, None]:
            verb, _, platform = name.partition(":")
            return passage(watch.permit, verb, sources.at_hand(platform))

        resolution = self._resolver.resolve(
            track_of(song),
            song["platform"],
            self._order(song["platform"], snapshot),
            permit=permit,
            say=watch.say,
            cancelled=watch.cancelled,
            exclude=rejected,
            on_wait=watch.considered,
        )
        if resolution.media is None:
            raise Unresolved(resolution)
        return ResolvedDownload(
            found, snapshot, self._catalog.library(snapshot), resolution, display_text(song), rejected
        )

    def _order(self, own: str, snapshot: Mapping[str, Any]) -> list[Source]:
        """DOWNLOAD_SOURCES in its order; unless set, the song's own source and then those that can search."""
        sources = self._catalog.sources(snapshot)
        wanted = list(snapshot.get("DOWNLOAD_SOURCES") or ())
        if wanted:
            return [sources.at_hand(name) for name in wanted]
        configured = sources.names()
        first = [own] if own in configured else []
        others = [sources.at_hand(name) for name in configured if name != own]
        return [*map(sources.at_hand, first), *(each for each in others if each.can("search") and each.can("resolve"))]

    # --- fetching -----------------------------------------------------------------------------

    def adopt(self, found: Holding, root: Path) -> Filed | None:
        """A download that was finished but not written down when its process ended: here, or in a library that the job
        left meanwhile, because its disk was full."""
        filed = self._adopt(found, root)
        for other in self._catalog.others(root) if filed is None else ():
            with suppress(OSError):  # what cannot be brought to its end there is fetched again
                if (filed := self._adopt(found, other)) is not None:
                    break
        return filed

    def _adopt(self, found: Holding, root: Path) -> Filed | None:
        key = part_key(found.song["id"])
        receipt = read_receipt(root, key)
        if receipt is None:
            return None
        if receipt.extra.get("song", known := _known_as(found.song)) != known:
            discard(root, key)  # a song of another database had this number
            return None
        with self._turns.alone_with(receipt.sha256):
            lyrics, cover = receipt.extra.get("lyrics"), _read_cover(root, key)
            twin = None if receipt.replace or landing.in_place(root, receipt) else self._twin(receipt.sha256)
            if twin is not None:
                discard(root, key)
                home, place = Path(twin.root), (twin.backend_id, twin.path)
            else:
                receipt = landing.adopt(root, key)
                if receipt is None:
                    return None
                home, place = root, self._catalog.land(root, receipt.path, receipt.sha256, receipt.size)
        _put_beside(home, place[1], lyrics, cover)
        return Filed(
            found.song["id"],
            *place,
            receipt.sha256,
            receipt.size,
            described(receipt.audio),
            str(receipt.extra.get("found_on", "")),
            str(receipt.extra.get("found_id", "")),
            self._catalog.store.clock.now(),
        )

    def fetch(self, resolved: ResolvedDownload, watch: Watch) -> Filed:
        """From the best candidate; where its bytes are no good, or came in no attempt, from the next."""
        while True:
            platform, track = resolved.resolution.platform, resolved.resolution.track
            assert platform is not None
            assert track is not None
            asked = chain(resolved.resolution.candidates)
            watch.starting(f"{platform}: {spoken(asked)}" if len(asked) > 1 else platform)
            try:
                return self._fetch(resolved, watch, platform, track.id)
            except Exception as error:
                if not (useless(error) or (watch.last() and _may_pass(error))):
                    raise
                self._next(resolved, watch, (platform, track.id), error)

    def _next(self, resolved: ResolvedDownload, watch: Watch, tried: tuple[str, str], error: Exception) -> None:
        resolved.rejected[tried] = str(error)
        before = resolved.resolution
        try:
            again = self.resolve(resolved.holding, resolved.snapshot, watch, resolved.rejected)
        except Unresolved as nowhere:
            raise (Cancelled() if nowhere.code == "canceled" else error) from None
        except (MustWait, Troubled):
            if useless(error):
                raise
            raise error from None  # it had its attempts: it does not wait for others as well
        kept = tuple(replace(each, verdict="rejected", reason=str(error)) if each.verdict == "chosen" else each
                     for each in before.candidates)  # fmt: skip
        resolved.resolution = replace(again.resolution, candidates=(*kept, *again.resolution.candidates))

    def _fetch(self, resolved: ResolvedDownload, watch: Watch, platform: str, remote_id: str) -> Filed:
        root = resolved.library_root
        values = self._catalog.values(resolved.snapshot)
        keep_free = int(values.get("MIN_FREE_SPACE") or 0)
        space.room_for(root, None, keep_free)  # for the song itself it is asked once its part is known
        self._catalog.backend("library", str(root))  # so that what is left here is found, wherever the song ends up
        with space.watched(root, None, keep_free):
            self._catalog.presence.mark(root)
        key = part_key(resolved.song_id)
        with Part.open(root, key, source=platform, remote_id=remote_id) as part:
            try:
                fetched = self._transfer(resolved, watch, part, platform, values, keep_free)
                return self._land(resolved, watch, part, fetched, platform, remote_id)
            except Exception as error:
                if useless(error):
                    part.discard()
                raise

    def _transfer(
        self, resolved: ResolvedDownload, watch: Watch, part: Part, platform: str, values: Mapping[str, Any], keep: int
    ) -> Fetched:
        """Under the permit of its platform's transfers. One that broke off in the middle is the song's own trouble:
        somebody was there."""
        broken: Broken | None = None
        source = self._catalog.sources(resolved.snapshot).get(platform)
        with passage(watch.permit, "transfer", source, resolved.media.url):
            try:
                return fetch(
                    self._catalog.http,
                    resolved.media,
                    part,
                    moved=watch.moved,
                    cancelled=watch.cancelled,
                    stall=float(values.get("STALL_TIMEOUT_SEC") or 30.0),
                    keep_free=keep,
                    refresh=lambda: self._refresh(resolved, watch),
                )
            except Broken as error:
                broken = error if part.size else _unreached(error, resolved.media)
                if not part.size:
                    raise broken from error.__cause__
        raise broken

    def _refresh(self, resolved: ResolvedDownload, watch: Watch) -> Media:
        """The same track's address anew: links expire."""
        platform, track = resolved.resolution.platform, resolved.resolution.track
        assert platform is not None
        assert track is not None
        source = self._catalog.sources(resolved.snapshot).get(platform)
        with passage(watch.permit, "source", source):
            return source.resolve(track)

    def _land(
        self, resolved: ResolvedDownload, watch: Watch, part: Part, fetched: Fetched, platform: str, remote_id: str
    ) -> Filed:
        root, song = resolved.library_root, resolved.holding.song
        audio: Mapping[str, Any] = {}
        lyrics, cover = self._companions(resolved)
        if cover:
            with suppress(OSError):  # on a full disk the song itself says so
                cover_path(root, part.key).write_bytes(cover)
        # Two songs with the same bytes land one after the other, so that the second finds the first.
        with self._turns.alone_with(fetched.sha256):
            twin = None if watch.forced else self._twin(fetched.sha256)
            if twin is not None:
                part.discard()
                home, place = Path(twin.root), (twin.backend_id, twin.path)
            else:
                own = _already_in(root, resolved.media.path)
                landed = landing.land(
                    part,
                    fetched,
                    name=lambda suffix: names.place(name_template(resolved.snapshot), fields_of(song), suffix),
                    shelf=self._shelf(root),
                    replace=self._old_place(resolved, root) if watch.forced and own is None else None,
                    twin=lambda _: own,
                    extra={
                        "song": _known_as(song),
                        "found_on": platform,
                        "found_id": remote_id,
                        "cover": bool(cover),
                        "lyrics": lyrics,
                    },
                )
                audio = landed.audio.as_dict()
                home, place = root, self._catalog.land(root, str(landed.path), fetched.sha256, fetched.size)
        _put_beside(home, place[1], lyrics, cover)
        return Filed(song["id"], *place, fetched.sha256, fetched.size, described(audio), platform, remote_id,
                     self._catalog.store.clock.now())  # fmt: skip

    def _shelf(self, root: Path) -> Shelf:
        with self._lock:
            if root not in self._shelves:
                self._shelves[root] = Shelf(root)
            return self._shelves[root]

    def _twin(self, sha256: str) -> Copy | None:
        """The same bytes in the library already, for another song: linked, not stored twice."""
        landed = self._catalog.landed.get(sha256)
        copies = [landed] if landed is not None else same_content(self._catalog.store, sha256)
        return next((copy for copy in copies if copy.is_there()), None)

    def _old_place(self, resolved: ResolvedDownload, root: Path) -> PurePosixPath | None:
        """Where a forced download may take the old file's place: not where another song has that file too."""
        old = resolved.holding.local()
        if old is None or Path(old.root) != root:
            return None
        shared = self._catalog.store.read(lambda tx: songs_sharing(tx, resolved.song_id))
        return None if shared else PurePosixPath(old.path)

    def _companions(self, resolved: ResolvedDownload) -> tuple[str | None, bytes | None]:
        """Lyrics and cover, where the source has them."""
        media = resolved.media
        try:
            return media.lyrics, self._cover(media.cover)
        except Exception as error:  # the song is what counts
            logger.warning("cover of %s: %s", resolved.display_text, error)
            return media.lyrics, None

    def _cover(self, cover: Media | None) -> bytes | None:
        if cover is None:
            return None
        if cover.path is not None:
            return cover.path.read_bytes() if cover.path.stat().st_size <= COVER_MAX else None
        assert cover.url is not None
        return self._catalog.http.get(cover.url, limit=COVER_MAX, headers=cover.headers, trusted=cover.trusted).body

    def settled(self, root: Path, filed: Filed) -> None:
        """It is written down: nothing else needs to remember it."""
        self._catalog.landed.pop(filed.sha256, None)
        key = part_key(filed.song_id)
        with suppress(OSError):
            clear_landed(root, key)
        for place in self._catalog.library_roots() - {root}:
            with suppress(OSError):
                clear(place, key)


def useless(error: Exception) -> bool:
    """Nothing will ever come of this candidate; another may do."""
    return isinstance(error, Gone | Unusable | NotAudio) or Signal.of(error).status in USELESS


def _may_pass(error: Exception) -> bool:
    """Another attempt may do better; where there is none, another candidate. One that asks us to wait is waited for."""
    status = Signal.of(error).status
    return isinstance(error, Broken) if status is None else status >= 400 and status != 429


def _unreached(error: Broken, media: Media) -> Broken:
    """Not a byte came, because nobody was there."""
    cause = error.__cause__
    if error.code != "connection_lost" or cause is None or is_gibberish(error):
        return error
    host = urlsplit(media.url or "").hostname or "The source"
    return Broken(f"{host} cannot be reached: {cause}", "unreachable")


def _known_as(song: Mapping[str, Any]) -> str:
    """What a song is called whatever its number."""
    return f"{song['platform']}:{song['remote_id']}"


def _already_in(root: Path, file: Path | None) -> PurePosixPath | None:
    """The place in the library of a source's own file, where a folder is both: it is not stored a second time."""
    if file is None:
        return None
    try:
        place = PurePosixPath(file.resolve().relative_to(root.resolve()))
        str(place).encode()
    except (OSError, ValueError):
        return None
    return None if place.parts[0].startswith(".") else place


def _put_beside(root: Path, path: str, lyrics: str | None, cover: bytes | None) -> None:
    if not (lyrics or cover):
        return
    try:
        write_companions(root, PurePosixPath(path), lyrics=lyrics, cover=cover)
    except Exception as error:  # the song is what counts
        logger.warning("lyrics or cover of %s: %s", path, error)


def _read_cover(root: Path, key: str) -> bytes | None:
    try:
        return cover_path(root, key).read_bytes()
    except OSError:
        return None


def described(audio: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of `file_assets` that say what a file is."""
    return {name: audio.get(name, blank) for name, blank in AUDIO.items()}


def display_text(song: Mapping[str, Any]) -> str:
    return f"{song['artist']} - {song['title']}" if song["artist"] else str(song["title"])


def fields_of(song: Mapping[str, Any]) -> dict[str, object]:
    """What a name template may speak of."""
    first = next(iter((song["snapshot"] or {}).get("artists", ())), song["artist"])
    return {"artist": song["artist"], "albumartist": first, "album": song["album"], "title": song["title"],
            "track": song["track_no"], "disc": song["disc_no"], "year": song["year"],
            "platform": song["platform"], "id": song["id"]}  # fmt: skip


def name_template(snapshot: Mapping[str, Any]) -> str:
    return str(snapshot.get("NAME_TEMPLATE") or "{artist}/{album}/{title}")
