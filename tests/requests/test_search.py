"""Searches: what is found becomes contents, whatever the upstream does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from dalsegno.store.schema import logs
from tests.helpers import every
from tests.requests.conftest import Studio
from tests.requests.upstream import TOKEN, Kodik


def test_a_serial_is_found_and_is_one_content(studio: Studio, upstream: Kodik) -> None:
    upstream.serial(episodes=3, translations=2)
    done = studio.carry_out(title="long SERIAL")
    assert (done.status, done.phase, done.total) == ("DONE", "DONE", 0)
    (content,) = studio.contents()
    assert done.content_ids == [content["id"]]
    assert (content["title"], content["year"], content["shikimori_id"], content["type"]) == (
        "Long Serial", 2002, "20", "anime-serial",
    )  # fmt: skip
    found = [(row["season"], row["episode"], row["translation_id"]) for row in studio.variants()]
    assert found == [(1, episode, str(translation)) for episode in (1, 2, 3) for translation in (601, 602)]
    assert content["ready"], "nothing was to be decoded"
    assert not upstream.decoded()
    (asked,) = upstream.asked
    assert (asked["path"], asked["token"], asked["title"]) == ("/search", TOKEN, "long SERIAL")


def test_a_film_is_season_0_episode_0(studio: Studio, upstream: Kodik) -> None:
    upstream.film("Quiet Film", imdb_id="tt1")
    studio.carry_out(imdbId="tt1")
    (variant,) = studio.variants()
    assert (variant["season"], variant["episode"], variant["quality"]) == (0, 0, "BDRip 1080p")
    assert variant["link"] == f"{upstream.url}/media/film/Quiet%20Film.mp4" or "Quiet Film" in variant["link"]


def test_an_answer_of_several_pages_is_read_to_its_end(studio: Studio, upstream: Kodik) -> None:
    upstream.serial(episodes=2, translations=5)
    upstream.page = 2
    studio.carry_out(shikimoriId="20")
    assert len(studio.variants()) == 10
    assert len(studio.contents()) == 1
    assert upstream.calls["/search"] == 3


def test_nothing_found_is_no_failure(studio: Studio, upstream: Kodik) -> None:
    done = studio.carry_out(title="nobody knows it")
    assert (done.status, done.content_ids, done.error) == ("DONE", [], None)


def test_a_search_that_fails_is_tried_again(studio: Studio, upstream: Kodik) -> None:
    upstream.film("Film")
    upstream.hook = lambda path, count: (400 + 52, {}, b"") if count == 1 else None
    done = studio.carry_out(title="film")
    assert (done.status, done.retry_count) == ("DONE", 1)
    assert len(done.content_ids) == 1


def test_a_search_that_always_fails_ends_with_the_reason(studio: Studio, upstream: Kodik) -> None:
    upstream.hook = lambda path, count: (452, {}, b"no")
    done = studio.carry_out(title="film", decodeLinks=True)
    assert (done.status, done.phase) == ("FAILED", "FAILED")
    assert "452" in (done.error or "")
    assert upstream.calls["/search"] == 3
    assert done.retry_count == 2


def test_a_wrong_token_is_not_tried_again_and_not_told(studios: Callable[..., Studio], upstream: Kodik) -> None:
    studio = studios(kodik_url=upstream.url, kodik_token="a-wrong-token-of-ours")
    done = studio.carry_out(title="film")
    assert done.status == "FAILED"
    assert "неверный токен" in (done.error or "")
    assert "a-wrong-token-of-ours" not in (done.error or "")
    assert upstream.calls["/search"] == 1


def test_without_a_source_it_says_what_to_set(studios: Callable[..., Studio]) -> None:
    done = studios().carry_out(title="film")
    assert done.status == "FAILED"
    assert "KODIK_URL" in (done.error or "")


def test_a_busy_upstream_costs_no_attempt(studio: Studio, upstream: Kodik) -> None:
    upstream.film("Film")
    upstream.hook = lambda path, count: (429, {"Retry-After": "1"}, b"") if count <= 2 else None
    done = studio.carry_out(title="film")
    assert (done.status, done.retry_count) == ("DONE", 0)
    assert upstream.calls["/search"] == 3


@pytest.mark.parametrize(
    "odd",
    [
        {"results": None}, {"results": {"1": {}}}, {"results": "none"},
    ],
)  # fmt: skip
def test_an_answer_without_results_fails_with_the_reason(
    studio: Studio, upstream: Kodik, odd: dict[str, object]
) -> None:
    upstream.more = odd
    done = studio.carry_out(title="film")
    assert done.status == "FAILED"
    assert "shape" in (done.error or "")


def test_drift_is_noted_and_nothing_known_is_lost(studio: Studio, upstream: Kodik) -> None:
    upstream.serial(episodes=2, translations=1)
    studio.carry_out(shikimoriId="20")
    (result,) = upstream.results
    result |= {"year": ["2002"], "title": None, "brand_new": 1, "translation": {"id": 601}}
    result["seasons"] = [{"season": 1, "episodes": [{"number": 1, "link": f"{upstream.url}/media/1/1.mp4"}, "??"]}]
    upstream.results.append("not even an object")  # type: ignore[arg-type]
    upstream.hook = lambda path, count: None
    upstream.answer = _everything(upstream)  # type: ignore[method-assign]
    done = studio.carry_out(shikimoriId="20")
    assert done.status == "DONE"
    (content,) = studio.contents()
    assert (content["title"], content["year"]) == ("Long Serial", 2002)
    assert [row["missing_at"] for row in studio.variants()] == [None, None], "who loses count says nothing is gone"
    said = "\n".join(row["message"] for row in every(studio.store, sa.select(logs)))
    for odd in ("brand_new", "result.year is a list", "seasons are a list", "a result is a text"):
        assert odd in said


def _everything(upstream: Kodik) -> Callable[..., tuple[int, dict[str, str], bytes]]:
    import json

    return lambda method, form: (200, {}, json.dumps({"results": upstream.results}).encode())
