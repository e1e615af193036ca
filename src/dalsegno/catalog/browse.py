"""Playlists by query: `status:error platform:qq pool:"Charts" rain`.

Which they are is told from the last look at all of them (`judged`), so that facets, the number of all that match and
the page agree; the lines of a page are judged anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import sqlalchemy as sa

from dalsegno.catalog.judged import Judged, Shelves
from dalsegno.catalog.judgement import PlaylistStatus
from dalsegno.catalog.schema import playlist_pools, playlists, pool_playlists
from dalsegno.catalog.status import PlaylistLine, lines_of
from dalsegno.errors import InputInvalid
from dalsegno.insight.grammar import Condition, Key, containing, grammar, number, word
from dalsegno.insight.query import Query, Term, Value

if TYPE_CHECKING:
    from datetime import datetime

    from dalsegno.store.store import Tx

KEPT = 32
"""Queries whose facets are kept with a look."""
FACETS = ("status", "platform", "kind", "pool")


def _in_pool(value: Value, now: datetime) -> Condition:
    named = sa.select(playlist_pools.c.id).where(word(playlist_pools.c.name)(value, now))
    inside = sa.select(pool_playlists.c.playlist_id).where(pool_playlists.c.pool_id.in_(named))
    return playlists.c.id.in_(inside)


def _unasked(_value: Value, _now: datetime) -> Condition:
    """A status is derived: no column has it. Queries are answered from what was judged."""
    return sa.true()


PLAYLISTS = grammar(
    "playlists",
    containing(playlists.c.name),
    Key("status", "How it stands.", _unasked, values=tuple(PlaylistStatus)),
    Key("platform", "Where it comes from.", word(playlists.c.platform)),
    Key("source", "The same as platform.", word(playlists.c.platform)),
    Key("kind", "What kind of playlist it is.", word(playlists.c.kind)),
    Key("pool", "A pool it is in, by name or number.", _in_pool),
    Key("playlist", "Its number.", number(playlists.c.id), kind="number"),
)


@dataclass(frozen=True, slots=True)
class Found:
    lines: list[PlaylistLine]
    next_cursor: str | None
    total: int
    """How many match in all."""
    facets: dict[str, list[tuple[str, int]]]
    """By key, the values there are and how many playlists match that have them, most first. Of each key, as if it were
    not asked for: that is what choosing another value would find."""


def matching(shelves: Shelves, query: Query) -> list[Judged]:
    if not query:
        return shelves.playlists
    tests = [_test(term, shelves) for term in query.terms]
    return [each for each in shelves.playlists if all(test(each) for test in tests)]


def find_playlists(
    tx: Tx, shelves: Shelves, query: Query, backend_id: int | None, *, cursor: str | None = None, limit: int = 50
) -> Found:
    found = matching(shelves, query)
    start = _after(found, shelves, cursor)
    chosen = found[start : start + limit]
    lines = {line.id: line for line in lines_of(tx, [each.id for each in chosen], backend_id)}
    shown = [lines[each.id] for each in chosen if each.id in lines]
    # What changed since the look does not stand in a list of what it no longer is.
    asked = [_test(term, shelves) for term in query.of("status")]
    shown = [line for line in shown if all(test(_as_judged(line)) for test in asked)]
    more = str(chosen[-1].id) if start + limit < len(found) else None
    return Found(shown, more, len(found), facets(shelves, query))


def facets(shelves: Shelves, query: Query) -> dict[str, list[tuple[str, int]]]:
    """Counted once for a look: as long as it lasts, they do."""
    known = shelves.facets.get(str(query))
    if known is None:
        if len(shelves.facets) >= KEPT:
            shelves.facets.clear()
        known = {key: _counted(key, matching(shelves, query.without(key)), shelves) for key in FACETS}
        shelves.facets[str(query)] = known
    return known


def _counted(key: str, found: Iterable[Judged], shelves: Shelves) -> list[tuple[str, int]]:
    match key:
        case "status":
            counts = Counter(each.status for each in found)
            return [(status, counts[status]) for status in PlaylistStatus]
        case "pool":
            named = shelves.pool_names
            pools = Counter(named[number].name for each in found for number in each.pools if number in named)
            return pools.most_common()
        case _:
            return Counter(str(getattr(each, key)) for each in found if getattr(each, key)).most_common()


def _after(found: list[Judged], shelves: Shelves, cursor: str | None) -> int:
    if cursor is None:
        return 0
    last = next((each for each in shelves.playlists if str(each.id) == cursor), None)
    if last is None:
        raise InputInvalid(problem="This cursor is not one of ours; take next_cursor of the page before.")
    return sum((each.name, each.id) <= (last.name, last.id) for each in found)


def _as_judged(line: PlaylistLine) -> Judged:
    return Judged(line.id, line.name, line.platform, line.kind, line.status, tuple(pool.id for pool in line.pools))


def _test(term: Term, shelves: Shelves) -> Callable[[Judged], bool]:
    held = _held(term.key, [value.text for value in term.values], shelves)
    return (lambda each: not held(each)) if term.negated else held


def _held(key: str, wanted: list[str], shelves: Shelves) -> Callable[[Judged], bool]:
    match key:
        case "":
            texts = [text.casefold() for text in wanted]
            return lambda each: any(text in each.name.casefold() for text in texts)
        case "status":
            return lambda each: each.status in wanted
        case "pool":
            pools = {pool.id for pool in shelves.pools if str(pool.id) in wanted or _is(pool.name, wanted)}
            return lambda each: not pools.isdisjoint(each.pools)
        case "playlist":
            return lambda each: str(each.id) in wanted
        case "kind":
            return lambda each: _is(each.kind, wanted)
        case _:
            return lambda each: _is(each.platform, wanted)


def _is(text: str, wanted: list[str]) -> bool:
    return any(text == each or ("*" in each and fnmatchcase(text, each.replace("[", "[[]"))) for each in wanted)
