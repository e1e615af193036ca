"""The query language: read, written back, changed for links; and what it says about what it does not understand."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.errors import QueryInvalid
from dalsegno.insight.grammar import Grammar, Key, age, containing, grammar, moment, number, size, word
from dalsegno.insight.query import Query, Term, Value, parse

THINGS = sa.table("things", sa.column("state"), sa.column("n"), sa.column("at"), sa.column("bytes"), sa.column("name"))
GRAMMAR = grammar(
    "things",
    containing(THINGS.c.name),
    Key("state", "How it is.", word(THINGS.c.state), values=("good", "bad", "ugly")),
    Key("name", "What it is called.", word(THINGS.c.name)),
    Key("count", "How many.", number(THINGS.c.n), kind="number"),
    Key("age", "Since when.", age(THINGS.c.at), kind="age"),
    Key("at", "When.", moment(THINGS.c.at), kind="moment"),
    Key("size", "How large.", size(THINGS.c.bytes), kind="size"),
)
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def sql(text: str, among: Grammar = GRAMMAR) -> str:
    found = sa.and_(sa.true(), *among.where(parse(text, among), NOW))
    return str(found.compile(compile_kwargs={"literal_binds": True})).replace("\n", "")


def test_spaces_are_and_commas_are_or_and_a_dash_is_not() -> None:
    query = parse('state:good,bad -state:ugly count:>=2 "two words" -plain', GRAMMAR)
    assert query.terms == (
        Term("state", (Value("good"), Value("bad"))),
        Term("state", (Value("ugly"),), negated=True),
        Term("count", (Value("2", ">="),)),
        Term("", (Value("two words"),)),
        Term("", (Value("plain"),), negated=True),
    )
    assert str(query) == 'state:good,bad -state:ugly count:>=2 "two words" -plain'


def test_any_script_is_a_word() -> None:
    assert parse('name:"周杰伦 精选",夜曲 七里香', GRAMMAR).values("name") == ("周杰伦 精选", "夜曲")


def test_keys_and_closed_sets_do_not_mind_case() -> None:
    assert str(parse("State:GOOD name:MiXed", GRAMMAR)) == "state:good name:MiXed"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("count:3", "things.n = 3"),
        ("count:<=3", "things.n <= 3"),
        ("size:>10MB", "things.bytes > 10000000"),
        ("size:1.5k", "things.bytes = 1500"),
        ("name:ab*", "things.name LIKE 'ab%'"),
        ("name:5%*", "things.name LIKE '5\\%%'"),
        ("age:>10m", "things.at < '2026-01-31 11:50:00+00:00'"),
        ("age:2h", "things.at >= '2026-01-31 10:00:00+00:00'"),
        ("at:>=2026-01-30", "things.at >= '2026-01-30 00:00:00+00:00'"),
        ("at:<2026-01-30T10:00+02:00", "things.at < '2026-01-30 08:00:00+00:00'"),
        ("-state:bad", "NOT coalesce(things.state = 'bad', false)"),
    ],
)
def test_a_term_becomes_a_condition(text: str, expected: str) -> None:
    assert expected in sql(text)


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("stat:good", 1, 'Did you mean "state"?'),
        ("good  stat:good", 7, 'Things have no "stat"'),
        ("state:god", 1, 'Did you mean "good"?'),
        ("state:>good", 1, "state has no size"),
        ("count:many", 1, "a number such as 2"),
        ("count:" + "9" * 40, 1, "a number such as 2"),
        ("age:10", 1, "an age such as >10m"),
        ("age:999999999w", 1, "an age such as >10m"),
        ("at:yesterday", 1, "a time such as"),
        ("at:0001-01-01", 1, "a time such as"),
        ("size:big", 1, "a size such as"),
        ("state:", 7, "missing"),
        ("state:good,", 12, "missing"),
        ("state:,good", 7, "missing"),
        ('name:"open', 6, "does not end"),
        ('""', 1, "is empty"),
        ('"a"b', 4, "After a quotation"),
        ("a\x00b", 2, "not a character"),
        ("x" * 3000, 2000, "2,000 characters at most"),
        ("a " * 100, 81, "40 terms at most"),
        ("http://example.test", 1, 'Things have no "http"'),
    ],
)
def test_what_makes_no_sense_is_pointed_at(text: str, position: int, says: str) -> None:
    with pytest.raises(QueryInvalid) as caught:
        parse(text, GRAMMAR)
    assert caught.value.details["position"] == position
    assert says in str(caught.value)


def test_links_change_one_key_and_keep_the_rest() -> None:
    query = parse("state:good count:2 text", GRAMMAR)
    assert str(query.with_("state", "bad", "ugly")) == "state:bad,ugly count:2 text"
    assert str(query.with_("age", ">10m")) == "state:good count:2 text age:>10m"
    assert str(query.without("state")) == "count:2 text"
    assert str(query.with_("state")) == "count:2 text"
    assert str(query.toggled("state", "bad")) == "state:good,bad count:2 text"
    assert str(query.toggled("state", "bad").toggled("state", "good")) == "state:bad count:2 text"
    assert str(query.toggled("state", "good")) == "count:2 text"
    assert query.text == ("text",)


def test_a_grammar_can_be_extended_where_a_list_knows_more() -> None:
    more = GRAMMAR.extended(
        Key("colour", "Its colour.", word(sa.column("colour"))), text=containing(sa.column("colour"))
    )
    assert "colour = 'red'" in sql("colour:red", more)
    assert sql("red", more).count("'%red%'") == 2
    with pytest.raises(QueryInvalid):
        parse("colour:red", GRAMMAR)


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)
TERMS = st.one_of(
    st.builds(lambda text, no: Term("", (Value(text),), no), WORDS, st.booleans()),
    st.builds(
        lambda texts, no: Term("name", tuple(map(Value, texts)), no),
        st.lists(WORDS, min_size=1, max_size=3),
        st.booleans(),
    ),
    st.builds(
        lambda number, operator, no: Term("count", (Value(str(number), operator),), no),
        st.integers(0, 10**17),
        st.sampled_from(["", ">", ">=", "<", "<="]),
        st.booleans(),
    ),
)


@given(st.lists(TERMS, max_size=6))
def test_whatever_is_written_is_read_as_the_same(terms: list[Term]) -> None:
    query = Query(tuple(terms))
    assert parse(str(query), GRAMMAR) == query


@given(st.text(max_size=60))
def test_anything_can_be_typed(text: str) -> None:
    query = position = None
    try:
        query = parse(text, GRAMMAR)
    except QueryInvalid as error:
        position = error.details["position"]
    if query is None:
        assert position in range(1, len(text) + 2)
    else:
        assert parse(str(query), GRAMMAR) == query
        GRAMMAR.where(query, NOW)
