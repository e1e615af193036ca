"""Where can this song be fetched now? Scripted sources, simulated time, one real server and one real engine."""

from __future__ import annotations

import contextvars
import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import sqlalchemy as sa

from dalsegno import Engine, Item, ProviderError, Step, Workflow, open_store, service, submit
from dalsegno.catalog.candidates import Candidate, Resolution
from dalsegno.catalog.hedging import Latencies, Pace
from dalsegno.catalog.inquiry import read
from dalsegno.catalog.resolve import Resolver
from dalsegno.engine.flow import MustWait, Troubled
from dalsegno.sources.demo import Demo
from dalsegno.sources.demo_catalog import Fault
from dalsegno.sources.demo_server import DemoServer
from dalsegno.sources.model import Gone, Media, NotOffered, Source, Track, Unusable
from dalsegno.store.schema import waits
from dalsegno.testing import drain
from tests.helpers import SWIFT, every, items_of, keys, one_step, wait_until

SONG = Track(id="7", title="Harbour Lights", artists=("The Tide",), duration=215.0)
FLAC = Media(url="https://media.test/7.flac", lossless=True)

Answer = Any
"""A media, an exception to raise, or a function of the track."""


class Own(Source):
    """Has its own songs, and no search."""

    def __init__(self, name: str, answer: Answer = FLAC) -> None:
        self.name = name
        self.answer = answer
        self.calls: list[str] = []

    def resolve(self, track: Track) -> Media:
        self.calls.append(f"resolve {track.id}")
        answer = self.answer.get(track.id, FLAC) if isinstance(self.answer, dict) else self.answer
        answer = answer(track) if callable(answer) and not isinstance(answer, type) else answer
        if isinstance(answer, BaseException | type):
            raise answer
        return answer


class Elsewhere(Own):
    """Finds what it is told to find."""

    def __init__(self, name: str, found: Iterable[Track] | Exception = (), answer: Answer = FLAC) -> None:
        super().__init__(name, answer)
        self.found = found

    def search(self, track: Track) -> Iterator[Track]:
        self.calls.append("search")
        if isinstance(self.found, Exception):
            raise self.found
        yield from self.found


class Listing(Source):
    """Knows playlists, and can fetch nothing."""

    name = "listing"

    def pools(self) -> list[Any]:
        return []


def copy(id: str, title: str = SONG.title, **rest: Any) -> Track:
    fields: dict[str, Any] = {"artists": SONG.artists, "duration": SONG.duration, **rest}
    return Track(id=id, title=title, **fields)


class Asked:
    """One resolve, and all it said."""

    def __init__(self, *sources: Source, own: str = "qq", resolver: Resolver | None = None, **options: Any) -> None:
        self.said: list[str] = []
        self.permits: list[str] = []
        self.open = 0
        self.kept: tuple[Candidate, ...] = ()
        self._closed: dict[str, BaseException] = options.pop("closed", {})
        resolver = resolver or Resolver(Latencies(), NoThreads())
        options = {"cancelled": lambda: False, "permit": self._permit, "on_wait": self._keep, **options}
        self.resolution: Resolution = resolver.resolve(
            options.pop("wanted", SONG), own, sources, say=self.said.append, **options
        )

    @contextmanager
    def _permit(self, name: str) -> Iterator[None]:
        self.permits.append(name)
        if name in self._closed:
            raise self._closed[name]
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    def _keep(self, candidates: tuple[Candidate, ...]) -> None:
        self.kept = candidates

    @property
    def reasons(self) -> list[str]:
        return [f"{each.platform}: {each.reason}" for each in self.resolution.candidates]

    @property
    def code(self) -> str:
        assert self.resolution.media is None
        assert self.resolution.failure is not None
        return self.resolution.failure.code


class NoThreads(Pace):
    def start(self, call: Callable[[], None]) -> bool:
        raise AssertionError("a thread was asked for")


# --- one source after another -------------------------------------------------------------------


def test_its_own_source_is_asked_for_the_song_itself_without_any_thread() -> None:
    qq, kuwo = Own("qq"), Elsewhere("kuwo")
    asked = Asked(qq, kuwo)
    assert asked.resolution.media is FLAC
    assert (asked.resolution.platform, asked.resolution.track, asked.resolution.failure) == ("qq", SONG, None)
    assert asked.said == ["resolving source qq (1/2)", "resolved via qq"]
    assert asked.permits == ["source:qq"]
    assert kuwo.calls == []
    (chosen,) = asked.resolution.candidates
    assert (chosen.platform, chosen.score, chosen.verdict) == ("qq", 1.0, "chosen")


def test_a_song_that_is_gone_is_found_elsewhere_and_all_that_was_looked_at_is_kept() -> None:
    live, right = copy("1", "Harbour Lights (Live)"), copy("2")
    kuwo = Elsewhere("kuwo", [live, right])
    asked = Asked(Own("qq", Gone("taken down")), kuwo)
    assert asked.resolution.track is right
    assert kuwo.calls == ["search", "resolve 2"]
    assert asked.permits == ["source:qq", "source:kuwo", "source:kuwo"]
    assert asked.said == ["resolving source qq (1/2)", "resolving source kuwo (2/2)", "resolved via kuwo"]
    assert asked.reasons == [
        "kuwo: same title and artist",
        "qq: gone: taken down",
        "kuwo: live version, wanted studio",
    ]
    assert [each.verdict for each in asked.resolution.candidates] == ["chosen", "rejected", "rejected"]


def test_a_song_that_is_gone_may_be_in_its_own_source_once_more() -> None:
    qq = Elsewhere("qq", [SONG, copy("8")], {"7": Gone})
    asked = Asked(qq)
    assert asked.resolution.track is not None
    assert asked.resolution.track.id == "8"
    assert qq.calls == ["resolve 7", "search", "resolve 8"]


def test_of_equal_finds_the_better_quality_is_taken() -> None:
    found = [
        copy("low", snapshot={"bitrate": 128}),
        copy("high", snapshot={"bitrate": 320}),
        copy("best", snapshot={"suffix": ".flac"}),
    ]
    asked = Asked(Elsewhere("kuwo", found))
    assert asked.resolution.track is found[2]
    assert asked.reasons[1:] == ["kuwo: another was taken", "kuwo: another was taken"]


def test_no_more_than_three_finds_of_a_source_are_tried() -> None:
    kuwo = Elsewhere("kuwo", [copy(str(n)) for n in range(5)], Unusable("a web page, no audio"))
    asked = Asked(kuwo)
    assert kuwo.calls == ["search", "resolve 0", "resolve 1", "resolve 2"]
    assert asked.reasons[-1] == "kuwo: not tried: others failed before it"
    assert asked.code == "no_match"


def test_an_error_of_a_find_moves_on_to_the_next_source_at_once() -> None:
    kuwo = Elsewhere("kuwo", [copy("1"), copy("2")], ProviderError(500))
    migu = Elsewhere("migu", [copy("3")])
    asked = Asked(kuwo, migu)
    assert kuwo.calls == ["search", "resolve 1"]
    assert asked.resolution.platform == "migu"
    assert "kuwo: HTTP 500" in asked.reasons


def test_what_proved_broken_is_not_taken_again() -> None:
    qq, kuwo = Own("qq"), Elsewhere("kuwo", [copy("1"), copy("2")])
    asked = Asked(qq, kuwo, exclude={("qq", "7"): "the file was cut short", ("kuwo", "1"): ""})
    assert qq.calls == []
    assert asked.resolution.track is not None
    assert asked.resolution.track.id == "2"
    assert "qq: the file was cut short" in asked.reasons
    assert "kuwo: tried before, and its transfer failed" in asked.reasons
    plain = Asked(Own("qq"), exclude={("qq", "7")})
    assert plain.code == "no_match"
    assert plain.reasons == ["qq: tried before, and its transfer failed"]


@pytest.mark.parametrize(
    ("media", "why"),
    [
        (Media(), "an answer without an address"),
        (Media(url="https://media.test/1", duration=30.0), "plays 0:30, wanted 3:35: an excerpt"),
        (Media(url="https://media.test/1", duration=300.0), "plays 5:00, wanted 3:35"),
    ],
)
def test_an_answer_that_cannot_be_it_is_refused(media: Media, why: str) -> None:
    asked = Asked(Elsewhere("kuwo", [copy("1")], media), Elsewhere("migu", [copy("2")]))
    assert asked.resolution.platform == "migu"
    assert f"kuwo: {why}" in asked.reasons


def test_a_source_that_told_a_wrong_length_of_its_own_song_is_still_believed() -> None:
    long = Media(url="https://media.test/1", duration=300.0)
    assert Asked(Own("qq", long)).resolution.media is long


# --- nothing to be had --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sources", "code", "retryable", "words"),
    [
        ([], "no_source", False, "DOWNLOAD_SOURCES"),
        ([Listing(), Own("kuwo")], "no_source", False, "asked: listing, kuwo"),
        ([Own("qq", NotOffered)], "no_source", False, "DOWNLOAD_SOURCES"),
        ([Own("qq", Gone)], "song_gone", False, "gone from qq"),
        ([Own("qq", ProviderError(404))], "song_gone", False, "gone from qq"),
        ([Own("qq", Gone), Elsewhere("kuwo")], "song_gone", False, "kuwo: found nothing"),
        ([Own("qq", Unusable("a web page", "not_audio"))], "not_audio", False, "a web page"),
        ([Elsewhere("kuwo", [copy("1", "Other Lights")] * 5)], "no_match", False, "no match among 5 found"),
        ([Own("qq", ProviderError(403))], "forbidden", False, "HTTP 403"),
        ([Own("qq", Gone), Elsewhere("kuwo", ProviderError(401))], "forbidden", False, "kuwo: search: HTTP 401"),
        ([Own("qq", ProviderError(500))], "resolve_failed", True, "qq: HTTP 500"),
        ([Own("qq", Gone), Elsewhere("kuwo", TimeoutError())], "resolve_failed", True, "took too long"),
        ([Own("qq", ConnectionResetError("reset"))], "resolve_failed", True, "cannot be reached: reset"),
    ],
)
def test_a_failure_has_a_code_and_names_the_sources(
    sources: list[Source], code: str, retryable: bool, words: str
) -> None:
    asked = Asked(*sources)
    assert asked.code == code
    failure = asked.resolution.failure
    assert failure is not None
    assert failure.retryable is retryable
    assert words in failure.message


def test_what_a_broken_source_says_is_logged_and_never_shows_a_key(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        asked = Asked(Own("qq", KeyError("GET http://tide:secret@host.test:80/a?token=secret failed")))
    assert asked.code == "resolve_failed"
    assert "secret" not in str(asked.resolution)
    assert "http://host.test:80/… failed" in asked.reasons[0]
    assert "a source failed" in caplog.text
    assert read(ProviderError(500, message="see https://host.test/x?key=1"))[1] == "HTTP 500: see https://host.test/…"


def test_a_source_that_has_to_wait_is_passed_over() -> None:
    closed = {"source:qq": MustWait("source:qq", "breaker open: banned for 24 h")}
    asked = Asked(Own("qq"), Elsewhere("kuwo", [copy("1")]), closed=closed)
    assert asked.resolution.platform == "kuwo"
    assert "qq: breaker open: banned for 24 h" in asked.reasons


@pytest.mark.parametrize("other", [Elsewhere("migu"), Elsewhere("migu", ProviderError(500))])
def test_if_nobody_has_it_the_first_who_had_to_wait_is_waited_for(other: Source) -> None:
    first, second = MustWait("source:kuwo", "no permit is free"), Troubled("HTTP 503")
    kept: list[tuple[Candidate, ...]] = []
    with pytest.raises(MustWait) as raised:
        Asked(
            Own("qq", Gone),
            other,
            Elsewhere("kuwo"),
            Elsewhere("kugou"),
            closed={"source:kuwo": first, "source:kugou": second},
            on_wait=kept.append,
        )
    assert raised.value is first
    assert [each.platform for each in kept[0]] == ["qq", "migu", "kuwo", "kugou"]
    with pytest.raises(Troubled):
        Asked(Own("qq"), closed={"source:qq": second})


def test_who_cancels_gets_no_further_call() -> None:
    qq, kuwo = Own("qq", Gone), Elsewhere("kuwo", [copy("1")])
    asked = Asked(qq, kuwo, cancelled=lambda: bool(qq.calls))
    assert asked.code == "canceled"
    assert kuwo.calls == []
    assert asked.open == 0


def test_a_stop_of_the_process_is_not_swallowed() -> None:
    with pytest.raises(KeyboardInterrupt):
        Asked(Own("qq", KeyboardInterrupt()), Elsewhere("kuwo"))


# --- asking early -------------------------------------------------------------------------------


class Simulated(Pace):
    """Threads are real, time is not: it moves on when everybody waits for it."""

    def __init__(self, helpers: int = 32) -> None:
        super().__init__(helpers)
        self.time = 0.0
        self.started = 0
        self._alive = 1
        self._waiting: list[tuple[float, Callable[[], bool]]] = []
        self._changed = threading.Condition()

    def now(self) -> float:
        return self.time

    def start(self, call: Callable[[], None]) -> bool:
        def counted() -> None:
            try:
                call()
            finally:
                with self._changed:
                    self._alive -= 1
                    self._move()

        with self._changed:
            self._alive += 1
        if not super().start(counted):
            with self._changed:
                self._alive -= 1
            return False
        self.started += 1
        return True

    def wait(self, inbox: SimpleQueue[None], seconds: float) -> None:
        self.sleep(seconds, lambda: not inbox.empty())
        while not inbox.empty():
            inbox.get()

    def sleep(self, seconds: float, or_until: Callable[[], bool] = lambda: False) -> None:
        mine = (self.time + seconds, or_until)
        with self._changed:
            self._waiting.append(mine)
            self._move()
            assert self._changed.wait_for(lambda: self.time >= mine[0] or or_until(), timeout=30)
            self._waiting.remove(mine)

    def rest(self) -> None:
        """Until all helpers have ended."""
        while self._alive > 1:
            self.sleep(1.0)

    def _move(self) -> None:
        if len(self._waiting) == self._alive and not any(until() or at <= self.time for at, until in self._waiting):
            self.time = min(at for at, _ in self._waiting)
        self._changed.notify_all()


class Timed(Elsewhere):
    """Takes as long as it is told, in simulated time."""

    def __init__(self, name: str, pace: Simulated, seconds: Callable[[], float], answer: Answer = FLAC) -> None:
        super().__init__(name, [copy("1")], answer)
        self._pace = pace
        self._seconds = seconds

    def resolve(self, track: Track) -> Media:
        self._pace.sleep(self._seconds())
        return super().resolve(track)


def known(usual: float = 1.0, *names: str) -> Latencies:
    latencies = Latencies()
    for name in names:
        for _ in range(50):
            latencies.add(name, usual)
    return latencies


def test_a_source_slower_than_usual_is_overtaken_by_the_next_one() -> None:
    pace = Simulated()
    latencies = known(1.0, "qq/own")
    qq, kuwo = Timed("qq", pace, lambda: 60.0), Timed("kuwo", pace, lambda: 2.0)
    asked = Asked(qq, kuwo, resolver=Resolver(latencies, pace))
    assert asked.resolution.platform == "kuwo"
    assert pace.time == pytest.approx(3.0)
    assert asked.said == ["resolving source qq (1/2)", "resolving source kuwo (2/2)", "resolved via kuwo"]
    assert asked.reasons == ["kuwo: same title and artist", "qq: hedged away: kuwo answered first"]
    assert asked.resolution.candidates[1].seconds == pytest.approx(3.0)
    assert asked.open == 1, "the slow one is still in its call"
    pace.rest()
    assert asked.open == 0, "its permit is given back"


def test_the_slow_one_may_still_be_first_and_the_other_stops_where_it_can() -> None:
    pace = Simulated()
    kuwo = Timed("kuwo", pace, lambda: 60.0)
    asked = Asked(Timed("qq", pace, lambda: 2.0), kuwo, resolver=Resolver(known(1.0, "qq/own"), pace))
    assert asked.resolution.platform == "qq"
    assert asked.reasons[1] == "kuwo: hedged away: qq answered first"
    pace.rest()
    assert asked.open == 0


def test_who_is_overtaken_while_searching_does_not_go_on_to_resolve() -> None:
    pace = Simulated()

    class SlowSearch(Timed):
        def search(self, track: Track) -> Iterator[Track]:
            pace.sleep(10.0)
            yield from super().search(track)

    kuwo = SlowSearch("kuwo", pace, lambda: 1.0)
    asked = Asked(Timed("qq", pace, lambda: 2.0), kuwo, resolver=Resolver(known(1.0, "qq/own"), pace))
    pace.rest()
    assert asked.resolution.platform == "qq"
    assert kuwo.calls == ["search"]
    assert asked.permits.count("source:kuwo") == 2
    assert asked.open == 0


class Drowsy(Simulated):
    """Looks up only when all helpers have ended."""

    def wait(self, inbox: SimpleQueue[None], seconds: float) -> None:
        super().wait(inbox, seconds)
        if self.started == 2:
            self.rest()


@pytest.mark.parametrize(("first", "second", "winner"), [(128, 320, "kuwo"), (320, 128, "qq"), (320, 320, "qq")])
def test_of_two_answers_at_once_the_better_is_taken(first: int, second: int, winner: str) -> None:
    pace = Drowsy()
    qq = Timed("qq", pace, lambda: 3.0, Media(url="https://media.test/a", bitrate=first))
    kuwo = Timed("kuwo", pace, lambda: 2.0, Media(url="https://media.test/b", bitrate=second))
    asked = Asked(qq, kuwo, resolver=Resolver(known(1.0, "qq/own"), pace))
    assert asked.resolution.platform == winner
    assert [each.verdict for each in asked.resolution.candidates] == ["chosen", "rejected"]
    assert asked.reasons[1].endswith(f"hedged away: {winner} answered first")


def test_at_most_one_more_is_asked_and_one_that_fails_is_replaced() -> None:
    pace = Simulated()
    at_once: list[int] = []
    busy: set[str] = set()

    def watch(name: str, seconds: float) -> Callable[[], float]:
        def begin() -> float:
            busy.add(name)
            at_once.append(len(busy))
            return seconds

        return begin

    def fails(track: Track) -> Media:
        busy.discard("kuwo")
        raise ProviderError(500)

    latencies = known(1.0, "qq/own")
    for _ in range(40):
        latencies.asked()
    sources = [
        Timed("qq", pace, watch("qq", 60.0)),
        Timed("kuwo", pace, watch("kuwo", 1.0), fails),
        Timed("migu", pace, watch("migu", 1.0)),
        Timed("kugou", pace, watch("kugou", 1.0)),
    ]
    asked = Asked(*sources, resolver=Resolver(latencies, pace))
    assert asked.resolution.platform == "migu"
    assert max(at_once) == 2
    assert sources[3].calls == []
    pace.rest()


def test_who_must_wait_in_a_helper_kills_nothing() -> None:
    pace = Simulated()
    closed = {"source:kuwo": MustWait("source:kuwo", "breaker open: banned")}
    resolver = Resolver(known(1.0, "qq/own"), pace)
    asked = Asked(Timed("qq", pace, lambda: 5.0), Elsewhere("kuwo"), resolver=resolver, closed=closed)
    assert asked.resolution.platform == "qq"
    assert "kuwo: breaker open: banned" in asked.reasons
    gone = Timed("qq", pace, lambda: 5.0, Gone())
    with pytest.raises(MustWait, match="banned"):
        Asked(gone, Elsewhere("kuwo"), resolver=resolver, closed=closed)
    pace.rest()


def test_nobody_is_asked_early_without_allowance_without_helpers_or_without_knowledge() -> None:
    for latencies, helpers in ((Latencies(), 32), (known(1.0, "qq/own"), 0), (known(1.0, "qq/own"), 32)):
        pace = Simulated(helpers) if helpers else Simulated(1)
        if not helpers:
            pace._free.acquire()
        if helpers and latencies.p95("qq/own"):
            assert latencies.hedge(lambda: True), "the one there is at first"
        kuwo = Timed("kuwo", pace, lambda: 1.0)
        asked = Asked(Timed("qq", pace, lambda: 60.0), kuwo, resolver=Resolver(latencies, pace))
        assert asked.resolution.platform == "qq"
        assert kuwo.calls == []
        assert pace.time == pytest.approx(60.0)
        pace.rest()


def test_waiting_for_a_permit_does_not_make_a_source_slow() -> None:
    pace = Simulated()

    @contextmanager
    def late(name: str) -> Iterator[None]:
        pace.sleep(30.0)
        yield

    kuwo = Timed("kuwo", pace, lambda: 1.0)
    latencies = known(1.0, "qq/own")
    asked = Asked(Timed("qq", pace, lambda: 0.9), kuwo, resolver=Resolver(latencies, pace), permit=late)
    assert asked.resolution.platform == "qq"
    assert kuwo.calls == []
    pace.rest()


def test_a_cancelled_item_does_not_wait_for_a_slow_source() -> None:
    pace = Simulated()
    resolver = Resolver(known(1.0, "qq/own"), pace)
    asked = Asked(Timed("qq", pace, lambda: 600.0), Own("kuwo"), Elsewhere("migu"), resolver=resolver,
                  cancelled=lambda: pace.time > 0.5)  # fmt: skip
    assert asked.code == "canceled"
    assert pace.time < 1.0
    pace.rest()
    assert asked.open == 0


def test_helpers_see_the_callers_context() -> None:
    place: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")
    seen: list[tuple[str, bool]] = []

    def look(track: Track) -> Media:
        seen.append((place.get(), threading.current_thread() is threading.main_thread()))
        return FLAC

    token = place.set("item 5")
    try:
        asked = Asked(Own("qq", look), Elsewhere("kuwo"), resolver=Resolver(known(1.0, "qq/own")))
    finally:
        place.reset(token)
    assert asked.resolution.platform == "qq"
    assert seen == [("item 5", False)]


def test_a_thousand_songs_cost_only_a_few_percent_more_requests() -> None:
    pace = Simulated()
    dice = random.Random(7)
    latencies = Latencies()
    resolver = Resolver(latencies, pace)
    qq = Timed("qq", pace, lambda: dice.lognormvariate(1.0, 0.8))
    kuwo = Timed("kuwo", pace, lambda: dice.lognormvariate(0.5, 0.5))
    for _ in range(1000):
        assert resolver.resolve(
            SONG, "qq", [qq, kuwo], permit=lambda name: nullcontext(), say=lambda text: None, cancelled=lambda: False
        ).media
    pace.rest()
    hedges = kuwo.calls.count("search")
    assert len(qq.calls) == 1000
    assert 20 <= hedges <= 60, hedges


def test_a_source_that_suddenly_slows_down_does_not_double_the_requests() -> None:
    pace = Simulated()
    latencies = known(1.0, "qq/own", "kuwo/search")
    resolver = Resolver(latencies, pace)
    qq, kuwo = Timed("qq", pace, lambda: 20.0), Timed("kuwo", pace, lambda: 1.0)
    for _ in range(100):
        resolver.resolve(
            SONG, "qq", [qq, kuwo], permit=lambda name: nullcontext(), say=lambda text: None, cancelled=lambda: False
        )
    pace.rest()
    assert kuwo.calls.count("search") <= 1 + 5


def test_the_pace_of_a_source_is_its_own_and_recent() -> None:
    latencies = Latencies(kept=100)
    assert latencies.p95("qq") is None
    for number in range(19):
        latencies.add("qq", float(number))
    assert latencies.p95("qq") is None
    latencies.add("qq", 19.0)
    assert latencies.p95("qq") == 19.0
    for _ in range(100):
        latencies.add("qq", 2.0)
    assert latencies.p95("qq") == 2.0
    assert latencies.p95("kuwo") is None


# --- real things --------------------------------------------------------------------------------


def test_the_demo_server_gives_a_link_and_a_mirror_of_what_is_gone() -> None:
    with DemoServer(pace=0, faults={31: Fault.GONE, 6: Fault.GONE}) as server:
        demo = Demo(server.url)
        resolver = Resolver(Latencies())
        try:
            tracks = {number: _demo_track(server, number) for number in (1, 6, 31)}
            found = {
                number: Asked(demo, own="demo", resolver=resolver, wanted=track) for number, track in tracks.items()
            }
        finally:
            demo.close()
    media = found[1].resolution.media
    assert media is not None
    assert media.url is not None
    assert media.url.startswith(server.url)
    assert found[31].resolution.track is not None
    assert found[31].resolution.track.id == "mirror-31"
    assert found[6].code == "song_gone"


def _demo_track(server: DemoServer, number: int) -> Track:
    song = server.catalog.song_at(number)
    return Track(id=song.id, title=song.title, artists=song.artists)


def downloads(sources: Sequence[Source], latencies: Latencies) -> Any:
    resolver = Resolver(latencies)

    @service("work", workers=1)
    def work(item: Item) -> str | None:
        found = resolver.resolve(
            SONG,
            "qq",
            sources,
            permit=item.permit,
            say=lambda text: item.progress(text=text),
            cancelled=lambda: item.cancelled,
        )
        return found.platform

    return work


BANNED = ProviderError(429, headers={"Retry-After": "3600"})


@pytest.mark.parametrize("latencies", [Latencies(), known(1.0, "qq/own")], ids=["in the worker", "in a helper"])
def test_an_open_breaker_on_the_first_source_makes_the_second_one_serve(latencies: Latencies) -> None:
    qq, kuwo = Own("qq", BANNED), Elsewhere("kuwo", [copy("1")])
    work = downloads([qq, kuwo], latencies)
    done = drain([work], Workflow(name="w", steps=(Step(key="a", service="work"),)), items=keys(5))
    assert done.job.status == "completed"
    assert Counter(item.result for item in done.items) == {"kuwo": 5}
    assert [item.attempt for item in done.items] == [0] * 5
    assert len(qq.calls) == 1, "the others met an open breaker"


@pytest.mark.parametrize("latencies", [Latencies(), known(1.0, "qq/own")], ids=["in the worker", "in a helper"])
def test_when_all_sources_are_closed_the_item_stands_in_line_with_no_attempt_spent(
    tmp_path: Path, latencies: Latencies
) -> None:
    qq, kuwo = Own("qq", BANNED), Elsewhere("kuwo", BANNED)
    store = open_store(f"sqlite:///{tmp_path / 'test.db'}")
    try:
        job = submit(store, one_step(), items=keys(3)).job_id
        with Engine(store, [downloads([qq, kuwo], latencies)], SWIFT):
            wait_until(lambda: len(every(store, sa.select(waits))) == 3, "all three to stand in line")
        assert {row["name"] for row in every(store, sa.select(waits))} == {"source:qq"}
        assert [(item["status"], item["attempt"]) for item in items_of(store, job)] == [("pending", 0)] * 3
        assert (len(qq.calls), len(kuwo.calls)) == (1, 1)
    finally:
        store.close()
