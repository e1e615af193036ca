"""Did you mean …? For every place where a name can be mistyped."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint to append to an error: empty when there is nothing worth suggesting."""
    names = sorted(set(known))
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f' Did you mean "{close[0]}"?'
    if names:
        listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        return f" Known: {listed}."
    return ""
