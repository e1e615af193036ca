"""What stands in addresses: numbers, names, cursors, queries and choices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from fastapi import Path, Query, Request
from fastapi.routing import APIRoute
from pydantic import AfterValidator

from dalsegno.engine.item import storable
from dalsegno.errors import InputInvalid
from dalsegno.insight import query as language
from dalsegno.model.states import ItemStatus, Level
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
Status = Annotated[str | None, Query(max_length=500, description="The same as `state`.")]
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


async def only_known(request: Request) -> None:
    """A parameter that nobody knows is a mistake, and most often a misspelt one: left out, more would be found, or less
    done. What is read without any may be given somebody's own."""
    route: APIRoute = request.scope["route"]
    known = {field.alias for field in route.dependant.query_params}
    for name in request.query_params:
        if name not in known and (known or request.method != "GET"):
            said = storable(name)[:60]
            raise InputInvalid(problem=f'There is no parameter "{said}" here.{did_you_mean(said, known)}')


def narrowed(
    query: language.Query,
    *,
    job: int | None = None,
    item: int | None = None,
    stage: str | None = None,
    states: Iterable[str] = (),
    levels: Iterable[str] = (),
) -> language.Query:
    """A query with what was said beside it: `?job=12` and `?q=job:12` are the same."""
    said = {"job": (job,), "item": (item,), "stage": (stage,), "state": tuple(states), "level": tuple(levels)}
    for key, values in said.items():
        if found := [str(value) for value in values if value]:
            query = query.with_(key, *found)
    return query


def item_states(state: str | None, status: str | None) -> list[str]:
    """Lists are asked for a `state`, as in a query; their JSON says `status`."""
    return chosen(f"{state or ''},{status or ''}", ItemStatus, "item state")


def log_levels(level: str | None) -> list[str]:
    return chosen(level, Level, "level")


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
