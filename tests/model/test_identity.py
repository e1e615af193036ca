"""Two requests that mean the same have the same identity."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.model.identity import canonical_json, identity

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    if isinstance(value, list):
        return [shuffled(inner) for inner in value]
    return value


def with_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {**{key: with_nulls(inner) for key, inner in value.items()}, "\x01 absent": None}
    if isinstance(value, list):
        return [with_nulls(inner) for inner in value]
    return value


@given(json_values)
def test_the_order_of_keys_does_not_matter_at_any_depth(value: Any) -> None:
    assert identity(shuffled(value)) == identity(value)


@given(json_values)
def test_a_key_with_null_is_the_same_as_no_key(value: Any) -> None:
    assert identity(with_nulls(value)) == identity(value)


@given(json_values)
def test_spelling_it_as_json_and_back_changes_nothing(value: Any) -> None:
    for respelled in (json.dumps(value), json.dumps(value, indent=3, ensure_ascii=False)):
        assert identity(json.loads(respelled)) == identity(value)


def test_it_is_the_sha_256_of_sorted_compact_json() -> None:
    assert canonical_json({"b": [1, None], "a": None, "ä": "é"}) == '{"b":[1,null],"ä":"é"}'
    assert identity({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": "1"}, {"a": 1}),
        ([1, 2], [2, 1]),
        ([None], []),
        ({"a": {}}, {}),
        (True, "true"),
    ],
)
def test_what_means_something_else_has_another_identity(one: Any, other: Any) -> None:
    assert identity(one) != identity(other)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {"a": {1, 2}}])
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        identity(value)
