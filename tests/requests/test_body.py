"""Two bodies that mean the same have one hash; whatever else comes in is refused with a reason."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.errors import RequestInvalid
from dalsegno.requests.body import DECODE, LONGEST, TEXTS, body_in, body_of

SAID = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=40).filter(str.strip)
SPACE = st.text(" \t\n\r", max_size=4)


def test_the_hash_is_that_of_the_contract() -> None:
    canonical = '{"decodeLinks":true,"imdbId":"tt0409591","title":"naruto shippuden"}'
    body = body_of({"title": " Naruto   Shippuden ", "imdbId": "tt0409591 ", "kinopoiskId": "  ", "decodeLinks": True})
    assert body.hash == hashlib.sha256(canonical.encode()).hexdigest()
    assert body.stored() == {"title": "Naruto Shippuden", "imdbId": "tt0409591", "decodeLinks": True}


def test_decode_links_is_part_of_it_also_where_it_was_not_said() -> None:
    canonical = hashlib.sha256(b'{"decodeLinks":false,"shikimoriId":"20"}').hexdigest()
    assert {body_of({"shikimoriId": "20", **more}).hash for more in ({}, {DECODE: None}, {DECODE: False})} == {
        canonical
    }
    assert body_of({"shikimoriId": "20", DECODE: True}).hash != canonical


@pytest.mark.parametrize(
    "other",
    [
        b'{"title": "NARUTO", "imdbId": "tt1"}',
        b'{"imdbId": "tt1", "title": "naruto"}',
        b'{ "title" : "\\tNaruto\\n" , "imdbId":" tt1 ", "shikimoriId": null, "kinopoiskId": "" }',
        b'{"title": "\\u004e\\u0061ruto", "imdbId": "tt1", "decodeLinks": false}',
    ],
)
def test_spelling_and_the_order_of_keys_make_no_difference(other: bytes) -> None:
    assert body_in(other).hash == body_in(b'{"title": "Naruto", "imdbId": "tt1"}').hash


def test_composed_and_decomposed_letters_are_the_same() -> None:
    composed, decomposed = "\u0419\u0451", "\u0418\u0306\u0435\u0308"
    assert body_of({"title": composed}).hash == body_of({"title": decomposed}).hash
    assert body_of({"title": composed.upper()}).hash == body_of({"title": decomposed.lower()}).hash


@given(st.dictionaries(st.sampled_from(sorted(TEXTS)), SAID, min_size=1), st.booleans(), SPACE, st.randoms())
def test_what_is_stored_hashes_as_what_came(said: dict[str, str], decode: bool, space: str, chance: Any) -> None:
    said = {name: text if name == "title" else "".join(text.split()) for name, text in said.items()}
    first = body_of({**said, DECODE: decode})
    pairs = [(name, f"{space}{text}{space}") for name, text in said.items()] + [(DECODE, decode)]
    chance.shuffle(pairs)
    again = body_in(json.dumps(dict(pairs)).encode())
    assert again.hash == first.hash == body_of(first.stored()).hash
    assert body_of({**first.stored(), DECODE: not decode}).hash != first.hash


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "must be an object"),
        (b'"Naruto"', "must be an object"),
        (b"null", "must be an object"),
        (b"{}", "At least one of title, kinopoiskId, imdbId, shikimoriId"),
        (b'{"title": "   ", "imdbId": null}', "At least one"),
        (b'{"decodeLinks": true}', "At least one"),
        (b'{"title": 5}', "title must be a text"),
        (b'{"title": ["Naruto"]}', "title must be a text"),
        (b'{"kinopoiskId": 283290}', 'kinopoiskId must be a text, for example "283290"'),
        (b'{"title": "x", "decodeLinks": "yes"}', "true or false"),
        (b'{"title": "x", "decodeLinks": 1}', "true or false"),
        (b'{"tilte": "x"}', "title"),
        (b'{"title": "x", "title": "y"}', '"title" is said twice'),
        (b'{"title": "a\\u0000b"}', "control character (U+0000, at 2)"),
        (b'{"title": "a\\u001bb"}', "control character"),
        (b'{"title": "a\\u0085b"}', "control character"),
        (b'{"title": "\\ud83d"}', "control character"),
        (b'{"title": "a\nb"}', "not JSON"),
        (b'{"imdbId": "tt 1"}', "without spaces"),
        (b'{"title": "\xff\xfe"}', "not UTF-8"),
        (b'{"title": NaN}', "NaN is no number"),
        (b'{"title": -Infinity}', "-Infinity is no number"),
        (b'{"title": ' + b"9" * 5000 + b"}", "too long"),
        (b'{"title": 1e999999}', "must be a text"),
        (b"[" * 30_000, "nested too deeply"),
        (b'{"title":' * 5_000 + b"1" + b"}" * 5_000, "nested too deeply"),
        (b'{"title": "' + b"x" * 501 + b'"}', "501 characters; the limit is 500"),
        (b'{"title": "' + b"x" * 60_000 + b'"}', "60,000 characters"),
        (b'{"imdbId": "' + b"1" * 65 + b'"}', "the limit is 64"),
        (b'\xef\xbb\xbf{"title": "x"}', "not JSON"),
    ],
)
def test_what_is_wrong_is_refused_with_a_reason(raw: bytes, says: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        body_in(raw)
    assert says in str(caught.value)
    assert caught.value.status == 400
    assert str(caught.value).isprintable()


def test_the_longest_there_may_be() -> None:
    for name, length in LONGEST.items():
        assert body_of({name: "x" * length}).stored()[name] == "x" * length


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*TEXTS, DECODE]) | st.text(), inner),
    max_leaves=20,
).map(lambda tree: json.dumps(tree).encode()))  # fmt: skip
def test_anything_at_all_is_a_body_or_refused(raw: bytes) -> None:
    try:
        body = body_in(raw)
    except RequestInvalid:
        return
    assert any(body.stored().get(name) for name in TEXTS)
    json.dumps(body.stored(), ensure_ascii=False).encode()
