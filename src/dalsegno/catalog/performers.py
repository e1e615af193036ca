"""Who sings: artists in one text taken apart, and whether two are the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

from dalsegno.catalog.letters import BRACKETS, folded, near, words

TEXT_MAX = 500
PEOPLE_MAX = 40
_BETWEEN = re.compile(
    r"\s*(?:[;、;×|]|\bfeat(?:uring)?\b\.?|\bft\b\.?|\bvs\b\.?|(?<=\s)(?:&|\+|with|x)(?=\s)|(?<=\w{4})/(?=\w{4})"
    r"|\s/|/\s|(?<=[^\x00-\xff])[/&,·](?=\S)|(?<=\S)[/&](?=[^\x00-\xff])|,(?!\s*(?:the|jr|sr)\b)(?!\d))\s*",
    re.IGNORECASE,
)
_NOBODY = frozenset({"", "various artists", "various", "unknown artist", "unknown", "群星", "未知艺术家", "未知", "va"})


def split_artists(text: str) -> tuple[str, ...]:
    """The artists in one text, as written. A band whose name holds a separator is split too, on both sides alike."""
    text = " ".join(unicodedata.normalize("NFKC", text).split())  # of a run of spaces the pattern tries every part
    found = (part.strip(" \t,&/") for part in _BETWEEN.split(text))
    return tuple(dict.fromkeys(part for part in found if part)) or ((text.strip(),) if text.strip() else ())


@lru_cache(maxsize=4096)
def aliases(artist: str) -> frozenset[str]:
    """The names of one artist: with and without what stands in brackets."""
    text = folded(artist)
    inside = [next(group for group in found if group) for found in BRACKETS.findall(text) if any(found)]
    names = {re.sub(r"^the ", "", words(each) or each.strip()) for each in (BRACKETS.sub(" ", text), *inside)}
    return frozenset(name.replace(" ", "") for name in names if name not in _NOBODY)


def people(artists: Iterable[str], guests: Iterable[str] = ()) -> list[frozenset[str]]:
    found = [
        aliases(artist[:200]) for text in islice(artists, 2 * PEOPLE_MAX) for artist in split_artists(text[:TEXT_MAX])
    ]
    found += [aliases(guest[:200]) for guest in guests]
    return list(dict.fromkeys(each for each in found if each))[:PEOPLE_MAX]


def same_artist(one: frozenset[str], other: frozenset[str]) -> bool:
    return bool(one & other) or any(near(a, b) for a in one for b in other)


def shared(some: list[frozenset[str]], others: list[frozenset[str]]) -> float:
    """0: nobody in common; 1: the same people; one missing of many counts little."""
    if not some or not others:
        return 0.0
    common = min(
        sum(any(same_artist(a, b) for b in others) for a in some),
        sum(any(same_artist(a, b) for a in some) for b in others),
    )
    if not common:
        return 0.0
    return 0.7 + 0.3 * common / max(len(some), len(others))
