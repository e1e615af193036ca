"""Where can this song be fetched now? Sources are asked in rank order; what each said is kept.

An error moves on at once. The next source is asked early only while the current one is slower than it usually is (its
own p95), and only as often as an allowance of a few percent permits: asking everybody at once is how one gets banned.
As long as nothing is known of a source's pace, or nobody could be asked instead, all happens in the caller's thread.
"""

from __future__ import annotations

import contextvars
import logging
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from dalsegno.catalog.matching import clock, off_by, score
from dalsegno.engine.flow import MustWait, Troubled
from dalsegno.model.signal import ProviderError, Signal, is_unreachable
from dalsegno.sources.model import Gone, Media, NotOffered, Source, Track, Unusable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    Permit = Callable[[str], AbstractContextManager[Any, None]]

logger = logging.getLogger("dalsegno.catalog")
T = TypeVar("T")

SAMPLES_MIN = 20
"""Durations known of a source before it can be called slow."""
SAMPLES_KEPT = 200
HEDGES = 0.05
"""Requests that may be made early, as a share of those made anyway."""
HEDGES_SAVED = 5.0
SOONEST = 0.5
"""Seconds every source is given: where milliseconds are usual, a few more are no reason to trouble another."""
HELPERS = 32
"""Threads at most; while all are busy, calls are made in the caller's and nobody is asked early."""
LOOK = 0.25
"""Seconds between two looks at whether the item was cancelled."""
FOUND_MAX = 10
TRIES_MAX = 3

End = Literal["chosen", "gone", "unusable", "excluded", "no_match", "forbidden", "error", "not_offered"]


@dataclass(frozen=True, slots=True)
class Candidate:
    platform: str
    track: Track | None
    score: float | None
    verdict: Literal["chosen", "rejected"]
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Failure:
    code: str
    message: str
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class Resolution:
    media: Media | None
    platform: str | None
    track: Track | None
    candidates: tuple[Candidate, ...]
    """The chosen one first, then in the order of the sources."""
    failure: Failure | None = None


class Latencies:
    """How long each source took lately, and how many early requests that still allows. Shared by all resolvers."""

    def __init__(self, kept: int = SAMPLES_KEPT, share: float = HEDGES) -> None:
        self._kept = kept
        self._share = share
        self._allowance = 1.0
        self._lately: dict[str, deque[float]] = {}
        self._lock = threading.Lock()

    def add(self, name: str, seconds: float) -> None:
        with self._lock:
            self._lately.setdefault(name, deque(maxlen=self._kept)).append(seconds)

    def p95(self, name: str) -> float | None:
        """What one call in twenty takes longer than; None: too little is known."""
        with self._lock:
            lately = sorted(self._lately.get(name, ()))
        if len(lately) < SAMPLES_MIN:
            return None
        # Of n + 1, not n: the next call is one more, and 20 known ones must not make it slow with a chance of 2 in 21.
        return lately[min(math.ceil(0.95 * (len(lately) + 1)), len(lately)) - 1]

    def asked(self) -> None:
        """A request was made that had to be made anyway."""
        with self._lock:
            self._allowance = min(self._allowance + self._share, HEDGES_SAVED)

    def hedge(self, start: Callable[[], bool]) -> bool:
        """Make an early request, if there is one left and it can start."""
        with self._lock:
            if self._allowance < 1.0 or not start():
                return False
            self._allowance -= 1.0
            return True


class Pace:
    """Time and threads, in one place so that tests can do without both."""

    def __init__(self, helpers: int = HELPERS) -> None:
        self._free = threading.BoundedSemaphore(helpers)

    def now(self) -> float:
        return time.monotonic()

    def start(self, call: Callable[[], None]) -> bool:
        """In a thread that sees what the caller's context holds, and that no end of the process waits for."""
        if not self._free.acquire(blocking=False):
            return False
        context = contextvars.copy_context()

        def run() -> None:
            try:
                context.run(call)
            finally:
                self._free.release()

        try:
            threading.Thread(target=run, name="dalsegno-resolve", daemon=True).start()
        except RuntimeError:
            self._free.release()
            return False
        return True

    def wait(self, inbox: SimpleQueue[None], seconds: float) -> None:
        try:
            inbox.get(timeout=seconds)
        except Empty:
            return


class _Off(BaseException):
    """Nobody wants the answer any more. Not an Exception: it says nothing about the source to its breaker."""


@dataclass(frozen=True, slots=True)
class _Quest:
    """What all lanes of one resolve share."""

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


class _Lane:
    """One source's part: its own track, or the best it finds. Run by one thread, watched by another."""

    def __init__(self, quest: _Quest, source: Source, own: bool) -> None:
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


class Resolver:
    def __init__(self, latencies: Latencies, pace: Pace | None = None) -> None:
        self._latencies = latencies
        self._pace = pace or Pace()

    def resolve(
        self,
        wanted: Track,
        own: str,
        sources: Sequence[Source],
        *,
        permit: Permit,
        say: Callable[[str], None],
        cancelled: Callable[[], bool],
        exclude: Collection[tuple[str, str]] = (),
        on_wait: Callable[[tuple[Candidate, ...]], None] | None = None,
    ) -> Resolution:
        """`own` is the platform `wanted` comes from; `sources` stand in rank order.

        `exclude` holds (platform, id) of what proved broken; a mapping may give the reasons. Where no source has the
        song but one could not be asked now, its MustWait or Troubled is raised, after `on_wait` was told the rest.
        """
        quest = _Quest(wanted, permit, cancelled, exclude, self._latencies, self._pace, SimpleQueue())
        lanes, unable = _lanes(quest, own, sources)
        running: list[_Lane] = []
        try:
            winner = self._race(lanes, running, say, cancelled)
        finally:
            for lane in running:
                lane.off = True
        if winner is not None:
            say(f"resolved via {winner.name}")
            said: list[Candidate] = []
            for lane in lanes:
                said += lane.lost_to(winner.name) if lane in running and lane is not winner else lane.candidates
            said.sort(key=lambda each: each.verdict != "chosen")
            return Resolution(winner.media, winner.name, winner.track, (*said, *unable))
        candidates = (*(each for lane in lanes for each in lane.candidates), *unable)
        if cancelled():
            return Resolution(None, None, None, candidates, Failure("canceled", "It was canceled.", retryable=True))
        for lane in lanes:
            if lane.trouble is not None:
                if on_wait is not None:
                    on_wait(candidates)
                raise lane.trouble
        return Resolution(None, None, None, candidates, _failure(own, lanes, sources))

    def _race(
        self, lanes: list[_Lane], running: list[_Lane], say: Callable[[str], None], cancelled: Callable[[], bool]
    ) -> _Lane | None:
        waiting = deque(lanes)
        place = {lane: f"resolving source {lane.name} ({n}/{len(lanes)})" for n, lane in enumerate(lanes, 1)}
        while (waiting or running) and not cancelled():
            if not running:
                lane = waiting.popleft()
                say(place[lane])
                running.append(lane)
                self._latencies.asked()
                # A helper only where someone could be asked instead, and it can be told when.
                if not (waiting and self._latencies.p95(lane.pace_of) is not None and self._pace.start(lane.run)):
                    lane.run()
            elif waiting and len(running) == 1 and self._left(running[0]) <= 0 and self._hedge(waiting[0]):
                say(place[waiting[0]])
                running.append(waiting.popleft())
            if not any(lane.done for lane in running):
                left = self._left(running[0]) if waiting and len(running) == 1 else LOOK
                self._pace.wait(running[0].quest.inbox, min(LOOK, max(left, 0.001)) if left > 0 else LOOK)
            finished = [lane for lane in running if lane.done]
            answers = [lane for lane in finished if lane.media is not None]
            if answers:
                return max(answers, key=lambda lane: _media_quality(lane.media))
            for lane in finished:
                running.remove(lane)
                if lane.trouble is not None and not isinstance(lane.trouble, MustWait | Troubled):
                    raise lane.trouble
        return None

    def _hedge(self, lane: _Lane) -> bool:
        return self._latencies.hedge(lambda: self._pace.start(lane.run))

    def _left(self, lane: _Lane) -> float:
        """Seconds until it is slower than usual; endless where that cannot be said."""
        usual = self._latencies.p95(lane.pace_of)
        return math.inf if usual is None else max(usual, SOONEST) - lane.elapsed()


def _lanes(quest: _Quest, own: str, sources: Sequence[Source]) -> tuple[list[_Lane], list[Candidate]]:
    lanes: list[_Lane] = []
    unable: list[Candidate] = []
    for source in sources:
        if not source.can("resolve"):
            unable.append(Candidate(source.name, None, None, "rejected", "cannot fetch songs", 0.0))
        elif source.name == own or source.can("search"):
            lanes.append(_Lane(quest, source, source.name == own))
        else:
            unable.append(Candidate(source.name, None, None, "rejected", "cannot search, and it is not its song", 0.0))
    return lanes, unable


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


def _media_quality(media: Media | None) -> tuple[bool, int]:
    return (False, 0) if media is None else (bool(media.lossless), media.bitrate or 0)


def _failure(own: str, lanes: list[_Lane], sources: Sequence[Source]) -> Failure:
    said = "; ".join(f"{lane.name}: {lane.candidates[-1].reason}" for lane in lanes if lane.candidates)
    ends = {end for lane in lanes for end in lane.ends}
    ours = next((lane for lane in lanes if lane.own), None)
    if not lanes or ends <= {"not_offered"}:
        names = ", ".join(source.name for source in sources) or "none"
        message = f"No source can fetch a song of {own} (asked: {names}). Name one that can in DOWNLOAD_SOURCES."
        return Failure("no_source", message)
    if "error" in ends:
        return Failure("resolve_failed", f"No source gave an answer that can be used. {said}", retryable=True)
    if "forbidden" in ends:
        return Failure("forbidden", f"The song is not given to us; check the account of the source. {said}")
    if ours is not None and "gone" in ours.ends[:1]:
        return Failure("song_gone", f"The song is gone from {own}, and no other source has it. {said}")
    if ours is not None and ours.code and "no_match" not in ends:
        return Failure(ours.code, f"What {own} gives cannot be used. {said}")
    return Failure("no_match", f"No source has this song. {said}")
