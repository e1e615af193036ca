"""Download: a song's bytes into the library. One item is one song, in two phases: resolve, then download.

`CatalogDownloader` is the work itself, with the names of spec 002; `Download` is the service around it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import sqlalchemy as sa

from dalsegno.catalog import landing, names, space
from dalsegno.catalog.audio import NotAudio
from dalsegno.catalog.companions import write_companions
from dalsegno.catalog.fetch import Broken, Cancelled, Fetched, fetch
from dalsegno.catalog.leftovers import part_key
from dalsegno.catalog.library import (
    Copy,
    Filed,
    Holding,
    confirm_locations,
    file_songs,
    look,
    same_content,
    songs_in,
    songs_sharing,
)
from dalsegno.catalog.part import Part, PartBusy, clear, clear_landed, cover_path, discard, read_receipt
from dalsegno.catalog.passages import is_gibberish, passage
from dalsegno.catalog.presence import LibraryMissing
from dalsegno.catalog.resolve import Candidate, Latencies, Resolution, Resolver
from dalsegno.catalog.schema import song_candidates, songs
from dalsegno.catalog.scope import check_names, parse_scope
from dalsegno.catalog.shelf import Shelf
from dalsegno.catalog.suspects import Suspects
from dalsegno.catalog.trouble import trouble
from dalsegno.catalog.turns import Turns
from dalsegno.catalog.upsert import known_as, track_of
from dalsegno.catalog.watch import Watch
from dalsegno.engine.service import Phase, Service, phased
from dalsegno.model.outcome import Done, Fail, Outcome, PauseJob, Retry, Skip
from dalsegno.model.signal import Signal, is_unreachable
from dalsegno.sources.model import Gone, Media, Source, Unusable

if TYPE_CHECKING:
    from dalsegno.catalog.catalog import Catalog
    from dalsegno.engine.item import Item
    from dalsegno.engine.planner import Plan

logger = logging.getLogger("dalsegno.catalog")

AUDIO: dict[str, Any] = {
    **dict.fromkeys(("format", "codec", "quality", "verified"), ""),
    **dict.fromkeys(("bitrate", "sample_rate", "bits", "channels", "duration", "lossless")),
}
"""What is written down about a file, and what stands there while nothing is known."""
COVER_MAX = 10_000_000
SNAPSHOTS = 64


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
            return passage(watch.permit, verb, sources.get(platform))

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
            return [sources.get(name) for name in wanted]
        configured = sources.names()
        first = [own] if own in configured else []
        others = [sources.get(name) for name in configured if name != own]
        return [*map(sources.get, first), *(each for each in others if each.can("search") and each.can("resolve"))]

    # --- fetching -----------------------------------------------------------------------------

    def adopt(self, found: Holding, root: Path) -> Filed | None:
        """A download that was finished but not written down when its process ended."""
        key = part_key(found.song["id"])
        receipt = read_receipt(root, key)
        if receipt is None:
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
        """From the best candidate; where its bytes are no good, from the next."""
        while True:
            platform, track = resolved.resolution.platform, resolved.resolution.track
            assert platform is not None
            assert track is not None
            watch.say(f"starting download via {platform}")
            try:
                return self._fetch(resolved, watch, platform, track.id)
            except Exception as error:
                if not useless(error):
                    raise
                self._next(resolved, watch, (platform, track.id), error)

    def _next(self, resolved: ResolvedDownload, watch: Watch, tried: tuple[str, str], error: Exception) -> None:
        resolved.rejected[tried] = str(error)
        before = resolved.resolution
        try:
            again = self.resolve(resolved.holding, resolved.snapshot, watch, resolved.rejected)
        except Unresolved:
            raise error from None
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
                landed = landing.land(
                    part,
                    fetched,
                    name=lambda suffix: names.place(_template(resolved.snapshot), fields_of(song), suffix),
                    shelf=self._shelf(root),
                    replace=self._old_place(resolved, root) if watch.forced else None,
                    extra={"found_on": platform, "found_id": remote_id, **({"lyrics": lyrics} if lyrics else {})},
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
    return isinstance(error, Gone | Unusable | NotAudio) or Signal.of(error).status in (401, 403, 404, 410, 451)


def _unreached(error: Broken, media: Media) -> Broken:
    """Not a byte came, because nobody was there."""
    cause = error.__cause__
    if error.code != "connection_lost" or cause is None or is_gibberish(error):
        return error
    host = urlsplit(media.url or "").hostname or "The source"
    return Broken(f"{host} cannot be reached: {cause}", "unreachable")


def _put_beside(root: Path, path: str, lyrics: str | None, cover: bytes | None) -> None:
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


def _template(snapshot: Mapping[str, Any]) -> str:
    return str(snapshot.get("NAME_TEMPLATE") or "{artist}/{album}/{title}")


# --- the service --------------------------------------------------------------------------------


class Download:
    def __init__(self, catalog: Catalog, downloader: CatalogDownloader | None = None) -> None:
        self._catalog = catalog
        self._downloader = downloader or CatalogDownloader(catalog)
        self._suspects = Suspects(catalog.store)
        self._merged: dict[tuple[int, tuple[str, ...]], tuple[Mapping[str, Any], Mapping[str, Any]]] = {}

    def service(self) -> Service:
        phases = [Phase("resolve", self.resolve), Phase("download", self.download, transfers=True)]
        made = phased("download", phases, workers=self._catalog.settings.download_workers)
        made.plan(self.plan)
        return made

    def plan(self, plan: Plan) -> Iterator[str]:
        """One item a song, however many playlists have it."""
        names.check_template(_template(plan.snapshot))
        scope = parse_scope(plan.scope)
        check_names(self._catalog.store, scope, self._catalog.sources(plan.snapshot).names())
        for number in songs_in(self._catalog.store, scope):
            yield f"song:{number}"

    def resolve(self, item: Item) -> Any:
        number = int(item.key.partition(":")[2])
        downloader = self._downloader
        watch = Watch.of(item, lambda seen: self._keep_candidates(item, number, seen))
        found = downloader.look(number)
        if found is None:
            return Fail(f"there is no song {number}", code="not_found")
        root = self._catalog.library(item.snapshot)
        doing = f"finding {display_text(found.song)}"
        try:
            self._catalog.presence.check(root)
            self._catalog.catch_up(root)
            if not item.forced:
                if (here := found.local()) is not None:
                    return self._there(item, found, here, root)
                if (filed := downloader.adopt(found, root)) is not None:
                    item.log.info("%s was finished before, at %s", display_text(found.song), filed.path)
                    return self._done(item, root, filed)
                if found.changed() is not None:
                    return Skip("it was changed since it was downloaded", found.result())
            space.room_for(root, None, int(item.snapshot.get("MIN_FREE_SPACE") or 0))
            return downloader.resolve(found, self._snapshot(item), watch, {})
        except space.DiskFull as error:
            return _full(error)
        except LibraryMissing as error:
            return PauseJob(str(error), code=error.code)
        except Unresolved as error:
            self._keep_candidates(item, number, error.resolution.candidates)
            if error.code == "song_gone":
                self._mark_missing(item, number)
            text = f"{display_text(found.song)}: {error}"
            return Retry(text, code=error.code) if error.retryable else Fail(text, code=error.code)
        except OSError as error:
            return _unwritable(error, root)
        except Exception as error:
            return trouble(error, doing)

    def _snapshot(self, item: Item) -> Mapping[str, Any]:
        """The job's, with the sources it was asked to use: one object for all items of a stage, as the job's own is."""
        wanted = item.stage.options.get("download_sources")
        if not wanted:
            return item.snapshot
        key = (id(item.snapshot), tuple(wanted))
        known = self._merged.get(key)
        if known is None or known[0] is not item.snapshot:
            while len(self._merged) >= SNAPSHOTS:
                self._merged.pop(next(iter(self._merged)), None)
            known = self._merged[key] = (item.snapshot, {**item.snapshot, "DOWNLOAD_SOURCES": list(wanted)})
        return known[1]

    def download(self, item: Item, resolved: ResolvedDownload) -> Any:
        root = resolved.library_root
        doing = f"downloading {resolved.display_text}"
        candidates = resolved.resolution.candidates
        try:
            filed = self._downloader.fetch(resolved, Watch.of(item))
        except space.DiskFull as error:
            return _full(error)
        except LibraryMissing as error:
            return PauseJob(str(error), code=error.code)
        except Cancelled:
            return Fail("stopped on request", code="canceled")
        except PartBusy as error:
            return Retry(str(error), code=error.code)
        except (NotAudio, space.TooLargeForDisk) as error:
            return self._no_good(item, resolved, error, Fail(f"{doing}: {error}", code=error.code))
        except OSError as error:
            if error.errno is None or is_unreachable(error):
                return self._no_good(item, resolved, error, trouble(error, doing))
            return _unwritable(error, root)
        except Exception as error:
            if isinstance(error, Gone) and resolved.is_own:
                return self._no_good(item, resolved, error, self._gone(item, resolved, error))
            return self._no_good(item, resolved, error, trouble(error, doing))
        if len(resolved.resolution.candidates) > 1 or resolved.resolution.candidates != candidates:
            self._keep_candidates(item, resolved.song_id, resolved.resolution.candidates)
        return self._done(item, root, filed)

    def _gone(self, item: Item, resolved: ResolvedDownload, error: Gone) -> Fail:
        """Some sources learn only from the transfer that a song is not there any more."""
        self._mark_missing(item, resolved.song_id)
        platform = resolved.holding.song["platform"]
        text = f"{resolved.display_text}: The song is gone from {platform}, and no other source has it. {error}"
        return Fail(text, code="song_gone")

    def _mark_missing(self, item: Item, song_id: int) -> None:
        now = self._catalog.store.clock.now()
        item.note(lambda conn: _mark_missing(conn, song_id, now))

    def _no_good(self, item: Item, resolved: ResolvedDownload, error: Exception, outcome: Outcome) -> Outcome:
        reason = str(error) or type(error).__name__
        kept = [replace(each, verdict="rejected", reason=reason) if each.verdict == "chosen" else each
                for each in resolved.resolution.candidates]  # fmt: skip
        self._keep_candidates(item, resolved.song_id, kept)
        return outcome

    def _there(self, item: Item, found: Holding, here: Copy, root: Path) -> Skip:
        """Where a download of it failed and nothing answered that, a closer look does."""
        if item in self._suspects and here.is_whole(found.sha256):
            item.record(confirm_locations, (here.backend_id, here.path, self._catalog.store.clock.now()))
        item.afterwards(lambda: self._catalog.exporter.nudge(found.song["id"], root))
        return Skip("it is in the library already", found.result())

    def _done(self, item: Item, root: Path, filed: Filed) -> Done:
        item.record(file_songs, filed)
        item.afterwards(lambda: self._downloader.settled(root, filed))
        item.afterwards(lambda: self._catalog.exporter.nudge(filed.song_id, root))
        return Done({"song": filed.song_id, "sha256": filed.sha256, "size": filed.size})

    def _keep_candidates(self, item: Item, song_id: int, candidates: Any) -> None:
        now, attempt = self._catalog.store.clock.now(), item.attempt
        rows = [_candidate_row(each, position, song_id, item.id, attempt, now)
                for position, each in enumerate(candidates)]  # fmt: skip
        if rows:
            item.note(lambda conn: _insert_candidates(conn, rows))


def _candidate_row(
    each: Candidate, position: int, song_id: int, item_id: int, attempt: int, now: datetime
) -> dict[str, Any]:
    track = each.track
    return {
        "song_id": song_id,
        "item_id": item_id,
        "attempt": attempt,
        "position": position,
        "platform": each.platform,
        "remote_id": None if track is None else track.id,
        "title": "" if track is None else track.title,
        "artist": "" if track is None else ", ".join(track.artists),
        "duration": None if track is None else track.duration,
        "score": each.score,
        "verdict": each.verdict,
        "reason": each.reason[:1000],
        "seconds": each.seconds,
        "at": now,
    }


def _insert_candidates(conn: sa.Connection, rows: list[dict[str, Any]]) -> None:
    conn.execute(sa.insert(song_candidates), rows)


def _mark_missing(conn: sa.Connection, song_id: int, now: datetime) -> None:
    conn.execute(sa.update(songs).where(songs.c.id == song_id, songs.c.missing_at.is_(None)).values(missing_at=now))


def _full(error: space.DiskFull) -> Outcome:
    return PauseJob(f"{error} Make room there, or resume with another LIBRARY_ROOT.", code=error.code)


def _unwritable(error: OSError, root: Path) -> Outcome:
    """A library we may not write to does not get better song by song: an operator must see to it."""
    return PauseJob(f"the library at {root} cannot be written: {error.strerror or error}", code="library_unwritable")
