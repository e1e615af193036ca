"""Chips that narrow a list: a value, how many there are, and the address that asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from dalsegno.insight.query import Query
from dalsegno.web.console.frame import Frame
from dalsegno.web.console.words import number

MOST = 12
"""Values that are offered; others are reached by typing. What is chosen is always there."""

Chip = tuple[str, str | None, str, bool]


def chips(
    frame: Frame,
    query: Query,
    key: str,
    counted: Iterable[tuple[str, int | str | None]],
    label: Callable[[str], str] = str,
) -> list[Chip]:
    on = query.values(key)
    entries = list(islice(counted, 1000))
    shown: Sequence[tuple[str, int | str | None]] = [
        entry for place, entry in enumerate(entries) if place < MOST or entry[0] in on
    ]
    shown = [*shown, *((value, None) for value in on if value not in {name for name, _ in entries})]
    return [
        (
            label(value),
            number(count) if isinstance(count, int) else count,
            frame.with_(q=str(query.toggled(key, value)), cursor=None),
            value in on,
        )
        for value, count in shown
    ]
