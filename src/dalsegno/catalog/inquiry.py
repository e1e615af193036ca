"""One source asked for one song: its own track, or the best that it finds."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import islice
from queue import SimpleQueue
from typing import Any, TypeVar

from dalsegno.catalog.candidates import Candidate, End
from dalsegno.catalog.hedging import Latencies, Pace
from dalsegno.catalog.matching import clock, off_by, score
from dalsegno.engine.flow import MustWait, Troubled
from dalsegno.model.signal import ProviderError, Signal, is_unreachable
from dalsegno.sources.model import Gone, Media, NotOffered, Source, Track, Unusable

logger = logging.getLogger("dalsegno.catalog")
T = TypeVar("T")

Permit = Callable[[str], AbstractContextManager[Any, None]]

FOUND_MAX = 10
TRIES_MAX = 3


class _Off(BaseException):
    """Nobody wants the answer any more. Not an Exception: it says nothing about the source to its breaker."""


@dataclass(frozen=True, slots=True)
class Quest:
    """What all inquiries of one resolve share."""

    wanted: Track
    permit: Permit
    cancelled: Callable[[], bool]
    exclude: Collection[tuple[str, str]]
    latencies: Latencies
    pace: Pace
    inbox: SimpleQueue[None]

    def excluded(self, platform: str, track: Track) -> str | None:
        if (platform, track.id) not in self.exclude:
            return None
        why = self.exclude.get((platform, track.id)) if isinstance(self.exclude, Mapping) else None
        return str(why or "tried before, and its transfer failed")


class Inquiry:
    """One source's part: its own track, or the best it finds. Run by one thread, watched by another."""

    def __init__(self, quest: Quest, source: Source, own: bool) -> None:
        self.quest = quest
        self.source = source
        self.own = own
        self.pace_of = f"{source.name}/{'own' if own else 'search'}"
        self.candidates: list[Candidate] = []
        self.ends: list[End] = []
        self.code = ""
        """Of an answer of its own track that was unusable."""
        self.media: Media | None = None
        self.track: Track | None = None
        self.trouble: BaseException | None = None
        self.done = False
        self.off = False
        self.spent = 0.0
        """Seconds in calls that have ended; waiting for permits is not the source's fault."""
        self.since: float | None = None
        self._last = 0.0
        self._called = False

    @property
    def name(self) -> str:
        return self.source.name

    def elapsed(self) -> float:
        since = self.since
        return self.spent + (0.0 if since is None else self.quest.pace.now() - since)

    def run(self) -> None:
        try:
            self._work()
        except (MustWait, Troubled) as error:
            self.trouble = error
            self._reject(error.reason)
        except _Off:
            pass
        except BaseException as error:
            self.trouble = error
        finally:
            if self._called:
                # Also of those that lost: if only quick answers counted, ever quicker ones would seem slow.
                self.quest.latencies.add(self.pace_of, self.spent)
            self.done = True
            self.quest.inbox.put(None)

    def _work(self) -> None:
        wanted = self.quest.wanted
        if self.own:
            why = self.quest.excluded(self.name, wanted)
            if why is not None:
                self._reject(why, wanted, end="excluded", seconds=0.0)
            elif self._try(wanted, 1.0, "its own source") not in ("gone", "unusable"):
                return
            if not self.source.can("search"):
                return
        self._search()

    def _search(self) -> None:
        wanted = self.quest.wanted
        try:
            found = self._call(lambda: list(islice(self.source.search(wanted), FOUND_MAX)))
        except Exception as error:
            end, why = read(error)
            self._reject(f"search: {why}", end=end)
            return
        usable: list[tuple[float, tuple[bool, int], Track, str]] = []
        for track in found:
            if self.own and track.id == wanted.id:
                continue
            match = score(wanted, track)
            against = self.quest.excluded(self.name, track) or ("" if match.usable else match.reason)
            if against:
                self._reject(against, track, match.score)
            else:
                usable.append((match.score, _quality(track), track, match.reason))
        if not usable:
            self._reject(f"no match among {len(found)} found" if found else "found nothing", end="no_match")
            return
        usable.sort(key=lambda each: (round(each[0], 2), each[1]), reverse=True)
        going = True
        for number, (points, _, track, fits) in enumerate(usable):
            if going and number < TRIES_MAX:
                going = self._try(track, points, fits) in ("gone", "unusable")
            else:
                said = "another was taken" if self.media is not None else "not tried: others failed before it"
                self._reject(said, track, points, seconds=0.0)

    def _try(self, track: Track, points: float, why: str) -> End:
        try:
            media = self._call(lambda: self.source.resolve(track))
        except Exception as error:
            end, said = read(error)
            if track is self.quest.wanted and isinstance(error, Unusable):
                self.code = error.code
            self._reject(said, track, points, end=end)
            return end
        flaw = _flaw(media, self.quest.wanted, own=track is self.quest.wanted)
        if flaw:
            self._reject(flaw, track, points, end="unusable")
            return "unusable"
        self.candidates.append(Candidate(self.name, track, points, "chosen", why, self._last))
        self.media, self.track = media, track
        return "chosen"

    def _call(self, call: Callable[[], T]) -> T:
        with self.quest.permit(f"source:{self.name}"):
            if self.off or self.quest.cancelled():
                raise _Off
            self.since, self._called = self.quest.pace.now(), True
            self.quest.inbox.put(None)
            try:
                return call()
            finally:
                self._last = self.quest.pace.now() - self.since
                self.spent += self._last
                self.since = None

    def _reject(
        self,
        why: str,
        track: Track | None = None,
        points: float | None = None,
        *,
        end: End | None = None,
        seconds: float | None = None,
    ) -> None:
        took = self._last if seconds is None else seconds
        self.candidates.append(Candidate(self.name, track, points, "rejected", why, took))
        if end is not None:
            self.ends.append(end)

    def lost_to(self, winner: str) -> list[Candidate]:
        """What it had to say when another had answered."""
        why = f"hedged away: {winner} answered first"
        complete = self.done  # asked first: it may still be adding to what it says
        said = list(self.candidates)
        if not complete and not any(each.verdict == "chosen" for each in said):
            return [*said, Candidate(self.name, None, None, "rejected", why, self.elapsed())]
        return [replace(each, verdict="rejected", reason=why) if each.verdict == "chosen" else each for each in said]


# --- what an answer means -----------------------------------------------------------------------

_URL = re.compile(r"(https?://)(?:[^\s/@]*@)?([^\s/?#\"']+)[^\s\"')]*")


def read(error: Exception) -> tuple[End, str]:
    """What an error of a source means for the song, and in a few words."""
    text = _URL.sub(r"\1\2/…", str(error)).strip()[:300]
    match error:
        case Gone():
            return "gone", f"gone: {text}" if text else "gone"
        case Unusable():
            return "unusable", text or "an answer nothing can be done with"
        case NotOffered():
            return "not_offered", "not offered"
    status = Signal.of(error).status
    if status is not None:
        said = f"HTTP {status}: {text}" if isinstance(error, ProviderError) and error.message else f"HTTP {status}"
        return "gone" if status in {404, 410} else "forbidden" if status in {401, 403, 451} else "error", said
    if isinstance(error, TimeoutError) or "timeout" in type(error).__name__.lower():
        return "error", f"took too long: {text}" if text else "took too long"
    if is_unreachable(error):
        return "error", f"cannot be reached: {text}" if text else "cannot be reached"
    logger.warning("a source failed", exc_info=error)
    return "error", f"{type(error).__name__}: {text}" if text else type(error).__name__


def _flaw(media: Media, wanted: Track, *, own: bool) -> str:
    """Why this cannot be it; empty where nothing is known against it."""
    if media.url is None and media.path is None:
        return "an answer without an address"
    apart = off_by(wanted.duration, media.duration)
    if apart is None or apart <= 1 or wanted.duration is None or media.duration is None:
        return ""
    said = f"plays {clock(media.duration)}, wanted {clock(wanted.duration)}"
    if media.duration <= 90 and media.duration * 2 < wanted.duration:
        return f"{said}: an excerpt"
    return "" if own else said  # of its own track a source may simply have told a wrong length


def _quality(track: Track) -> tuple[bool, int]:
    """As far as the source notes it with what it finds: `lossless`, `suffix`, `bitrate`."""
    note = track.snapshot
    lossless = bool(note.get("lossless")) or str(note.get("suffix", "")).lstrip(".").lower() in {"flac", "alac", "wav"}
    bitrate = note.get("bitrate")
    return lossless, bitrate if isinstance(bitrate, int) else 0
