"""Errors alike, in groups: how often, since when, a sample, and all of their items tried again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Response
from pydantic import BaseModel

from dalsegno.catalog.find import ITEMS
from dalsegno.errors import InputInvalid, NotFound, QueryInvalid
from dalsegno.insight.groups import GROUPS, GroupLine, find_groups, get_group
from dalsegno.insight.query import parse
from dalsegno.web.api.asking import ACCEPTED, refusals, told
from dalsegno.web.api.bulk import started
from dalsegno.web.api.models import Asked, Command
from dalsegno.web.api.parameters import Cursor, Limit, Q, Word
from dalsegno.web.room import Here, Who, asker

router = APIRouter(tags=["exceptions"])


class Exceptions(BaseModel):
    exceptions: list[GroupLine]
    """Those met last first."""
    next_cursor: str | None
    partial: bool
    """The time was up before all were looked at: there may be more."""


@router.get("/exceptions", responses=refusals(QueryInvalid, InputInvalid))
def exceptions(here: Here, q: Q = None, cursor: Cursor = None, limit: Limit = 50) -> Exceptions:
    """Groups of errors alike, with their trend over a day: `service:download code:timeout age:<1d`."""
    query = parse(q, GROUPS)
    page = here.store.read(lambda tx: find_groups(tx, query, cursor=cursor, limit=limit))
    return Exceptions(exceptions=page.lines, next_cursor=page.next_cursor, partial=page.partial)


@router.get("/exceptions/{fingerprint}", responses=refusals(NotFound))
def exception(here: Here, fingerprint: Word) -> GroupLine:
    """One group, with a sample of what was said."""
    return here.store.read(lambda tx: get_group(tx, fingerprint))


@router.post("/exceptions/{fingerprint}/retry", status_code=202, responses={**ACCEPTED, **refusals(NotFound)})
def retry_exception(
    here: Here, who: Who, fingerprint: Word, response: Response, asked: Annotated[Asked | None, Body()] = None
) -> Command:
    """Try every item again that failed with it."""
    line = here.store.read(lambda tx: get_group(tx, fingerprint))
    by = asker(asked.requested_by if asked else None, who)
    return told(response, started(here, "retry", parse(line.query, ITEMS), by))
