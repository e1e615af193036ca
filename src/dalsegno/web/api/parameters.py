"""What stands in addresses: numbers, names, cursors, queries and choices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from fastapi import Path, Query
from pydantic import AfterValidator

from dalsegno.engine.item import storable
from dalsegno.errors import InputInvalid
from dalsegno.model.suggest import did_you_mean

Number = Annotated[int, Path(ge=1, lt=2**63)]
FlowName = Annotated[
    str,
    Path(min_length=1, max_length=200, pattern=r"^\S+$", description="service:NAME, node:NAME, or any key: source:qq."),
    AfterValidator(storable),
]
Word = Annotated[str, Path(min_length=1, max_length=200), AfterValidator(storable)]
Limit = Annotated[int, Query(ge=1, le=500, description="How many at most.")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next_cursor` of the page before.")]
Choice = Annotated[str | None, Query(max_length=500, description="One, or several with commas between.")]
OfJob = Annotated[int | None, Query(ge=1, lt=2**63, description="Only of this job.")]
OfItem = Annotated[int | None, Query(ge=1, lt=2**63, description="Only of this item.")]
Named = Annotated[str | None, Query(max_length=200), AfterValidator(lambda text: text and storable(text))]


Q = Annotated[
    str | None,
    Query(
        max_length=2000,
        description="The query language: `key:value,or:value -not:this text`. An unknown key says which there are.",
        examples=["state:failed age:<2h"],
    ),
]


def place(cursor: str | None) -> int | None:
    """The id a page goes on after."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdecimal() and int(cursor) < 2**63):
        raise InputInvalid(problem="This cursor is not one of ours; take next_cursor of the page before.")
    return int(cursor)


def chosen(text: str | None, known: Iterable[str], what: str) -> list[str]:
    names = [part.strip() for part in (text or "").split(",") if part.strip()]
    allowed = [str(name) for name in known]
    for name in names:
        if name not in allowed:
            raise InputInvalid(problem=f'There is no {what} "{name:.60}".{did_you_mean(name, allowed)}')
    return names
