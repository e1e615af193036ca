"""Did you mean …? For every place where a name can be mistyped."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


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
    return next(iter(get_close_matches(name, sorted(set(known)), n=1, cutoff=0.6)), None)
