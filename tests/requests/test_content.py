"""Contents: kept up to date by what searches and decoders say, with times that move only for a reason."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from dalsegno import Store
from dalsegno.requests.content import keep
from dalsegno.requests.content_clock import Clock
from dalsegno.requests.links import Made, keep_decoded, keep_error
from dalsegno.requests.schema import content_clock, contents, request_contents, variants
from dalsegno.requests.upstream import Offer, Work
from tests.helpers import every, one, submitted

NOW = datetime(2026, 5, 4, 18, tzinfo=UTC)
_minutes = itertools.count(1)


def serial(episodes: int = 2, translations: int = 2, **more: Any) -> Work:
    offers = tuple(
        Offer(
            link=f"https://player.example/{translation}/{episode}",
            season=1,
            episode=episode,
            translation_id=str(translation),
            translation_title=f"Studio {translation}",
            translation_type="voice",
            quality="720p",
        )
        for translation in range(1, translations + 1)
        for episode in range(1, episodes + 1)
    )
    return Work(**{"id": "shikimori:20", "type": "anime-serial", "title": "Long Serial", "year": 2002,
                   "shikimori_id": "20", "offers": offers, **more})  # fmt: skip


class Shelf:
    """Contents as they stand, changed by what is told of them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.job = submitted(store, items=1).job_id

    def told(self, *works: Work, source: str = "kodik", ready: bool = False) -> list[int]:
        now = NOW + timedelta(minutes=next(_minutes))
        return self.store.write("test", lambda tx: keep(tx.conn, self.job, {source: works}, now, ready=ready))

    def decoded(self, number: int, link: str | None = None, quality: str = "") -> None:
        now = NOW + timedelta(minutes=next(_minutes))
        own = link or self.variants()[number - 1]["link"]
        row = Made(number, own, "https://files.example/1.mp4", quality, now, None)
        self.store.write("test", lambda tx: keep_decoded(tx.conn, [row]))

    def content(self) -> sa.RowMapping:
        return one(self.store, sa.select(contents))

    def moment(self) -> datetime:
        return self.content()["updated_at"]

    def variants(self) -> list[sa.RowMapping]:
        return every(self.store, sa.select(variants).order_by(variants.c.id))

    def ready(self) -> int:
        return one(self.store, sa.select(content_clock))["ready"]


def test_told_the_same_again_nothing_moves(store: Store) -> None:
    shelf = Shelf(store)
    (number,) = shelf.told(serial())
    before = (shelf.content(), shelf.variants())
    assert shelf.told(serial()) == [number]
    assert (shelf.content(), shelf.variants()) == before
    assert [row["content_id"] for row in every(store, sa.select(request_contents))] == [number]


def test_every_real_change_moves_it(store: Store) -> None:
    shelf = Shelf(store)
    shelf.told(serial())
    seen = [shelf.moment()]
    one_more = serial(episodes=3)
    renamed = replace(one_more, title="Very Long Serial")
    better = replace(renamed, offers=tuple(replace(each, quality="1080p") for each in renamed.offers))
    named = replace(better, offers=tuple(replace(each, episode_title=f"No. {each.episode}") for each in better.offers))
    for told in (one_more, renamed, better, named):
        shelf.told(told)
        seen.append(shelf.moment())
    assert seen == sorted(set(seen)), "each of them is a later time"
    shelf.told(named)
    assert shelf.moment() == seen[-1]


def test_what_is_not_told_keeps_its_value(store: Store) -> None:
    shelf = Shelf(store)
    shelf.told(serial())
    moment = shelf.moment()
    plain = tuple(replace(each, quality="", translation_title="") for each in serial().offers)
    shelf.told(serial(title="", year=None, shikimori_id="", offers=plain))
    assert (shelf.content()["title"], shelf.content()["year"]) == ("Long Serial", 2002)
    assert {row["quality"] for row in shelf.variants()} == {"720p"}
    assert shelf.moment() == moment


def test_an_episode_that_its_translation_lost_is_missing_until_it_is_back(store: Store) -> None:
    shelf = Shelf(store)
    shelf.told(serial(episodes=2))
    first = shelf.moment()
    shelf.told(serial(episodes=1))
    assert [row["missing_at"] is None for row in shelf.variants()] == [True, False, True, False]
    second = shelf.moment()
    shelf.told(serial(episodes=2))
    assert all(row["missing_at"] is None for row in shelf.variants())
    assert first < second < shelf.moment()


def test_of_a_translation_nobody_told_of_nothing_is_known(store: Store) -> None:
    shelf = Shelf(store)
    shelf.told(serial(translations=2))
    moment = shelf.moment()
    shelf.told(serial(translations=1))
    shelf.told(serial(episodes=1, whole=False))
    assert all(row["missing_at"] is None for row in shelf.variants())
    assert shelf.moment() == moment


def test_decoding_makes_it_ready_once(store: Store) -> None:
    shelf = Shelf(store)
    shelf.told(serial())
    assert (shelf.content()["ready"], shelf.ready()) == (False, 0)
    moment = shelf.moment()
    shelf.decoded(1)
    assert (shelf.content()["ready"], shelf.ready()) == (True, 1)
    assert shelf.moment() > moment
    moment = shelf.moment()
    shelf.decoded(1)
    assert shelf.moment() == moment, "the same link is nothing new"
    shelf.decoded(2)
    assert shelf.moment() > moment
    assert shelf.ready() == 1


def test_found_by_somebody_who_wants_no_links_it_is_ready_at_once(store: Store) -> None:
    shelf = Shelf(store)
    shelf.told(serial(), ready=False)
    moment = shelf.moment()
    shelf.told(serial(), ready=True)
    assert (shelf.content()["ready"], shelf.ready()) == (True, 1)
    assert shelf.moment() > moment, "who reads by cursor must come by it"


def test_what_a_decoder_says_of_the_quality_stands(store: Store) -> None:
    shelf = Shelf(store)
    shelf.told(serial())
    shelf.decoded(1, quality="480p")
    moment = shelf.moment()
    shelf.told(serial())
    shelf.decoded(1, quality="480p")
    assert shelf.variants()[0]["quality"] == "480p"
    assert shelf.moment() == moment


def test_a_link_that_has_changed_meanwhile_is_not_answered_for(store: Store) -> None:
    shelf = Shelf(store)
    shelf.told(serial())
    old = shelf.variants()[0]["link"]
    moved = tuple(replace(each, link=f"{each.link}/moved") for each in serial().offers)
    shelf.told(serial(offers=moved))
    moment = shelf.moment()
    shelf.decoded(1, link=old)
    assert shelf.variants()[0]["mp4_link"] is None
    assert shelf.moment() == moment


def test_a_moved_link_is_due_for_decoding_and_its_old_file_stays_until_then(store: Store) -> None:
    shelf = Shelf(store)
    shelf.told(serial())
    shelf.decoded(1)
    moment = shelf.moment()
    moved = tuple(replace(each, link=f"{each.link}/moved") for each in serial().offers)
    shelf.told(serial(offers=moved))
    row = shelf.variants()[0]
    assert (row["mp4_link"], row["link"]) == ("https://files.example/1.mp4", moved[0].link)
    assert row["expires_at"] is not None
    assert shelf.moment() == moment, "no reader sees the page"


def test_an_error_is_kept_until_it_is_decoded_and_moves_nothing(store: Store) -> None:
    shelf = Shelf(store)
    shelf.told(serial())
    moment = shelf.moment()
    store.write("test", lambda tx: keep_error(tx.conn, 1, "gone", "it is gone", tx.now))
    assert shelf.variants()[0]["error_code"] == "gone"
    assert shelf.moment() == moment
    shelf.decoded(1)
    assert shelf.variants()[0]["error_code"] is None


def test_works_of_two_sources_are_two_contents(store: Store) -> None:
    shelf = Shelf(store)
    shelf.told(serial())
    shelf.told(serial(), source="other")
    assert [row["source"] for row in every(store, sa.select(contents).order_by(contents.c.id))] == ["kodik", "other"]


def test_hundreds_of_contents_at_once_each_get_a_time_of_their_own(store: Store) -> None:
    shelf = Shelf(store)
    works = [serial(id=f"title:{number}", episodes=1, translations=1) for number in range(700)]
    assert len(set(shelf.told(*works, ready=True))) == 700
    moments = [row["updated_at"] for row in every(store, sa.select(contents.c.updated_at))]
    assert len(set(moments)) == 700
    assert shelf.ready() == 700


def test_writers_that_meet_take_turns_and_their_times_are_in_the_order_of_commits(store: Store) -> None:
    """A clock that is told a moment long past still goes on."""
    shelf = Shelf(store)
    ids = shelf.told(*(serial(id=f"title:{number}", episodes=1, translations=1) for number in range(20)))
    committed: list[datetime] = []
    lock = threading.Lock()
    start = threading.Barrier(4)

    def write(own: list[int]) -> None:
        start.wait()
        for number in own:

            def work(tx: Any, number: int = number) -> datetime:
                Clock(tx.conn, NOW).touch([number])
                found: datetime = tx.conn.execute(sa.select(content_clock.c.last)).scalar_one()
                with lock:
                    committed.append(found)  # under the clock's lock: in the order of commits
                return found

            store.write("test", work)

    orders = [ids, ids[::-1], ids[10:] + ids[:10], ids[::2] + ids[1::2]]
    threads = [threading.Thread(target=write, args=(each,)) for each in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert committed == sorted(set(committed))
    assert len(committed) == 80
