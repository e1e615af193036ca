"""Which parameters of a URL are part of what it is."""

from __future__ import annotations

import pytest

from dalsegno.sources.signed import Ties, identifying, is_short_lived
from dalsegno.sources.urls import secrets_of

AT = "https://h.example/rest/stream"


@pytest.mark.parametrize(
    "query",
    ["token=x", "access_token=x", "accessToken=x", "authkey=x", "auth_key=x", "api-key=x", "apikey=x", "vkey=x",
     "sign=x", "upsig=x", "Key-Pair-Id=x", "AWSAccessKeyId=x", "X-Amz-Signature=x", "wsSecret=x", "sessionid=x",
     "a=1&pwd=x", "expires=1", "expiretime=1", "X-Plex-Token=x", "ticket=x", "noncestr=x", "oauth_nonce=x", "Policy=x",
     "passwd=x"],
)  # fmt: skip
def test_credentials_and_signatures_do_not_last(query: str) -> None:
    assert is_short_lived(f"{AT}?{query}")
    assert secrets_of(f"{AT}?{query}")
    assert "x" not in identifying(f"{AT}?id=1&{query}").partition("?")[2]


@pytest.mark.parametrize(
    "query",
    ["author=x", "authority=x", "design=x", "hash=x", "keyword=x", "keywords=x", "monkey=x", "compass=x", "passage=x",
     "signal=x", "hashtag=x", "token", "id=1"],
)  # fmt: skip
def test_words_that_only_contain_such_a_name_last(query: str) -> None:
    assert not is_short_lived(f"{AT}?{query}")


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("id=1&token=abc", "?id=1"),
        ("token=abc&id=2&format=raw", "?id=2&format=raw"),
        ("token=abc", ""),
        ("hash=A&token=abc", "?hash=A"),
        ("hash=A&expires=1", ""),
        ("md5=A&expires=1&id=7", "?id=7"),
        ("X-Amz-Algorithm=A&X-Amz-Date=20240101T000000Z&X-Amz-Signature=s&X-Amz-SignedHeaders=host", ""),
        ("sv=2020&se=2024&sr=b&sp=r&sig=x", ""),
        ("e=1700000000&token=x", ""),
        ("e=12&token=x", "?e=12"),
        ("1", "?1"),
    ],
)
def test_what_is_left_is_what_it_is(query: str, left: str) -> None:
    assert identifying(f"{AT}?{query}") == AT + left


def test_the_path_of_an_audio_file_says_what_it_is() -> None:
    assert identifying("/cast/1.mp3?source=rss&utm_medium=x") == "/cast/1.mp3"
    assert identifying("/get.mp3?id=1&source=rss&token=x") == "/get.mp3?id=1"


def test_songs_with_one_id_are_told_apart_by_their_titles_then_by_their_order() -> None:
    ties = Ties([("p", "p?token=a", "One"), ("p", "p?token=b", "Two"), ("p", "p?token=c", "Two"), ("q", "q?t", "One")])
    told = [ties.told("p", f"p?token={each}") for each in "abc"]
    assert len(set(told)) == 3
    assert told[2] == told[1] + ".2"
    assert ties.told("q", "q?t") == "q", "alone, it is called as ever"
    again = Ties([("p", "p?token=z", "Two"), ("p", "p?token=y", "Two"), ("p", "p?token=x", "One")])
    assert [again.told("p", f"p?token={each}") for each in "xzy"] == told, "whatever they are signed with"


def test_one_address_listed_twice_and_one_file_signed_twice_are_one_song() -> None:
    ties = Ties([("p", "p?token=a", "One"), ("p", "p?token=a", "One, again")])
    assert ties.told("p", "p?token=a") == "p"
    ties = Ties([("a.mp3", "a.mp3?token=a", "One"), ("a.mp3", "a.mp3?token=b", "one")])
    assert {ties.told("a.mp3", f"a.mp3?token={each}") for each in "ab"} == {"a.mp3"}
