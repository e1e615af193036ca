"""The chain of sources asked for a song: `qq ✗ 429 → kuwo ✓ 2.1 s`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import sqlalchemy as sa

from dalsegno.catalog.schema import song_candidates
from dalsegno.store.store import Tx

_STATUS = re.compile(r"HTTP (\d{3})")
_BRIEF = (
    ("hedged away", "slower"),
    ("no match", "no match"),
    ("found nothing", "no match"),
    ("took too long", "timeout"),
    ("cannot be reached", "unreachable"),
    ("not offered", "not offered"),
    ("gone", "gone"),
)
LONGEST = 24


class Considered(Protocol):
    """What was considered, in memory or as a row."""

    @property
    def platform(self) -> str: ...
    @property
    def verdict(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def seconds(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Link:
    source: str
    chosen: bool
    says: str
    """Of one that was not taken: why, in a word."""
    seconds: float | None


def chain(candidates: Sequence[Considered]) -> list[Link]:
    """One link a source: what was said of it last, and the chosen one at the end."""
    refused: dict[str, Link] = {}
    for each in candidates:
        if each.verdict != "chosen" and not (each.platform in refused and _is_detail(each.reason)):
            refused[each.platform] = Link(each.platform, False, brief(each.reason), each.seconds)
    taken = [Link(each.platform, True, "", each.seconds) for each in candidates if each.verdict == "chosen"]
    return [*refused.values(), *taken]


def spoken(links: Sequence[Link]) -> str:
    return " → ".join(
        f"{link.source} ✓{'' if link.seconds is None else f' {link.seconds:.1f} s'}"
        if link.chosen
        else f"{link.source} ✗ {link.says}".rstrip()
        for link in links
    )


def brief(reason: str) -> str:
    """`429`, `no match`, `timeout`: what a line has room for."""
    if found := _STATUS.search(reason):
        return found[1]
    for beginning, word in _BRIEF:
        if reason.startswith(beginning):
            return word
    short = reason.partition(":")[0].strip().rstrip(".")
    return short if len(short) <= LONGEST else short[: LONGEST - 1].rstrip() + "…"


def chains_of(tx: Tx, item_ids: Iterable[int]) -> dict[int, list[Link]]:
    """Of the last attempt of each item that has one."""
    wanted = list(item_ids)
    if not wanted:
        return {}
    columns = (song_candidates.c.item_id, song_candidates.c.attempt, song_candidates.c.at, song_candidates.c.platform,
               song_candidates.c.verdict, song_candidates.c.reason, song_candidates.c.seconds)  # fmt: skip
    query = sa.select(*columns).where(song_candidates.c.item_id.in_(wanted))
    rows = tx.conn.execute(query.order_by(song_candidates.c.item_id, song_candidates.c.id)).all()
    last = {row.item_id: row.at for row in rows}
    found: dict[int, list[Considered]] = {}
    for row in rows:
        if row.at == last[row.item_id]:
            found.setdefault(row.item_id, []).append(row)
    return {item_id: chain(own) for item_id, own in found.items()}


def _is_detail(reason: str) -> bool:
    """A track that a search found and that was not it says less than what became of the search."""
    return reason.startswith(("other ", "another was taken", "not tried"))
