"""Did you mean …? For every place where a name can be mistyped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from operator import itemgetter

LIKELY = 0.6
WORD = re.compile(r"[^\W_]+")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint to append to an error: empty when there is nothing worth suggesting."""
    names = sorted(set(known))
    if close := closest(name, names):
        return f' Did you mean "{close}"?'
    if names:
        listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        return f" Known: {listed}."
    return ""


def closest(name: str, known: Iterable[str]) -> str | None:
    """What was meant, where that is likely."""
    likeness = ((_likeness(name, each), each) for each in sorted(set(known)))
    best, found = max(likeness, default=(0.0, ""), key=itemgetter(0))
    return found if best >= LIKELY else None


def _likeness(one: str, other: str) -> float:
    """Of the letters; or of the words in any order, as in EVENT_RETENTION_DAYS and RETENTION_EVENTS_DAYS."""
    one, other = one.casefold(), other.casefold()
    return max(_ratio(one, other), _ratio(_in_order(one), _in_order(other)))


def _ratio(one: str, other: str) -> float:
    matcher = SequenceMatcher(None, one, other)
    return 0.0 if matcher.real_quick_ratio() < LIKELY or matcher.quick_ratio() < LIKELY else matcher.ratio()


def _in_order(name: str) -> str:
    return " ".join(sorted(WORD.findall(name)))
