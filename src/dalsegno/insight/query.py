"""The one query language of console, API and command line.

    state:failed,interrupted stage:download source:qq -error:429 age:>10m playlist:"周杰伦 精选" text

Space is and, comma is or, `-` is not. What keys there are, a list says itself, in its `Grammar`: see `insight.grammar`.
Here is only how a query reads, how it is written back, and how links change it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dalsegno.errors import QueryInvalid
from dalsegno.model.suggest import closest, did_you_mean

if TYPE_CHECKING:
    from dalsegno.insight.grammar import Grammar

LONGEST = 2000
MOST_TERMS = 40
MOST_VALUES = 200

PROBLEMS = {
    "too_long": "A query has %(most)s characters at most.",
    "too_many_terms": "A query has %(most)s terms at most.",
    "too_many_values": "%(key)s: has %(most)s values at most.",
    "no_character": "This is not a character.",
    "unclosed": "A quotation begins here and does not end.",
    "joined": "After a quotation comes a space or a comma.",
    "empty": "A quotation is empty.",
    "value_missing": "Here a value for %(key)s is missing.",
    "key_unknown": 'There is no "%(key)s" to ask for here.',
    "value_unknown": '"%(text)s" is nothing that %(key)s can be.',
    "no_size": "%(key)s has no size: %(operator)s says nothing about it.",
    "not_number": '%(key)s is a number such as 2 or >=2, not "%(text)s".',
    "not_id": '%(key)s is a number such as 12, not "%(text)s".',
    "not_age": '%(key)s is an age such as >10m, <2h or 3d, not "%(text)s".',
    "not_size": '%(key)s is a size such as >10MB, not "%(text)s".',
    "not_moment": '%(key)s is a time such as >=2026-01-31 or <2026-01-31T22:00, not "%(text)s".',
}
"""What can be wrong with a query, by what kind of mistake it is: pages say it in the reader's language."""

_SPACE = re.compile(r"\s+")
_KEY = re.compile(r"([A-Za-z_][\w-]*):")
_OPERATOR = re.compile(r">=|<=|>|<")
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"', re.DOTALL)
_BARE_VALUE = re.compile(r'[^\s,"][^\s,]*')
_BARE_TEXT = re.compile(r'[^\s"]\S*')
_ESCAPED = re.compile(r'\\(["\\])')
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Value:
    text: str
    operator: str = ""
    """`>`, `>=`, `<` or `<=`; empty: is."""

    def __str__(self) -> str:
        plain = _BARE_VALUE.fullmatch(self.text) and "\\" not in self.text and not _OPERATOR.match(self.text)
        return self.operator + (self.text if plain else _quoted(self.text))


@dataclass(frozen=True, slots=True)
class Term:
    key: str
    """Empty: free text."""
    values: tuple[Value, ...]
    """Any of them will do."""
    negated: bool = False

    def __str__(self) -> str:
        sign = "-" if self.negated else ""
        if self.key:
            return f"{sign}{self.key}:" + ",".join(map(str, self.values))
        (value,) = self.values
        plain = _BARE_TEXT.fullmatch(value.text) and "\\" not in value.text
        if not plain or value.text.startswith("-") or _KEY.match(value.text):
            return sign + _quoted(value.text)
        return sign + value.text


@dataclass(frozen=True, slots=True)
class Query:
    terms: tuple[Term, ...] = ()

    def __str__(self) -> str:
        """As it would be typed; read again, it is the same query."""
        return " ".join(map(str, self.terms))

    def __bool__(self) -> bool:
        return bool(self.terms)

    def of(self, key: str) -> list[Term]:
        return [term for term in self.terms if term.key == key]

    def values(self, key: str) -> tuple[str, ...]:
        """What a key may be, as far as the query asks for it: for chips that are on."""
        asked = (term for term in self.of(key) if not term.negated)
        return tuple(dict.fromkeys(str(value) if value.operator else value.text for t in asked for value in t.values))

    @property
    def text(self) -> tuple[str, ...]:
        """The free texts that must be there."""
        return tuple(value.text for term in self.of("") if not term.negated for value in term.values)

    # --- changed, for links -------------------------------------------------------------------

    def with_(self, key: str, *values: str) -> Query:
        """The same with these values for a key, whatever it asked of it before, in the place where it did."""
        if not values:
            return self.without(key)
        new = Term(key, tuple(map(_value, values)))
        place = next((number for number, term in enumerate(self.terms) if term.key == key), len(self.terms))
        rest = [term for term in self.terms if term.key != key]
        return Query((*rest[:place], new, *rest[place:]))

    def without(self, key: str) -> Query:
        return Query(tuple(term for term in self.terms if term.key != key))

    def toggled(self, key: str, value: str) -> Query:
        """The same with one more value for a key, or without it where it was there."""
        now = self.values(key)
        return self.with_(key, *([each for each in now if each != value] if value in now else [*now, value]))


def parse(text: str | None, grammar: Grammar) -> Query:
    """A query that this list understands, or where it stops making sense and what was probably meant."""
    text = text or ""
    if len(text) > LONGEST:
        raise mistake("too_long", LONGEST, most=f"{LONGEST:,}")
    bad = _UNSTORABLE.search(text)
    if bad is not None:
        raise mistake("no_character", bad.start() + 1)
    terms: list[Term] = []
    for term, place in _terms(text):
        if len(terms) == MOST_TERMS:
            raise mistake("too_many_terms", place + 1, most=MOST_TERMS)
        terms.append(grammar.checked(term, place + 1))
    return Query(tuple(terms))


def mistake(
    kind: str, position: int, *, said: str = "", near: str = "", known: Iterable[str] = (), **data: Any
) -> QueryInvalid:  # fmt: skip
    """One of the `PROBLEMS`, in other words where those say more, with what was probably meant by `near`."""
    names = sorted(set(known))
    return QueryInvalid(
        problem=said or PROBLEMS[kind] % data, position=position, hint=did_you_mean(near, names), kind=kind, data=data,
        meant=closest(near, names), known=names,
    )  # fmt: skip


def _terms(text: str) -> Iterator[tuple[Term, int]]:
    place = 0
    while True:
        gap = _SPACE.match(text, place)
        place = gap.end() if gap else place
        if place == len(text):
            return
        start = place
        negated = text[place] == "-" and place + 1 < len(text) and not _SPACE.match(text, place + 1)
        place += negated
        key = _KEY.match(text, place)
        if key is None:
            word, place = _word(text, place, _BARE_TEXT, "a text")
            yield Term("", (Value(word),), negated), start
            continue
        values, place = _values(text, key.end(), key[1].lower())
        yield Term(key[1].lower(), values, negated), start


def _values(text: str, place: int, key: str) -> tuple[tuple[Value, ...], int]:
    values = []
    while True:
        operator = _OPERATOR.match(text, place)
        place = operator.end() if operator else place
        word, place = _word(text, place, _BARE_VALUE, key)
        values.append(Value(word, operator[0] if operator else ""))
        if len(values) > MOST_VALUES:
            raise mistake("too_many_values", place, key=key, most=MOST_VALUES)
        if place == len(text) or text[place] != ",":
            return tuple(values), place
        place += 1


def _word(text: str, place: int, bare: re.Pattern[str], what: str) -> tuple[str, int]:
    if text.startswith('"', place):
        found = _QUOTED.match(text, place)
        if found is None:
            raise mistake("unclosed", place + 1)
        if found.end() < len(text) and not text[found.end()].isspace() and text[found.end()] != ",":
            raise mistake("joined", found.end() + 1)
        word = _ESCAPED.sub(r"\1", found[1])
        if not word:
            raise mistake("empty", place + 1)
        return word, found.end()
    found = bare.match(text, place)
    if found is None:
        raise mistake("value_missing", place + 1, key=what)
    return found[0], found.end()


def only(query: Query, key: str) -> str | None:
    """The one thing a key has to be, where the query names one."""
    named = [term for term in query.of(key) if not term.negated and len(term.values) == 1]
    plain = [term.values[0].text for term in named if not term.values[0].operator and "*" not in term.values[0].text]
    return plain[0] if plain else None


def _value(text: str) -> Value:
    operator = _OPERATOR.match(text)
    return Value(text[operator.end() :], operator[0]) if operator else Value(text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def renamed(term: Term, key: str, values: Iterable[Value]) -> Term:
    return replace(term, key=key, values=tuple(values))
