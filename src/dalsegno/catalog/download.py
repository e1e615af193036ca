"""Download: a song's bytes into the library. One item is one song, in two phases: resolve, then download."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from dalsegno.catalog import space
from dalsegno.catalog.ahead import Ahead
from dalsegno.catalog.audio import NotAudio
from dalsegno.catalog.candidates import Candidate
from dalsegno.catalog.downloader import CatalogDownloader, ResolvedDownload, Unresolved, display_text, name_template
from dalsegno.catalog.fetch import Cancelled
from dalsegno.catalog.library import (
    Copy,
    Filed,
    Holding,
    confirm_locations,
    file_songs,
    songs_in,
)
from dalsegno.catalog.part import PartBusy
from dalsegno.catalog.presence import LibraryMissing
from dalsegno.catalog.schema import song_candidates, songs
from dalsegno.catalog.scope import check_names, parse_scope
from dalsegno.catalog.suspects import Suspects
from dalsegno.catalog.trouble import trouble
from dalsegno.catalog.watch import Watch
from dalsegno.engine.service import Phase, Service, phased
from dalsegno.model.naming import check_template
from dalsegno.model.outcome import Done, Fail, Outcome, PauseJob, Release, Retry, Skip
from dalsegno.model.signal import is_unreachable
from dalsegno.sources.model import Gone

if TYPE_CHECKING:
    from dalsegno.catalog.catalog import Catalog
    from dalsegno.engine.item import Item
    from dalsegno.engine.planner import Plan

logger = logging.getLogger("dalsegno.catalog")

SNAPSHOTS = 64


class Download:
    def __init__(self, catalog: Catalog, downloader: CatalogDownloader | None = None) -> None:
        self._catalog = catalog
        self._downloader = downloader or CatalogDownloader(catalog)
        self._suspects = Suspects(catalog.store)
        self._ahead = Ahead(catalog.store)
        self._merged: dict[tuple[int, tuple[str, ...]], tuple[Mapping[str, Any], Mapping[str, Any]]] = {}

    def service(self) -> Service:
        phases = [Phase("resolve", self.resolve), Phase("download", self.download, transfers=True)]
        made = phased("download", phases, workers=self._catalog.settings.download_workers)
        made.plan(self.plan)
        return made

    def plan(self, plan: Plan) -> Iterator[str]:
        """One item a song, however many playlists have it."""
        check_template(name_template(plan.snapshot))
        scope = parse_scope(plan.scope)
        check_names(self._catalog.store, scope, self._catalog.sources(plan.snapshot).names())
        for number in songs_in(self._catalog.store, scope):
            yield f"song:{number}"

    def resolve(self, item: Item) -> Any:
        number = int(item.key.partition(":")[2])
        downloader = self._downloader
        watch = Watch.of(item, lambda seen: self._keep_candidates(item, number, seen))
        found = self._ahead.look(item, number)
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
            self._catalog.keep_absent(item, found)
            space.room_for(root, None, int(item.snapshot.get("MIN_FREE_SPACE") or 0))
            return downloader.resolve(found, self._snapshot(item), watch, {})
        except space.DiskFull as error:
            return _full(error)
        except LibraryMissing as error:
            return PauseJob(str(error), code=error.code)
        except Unresolved as error:
            if error.code == "canceled":
                return Release("stopped on request")
            self._keep_candidates(item, number, error.resolution.candidates)
            if error.code == "song_gone":
                self._mark_missing(item, number)
            text = f"{display_text(found.song)}: {error}"
            return Retry(text, code=error.code) if error.retryable else Fail(text, code=error.code)
        except OSError as error:
            return _unwritable(error, root, item)
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
            return Release("stopped on request")
        except PartBusy as error:
            return Retry(str(error), code=error.code)
        except (NotAudio, space.TooLargeForDisk) as error:
            return self._no_good(item, resolved, error, Fail(f"{doing}: {error}", code=error.code))
        except OSError as error:
            if error.errno is None or is_unreachable(error):
                return self._no_good(item, resolved, error, trouble(error, doing))
            return _unwritable(error, root, item)
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
        if here.lost or (item in self._suspects and here.is_whole(found.sha256)):
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


def _unwritable(error: OSError, root: Path, item: Item) -> Outcome:
    """A library we may not write to does not get better song by song: an operator must see to it."""
    if error.errno in space.FULL:
        return _full(space.DiskFull(root, None, space.free(root), int(item.snapshot.get("MIN_FREE_SPACE") or 0)))
    return PauseJob(f"the library at {root} cannot be written: {error.strerror or error}", code="library_unwritable")
