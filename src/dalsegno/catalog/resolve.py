"""Where can this song be fetched now? Sources are asked in rank order; what each said is kept.

An error moves on at once. The next source is asked early only while the current one is slower than it usually is (its
own p95), and only as often as an allowance of a few percent permits: asking everybody at once is how one gets banned.
As long as nothing is known of a source's pace, or nobody could be asked instead, all happens in the caller's thread.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from queue import SimpleQueue

from dalsegno.catalog.candidates import Candidate, Failure, Resolution
from dalsegno.catalog.hedging import SOONEST, Latencies, Pace
from dalsegno.catalog.inquiry import Inquiry, Permit, Quest
from dalsegno.engine.flow import MustWait, Troubled
from dalsegno.sources.model import Media, Source, Track

LOOK = 0.25
"""Seconds between two looks at whether the item was cancelled."""


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
        quest = Quest(wanted, permit, cancelled, exclude, self._latencies, self._pace, SimpleQueue())
        inquiries, unable = _inquiries(quest, own, sources)
        running: list[Inquiry] = []
        try:
            winner = self._race(inquiries, running, say, cancelled)
        finally:
            for inquiry in running:
                inquiry.off = True
        if winner is not None:
            say(f"resolved via {winner.name}")
            said: list[Candidate] = []
            for inquiry in inquiries:
                beaten = inquiry in running and inquiry is not winner
                said += inquiry.lost_to(winner.name) if beaten else inquiry.candidates
            said.sort(key=lambda each: each.verdict != "chosen")
            return Resolution(winner.media, winner.name, winner.track, (*said, *unable))
        candidates = (*(each for inquiry in inquiries for each in inquiry.candidates), *unable)
        if cancelled():
            return Resolution(None, None, None, candidates, Failure("canceled", "It was canceled.", retryable=True))
        for inquiry in inquiries:
            if inquiry.trouble is not None:
                if on_wait is not None:
                    on_wait(candidates)
                raise inquiry.trouble
        return Resolution(None, None, None, candidates, _failure(own, inquiries, sources))

    def _race(
        self,
        inquiries: list[Inquiry],
        running: list[Inquiry],
        say: Callable[[str], None],
        cancelled: Callable[[], bool],
    ) -> Inquiry | None:
        waiting = deque(inquiries)
        place = {
            inquiry: f"resolving source {inquiry.name} ({n}/{len(inquiries)})" for n, inquiry in enumerate(inquiries, 1)
        }
        while (waiting or running) and not cancelled():
            if not running:
                inquiry = waiting.popleft()
                say(place[inquiry])
                running.append(inquiry)
                self._latencies.asked()
                # A helper only where someone could be asked instead, and it can be told when.
                if not (waiting and self._latencies.p95(inquiry.pace_of) is not None and self._pace.start(inquiry.run)):
                    inquiry.run()
            elif waiting and len(running) == 1 and self._left(running[0]) <= 0 and self._hedge(waiting[0]):
                say(place[waiting[0]])
                running.append(waiting.popleft())
            if not any(inquiry.done for inquiry in running):
                left = self._left(running[0]) if waiting and len(running) == 1 else LOOK
                self._pace.wait(running[0].quest.inbox, min(LOOK, max(left, 0.001)) if left > 0 else LOOK)
            finished = [inquiry for inquiry in running if inquiry.done]
            answers = [inquiry for inquiry in finished if inquiry.media is not None]
            if answers:
                return max(answers, key=lambda inquiry: _media_quality(inquiry.media))
            for inquiry in finished:
                running.remove(inquiry)
                if inquiry.trouble is not None and not isinstance(inquiry.trouble, MustWait | Troubled):
                    raise inquiry.trouble
        return None

    def _hedge(self, inquiry: Inquiry) -> bool:
        return self._latencies.hedge(lambda: self._pace.start(inquiry.run))

    def _left(self, inquiry: Inquiry) -> float:
        """Seconds until it is slower than usual; endless where that cannot be said."""
        usual = self._latencies.p95(inquiry.pace_of)
        return math.inf if usual is None else max(usual, SOONEST) - inquiry.elapsed()


def _inquiries(quest: Quest, own: str, sources: Sequence[Source]) -> tuple[list[Inquiry], list[Candidate]]:
    inquiries: list[Inquiry] = []
    unable: list[Candidate] = []
    for source in sources:
        if not source.can("resolve"):
            unable.append(Candidate(source.name, None, None, "rejected", "cannot fetch songs", 0.0))
        elif source.name == own or source.can("search"):
            inquiries.append(Inquiry(quest, source, source.name == own))
        else:
            unable.append(Candidate(source.name, None, None, "rejected", "cannot search, and it is not its song", 0.0))
    return inquiries, unable


def _media_quality(media: Media | None) -> tuple[bool, int]:
    return (False, 0) if media is None else (bool(media.lossless), media.bitrate or 0)


def _failure(own: str, inquiries: list[Inquiry], sources: Sequence[Source]) -> Failure:
    said = "; ".join(f"{inquiry.name}: {inquiry.candidates[-1].reason}" for inquiry in inquiries if inquiry.candidates)
    ends = {end for inquiry in inquiries for end in inquiry.ends}
    ours = next((inquiry for inquiry in inquiries if inquiry.own), None)
    if not inquiries or ends <= {"not_offered"}:
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
