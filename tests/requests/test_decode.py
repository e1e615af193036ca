"""Decoding: each variant once, whatever the upstream does, and again only when its link has grown old."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa

from dalsegno.engine.limits import set_limit
from dalsegno.model.limit import Limit
from dalsegno.requests.schema import variants
from dalsegno.store.schema import breakers
from tests.helpers import assert_sound, every, items_of, statuses_of, wait_until
from tests.requests.conftest import Studio
from tests.requests.upstream import Answer, Kodik


def test_what_was_found_is_decoded(studio: Studio, upstream: Kodik) -> None:
    upstream.serial(episodes=3, translations=2)
    done = studio.carry_out(title="long serial", decodeLinks=True)
    assert (done.status, done.decoded, done.total) == ("DONE", 6, 6)
    rows = studio.variants()
    assert [row["mp4_link"] for row in rows] == [row["link"] for row in rows]
    assert set(upstream.decoded().values()) == {1}
    (content,) = studio.contents()
    assert content["ready"]
    assert_sound(studio.store, done.id)


def test_a_long_serial_at_an_upstream_that_drifts_refuses_and_fails(studio: Studio, upstream: Kodik) -> None:
    """220 episodes in 5 translations; of the files every 97th is broken once, and thrice the upstream is too busy."""
    upstream.serial(episodes=220, translations=5, brand_new="field")
    busy, calls = [200, 500, 800], []
    lock = threading.Lock()

    def hook(path: str, count: int) -> Answer | None:
        if not path.startswith("/media/"):
            return (502, {}, b"") if count == 1 else None
        with lock:
            calls.append(path)
            number = len(calls)
        if number in busy:
            return 429, {"Retry-After": "1"}, b""
        return (500, {}, b"") if number % 97 == 0 else None

    upstream.hook = hook
    upstream.page = 2
    done = studio.carry_out(shikimoriId="20", decodeLinks=True, timeout=240.0)
    assert (done.status, done.decoded, done.total, done.failed) == ("DONE", 1100, 1100, 0)
    assert all(row["mp4_link"] for row in studio.variants())
    assert len(studio.contents()) == 1
    tries = upstream.decoded()
    refused = len(calls) - 1100
    assert sum(tries.values()) == len(calls)
    assert 3 <= refused <= 20, "only what was refused was asked for again"
    assert_sound(studio.store, done.id)


def test_what_cannot_be_decoded_says_why_and_the_others_go_on(studio: Studio, upstream: Kodik) -> None:
    upstream.serial(episodes=3, translations=1)
    upstream.hook = lambda path, count: (410, {}, b"") if path.endswith("/2.mp4") else None
    done = studio.carry_out(title="long serial", decodeLinks=True)
    assert (done.status, done.decoded, done.failed) == ("DONE", 2, 1)
    assert [row["mp4_link"] is not None for row in studio.variants()] == [True, False, True]
    broken = studio.variants()[1]
    assert broken["error_code"] == "gone"
    assert "Long Serial 1x2" in broken["error_message"]
    assert upstream.decoded()["/media/1/2.mp4"] == 1, "what is gone is not asked for again"


def test_a_link_that_no_decoder_knows(studio: Studio, upstream: Kodik) -> None:
    upstream.film("Film", link=f"{upstream.url}/player/17")
    done = studio.carry_out(title="film", decodeLinks=True)
    assert (done.status, done.failed) == ("DONE", 1)
    assert studio.variants()[0]["error_code"] == "no_decoder"
    assert not studio.contents()[0]["ready"]


def test_asked_for_again_only_what_is_new_or_old_is_decoded(studio: Studio, upstream: Kodik) -> None:
    upstream.serial(episodes=2, translations=1)
    studio.carry_out(title="long serial", decodeLinks=True)
    moment = studio.contents()[0]["updated_at"]
    again = studio.carry_out(title="long serial", decodeLinks=True)
    assert (again.status, again.total) == ("DONE", 0)
    assert studio.contents()[0]["updated_at"] == moment, "nothing new to see"

    upstream.results.clear()
    upstream.serial(episodes=3, translations=1)
    past = datetime.now(UTC) - timedelta(seconds=1)
    first = studio.variants()[0]["id"]
    expire = sa.update(variants).where(variants.c.id == first).values(expires_at=past)
    studio.store.write("test", lambda tx: tx.conn.execute(expire))
    third = studio.carry_out(title="long serial", decodeLinks=True)
    assert (third.status, third.decoded) == ("DONE", 2)
    assert upstream.decoded() == {"/media/1/1.mp4": 2, "/media/1/2.mp4": 1, "/media/1/3.mp4": 1}
    assert studio.contents()[0]["updated_at"] > moment


def test_a_page_that_moved_is_decoded_anew(studio: Studio, upstream: Kodik) -> None:
    film = upstream.film("Film")
    studio.carry_out(title="film", decodeLinks=True)
    film["link"] = f"{upstream.url}/media/elsewhere.mp4"
    studio.carry_out(title="film", decodeLinks=True)
    (variant,) = studio.variants()
    assert variant["mp4_link"] == film["link"]


def test_what_another_request_decoded_meanwhile_is_not_decoded_again(studio: Studio, upstream: Kodik) -> None:
    upstream.serial(episodes=2, translations=1)
    upstream.open.clear()
    first = studio.ask(title="long serial", decodeLinks=True)
    with studio.engine():
        assert upstream.waiting.acquire(timeout=30)
        assert upstream.waiting.acquire(timeout=30)
        second = studio.ask(shikimoriId="20", decodeLinks=True)
        assert _planned(studio, second)
        upstream.open.set()
        assert studio.finished(first).decoded == 2
        assert studio.finished(second).status == "DONE"
    assert max(upstream.decoded().values()) <= 2
    assert set(statuses_of(studio.store, second, "decode")) <= {"skipped", "succeeded"}


def _planned(studio: Studio, job_id: int) -> bool:
    return bool(wait_until(lambda: items_of(studio.store, job_id, "decode"), "the second to be planned"))


def test_the_decoders_are_tried_in_their_order(studios: Callable[..., Studio], upstream: Kodik) -> None:
    upstream.film("Film")
    studio = studios(kodik_url=upstream.url, kodik_token=upstream.settings["kodik_token"], requests_decoders=("nope",))
    done = studio.carry_out(title="film", decodeLinks=True)
    assert (done.status, done.failed) == ("DONE", 1)
    assert 'There is no decoder "nope"' in studio.variants()[0]["error_message"]


def test_a_limit_of_the_source_holds_for_all_its_variants(studio: Studio, upstream: Kodik) -> None:
    studio.store.write("limit", lambda tx: set_limit(tx, "decode:kodik", Limit(concurrent=1), "test"))
    upstream.serial(episodes=12, translations=1)
    at_once, most = set(), []
    lock = threading.Lock()

    def hook(path: str, count: int) -> Answer | None:
        with lock:
            at_once.add(path)
            most.append(len(at_once))
        threading.Event().wait(0.005)  # long enough for another to come, if one could
        with lock:
            at_once.discard(path)
        return None

    upstream.hook = hook
    assert studio.carry_out(title="long serial", decodeLinks=True).decoded == 12
    assert max(most) == 1


def test_a_host_that_is_too_busy_rests_alone(studios: Callable[..., Studio], upstream: Kodik) -> None:
    """The others of the same source go on, and whoever waits for it has lost nothing."""
    studio = studios(**upstream.settings, source_options={"kodik_hosts": "localhost"})
    busy = upstream.film("Film", kinopoisk_id="1")
    other = upstream.film("Film two", kinopoisk_id="2")
    other["link"] = other["link"].replace("127.0.0.1", "localhost")
    upstream.hook = lambda path, count: (429, {"Retry-After": "100"}, b"") if path == path_of(busy) else None
    job = studio.ask(title="film", decodeLinks=True)
    with studio.engine():
        wait_until(lambda: studio.view(job).decoded == 1, "the other one")
        wait_until(lambda: every(studio.store, sa.select(breakers).where(breakers.c.state == "open")), "a breaker")
    (breaker,) = every(studio.store, sa.select(breakers).where(breakers.c.state == "open"))
    assert breaker["name"].startswith("decode:kodik@127.0.0.1:")
    waiting = next(item for item in items_of(studio.store, job, "decode") if item["status"] == "pending")
    assert (waiting["attempt"], waiting["interruptions"]) == (0, 0)
    assert upstream.decoded()[path_of(busy)] == 1


def path_of(film: dict[str, Any]) -> str:
    return urlsplit(film["link"]).path
