"""Everything that a query finds, or items by number: previewed, then changed by one tracked command."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field, StrictInt, model_validator

from dalsegno.catalog.find import ITEMS, source_facet
from dalsegno.engine.bulk import MOST_NAMED, stop_bulk
from dalsegno.errors import CommandRefused, InputInvalid, NotFound, QueryInvalid
from dalsegno.insight.bulk import Action, Preview, preview
from dalsegno.insight.commands import COMMANDS
from dalsegno.insight.facets import Facet, Facets, item_facets
from dalsegno.insight.operations import Operation, find_operations, get_operation
from dalsegno.insight.query import Query, parse
from dalsegno.requests.subjects import names_of
from dalsegno.store.store import Tx
from dalsegno.web.api.asking import ACCEPTED, ask, refusals, told
from dalsegno.web.api.models import Body, Command, Name
from dalsegno.web.api.parameters import Cursor, Limit, Number, Q
from dalsegno.web.room import Here, Room, Who, asker

router = APIRouter(tags=["items"])

Verb = Literal["retry", "force-retry", "cancel", "skip", "priority"]
KINDS: dict[Verb, Action] = {
    "retry": "bulk_retry", "force-retry": "bulk_force_retry", "cancel": "bulk_cancel", "skip": "bulk_skip",
    "priority": "bulk_priority",
}  # fmt: skip
Id = Annotated[StrictInt, Field(ge=1, lt=2**63)]
LOOKING = 1.0
"""Seconds for counting before a preview says "at least"."""


class Many(Body):
    """Which items, and what is to be done to them."""

    action: Verb
    q: str | None = Field(default=None, max_length=2000, description="All that this query finds.",
                          examples=["state:failed stage:download"])  # fmt: skip
    job: Id | None = Field(default=None, description="Only those of this job.")
    priority: StrictInt | None = Field(
        default=None, ge=-1_000_000, le=1_000_000,
        description="Of `priority`: what the jobs that own them get. Smaller runs first.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _numbered(self) -> Self:
        if (self.priority is not None) != (self.action == "priority"):
            raise ValueError("priority is a number, and belongs to the action priority.")
        return self


class Bulk(Many):
    items: list[Id] | None = Field(
        default=None, min_length=1, max_length=MOST_NAMED, description="Or these, by number."
    )
    requested_by: Name | None = None

    @model_validator(mode="after")
    def _said(self) -> Bulk:
        if (self.q is None) == (self.items is None):
            raise ValueError("Say which items: by a query (q), or by their numbers (items).")
        return self


class Previewed(BaseModel):
    action: Verb
    q: str
    """The query as it was understood."""
    eligible: int
    refused: dict[str, int]
    """How many it will not be done to, by why: a state, `being_canceled`; of jobs: `same_priority`."""
    more: bool
    """There are at least so many: the time for counting was up."""
    names: list[str]
    """What the first eligible ones are about."""
    unit: Literal["items", "jobs"]
    """What is counted. Of `priority`: the jobs that own the items and are not over."""
    waiting: int | None
    """Of jobs: how many items of theirs wait."""


class Operations(BaseModel):
    operations: list[Operation]
    """Newest first."""
    next_cursor: str | None
    partial: bool


class AllFacets(BaseModel):
    state: list[Facet]
    stage: list[Facet]
    service: list[Facet]
    group: list[Facet]
    """Groups of errors that items still have, whatever the query."""
    source: list[Facet]


@router.post("/bulk/preview", responses=refusals(QueryInvalid))
def bulk_preview(here: Here, asked: Many) -> Previewed:
    """To how many it would be done, to how many not and why, and to which first. Nothing is changed."""
    return previewed(here, asked.action, _query(asked.q, asked.job), asked.priority)


@router.post("/bulk", status_code=202, responses={**ACCEPTED, **refusals(NotFound, QueryInvalid, InputInvalid)})
def bulk(here: Here, who: Who, response: Response, asked: Bulk) -> Command:
    """Do it, bit by bit. `progress` of the command says how far it is; `POST /api/commands/{id}/stop` ends it."""
    by = asker(asked.requested_by, who)
    payload: dict[str, object] = {} if asked.priority is None else {"priority": asked.priority}
    payload |= {"query": str(_query(asked.q, asked.job))} if asked.items is None else {"items": asked.items}
    return told(response, ask(here.store, KINDS[asked.action], asked.job, payload, by))


@router.get("/bulk", responses=refusals(QueryInvalid, InputInvalid))
def operations(here: Here, q: Q = None, cursor: Cursor = None, limit: Limit = 50) -> Operations:
    """What was done to many items, by whom, and how far it is: `by:nas age:<1d`."""
    query = parse(q, COMMANDS)
    page = here.store.read(lambda tx: find_operations(tx, query, cursor=cursor, limit=limit))
    return Operations(operations=page.lines, next_cursor=page.next_cursor, partial=page.partial)


@router.get("/bulk/{operation_id}", responses=refusals(NotFound))
def operation(here: Here, operation_id: Number) -> Operation:
    """How far it is, to how many not and why. `result` finds what it changed: `/api/items?q=bulk:12 state:failed`."""
    return here.store.read(lambda tx: get_operation(tx, operation_id))


@router.post("/bulk/{operation_id}/stop", status_code=202, responses=refusals(NotFound, CommandRefused))
def stop_operation(here: Here, operation_id: Number) -> Operation:
    """End it after the bit it is at; what it has done stays done."""
    here.store.write("stop", lambda tx: stop_bulk(tx, operation_id))
    return here.store.read(lambda tx: get_operation(tx, operation_id))


@router.get("/facets", responses=refusals(QueryInvalid))
def facets(here: Here, q: Q = None) -> AllFacets:
    """What else a list of items could be narrowed to, each with how many there are."""
    query = parse(q, ITEMS)

    def read(tx: Tx) -> AllFacets:
        found: Facets = item_facets(tx, query, among=ITEMS)
        return AllFacets(
            state=found.state, stage=found.stage, service=found.service, group=found.group,
            source=source_facet(tx, query),
        )  # fmt: skip

    return here.store.read(read)


def _query(q: str | None, job: int | None) -> Query:
    query = parse(q, ITEMS)
    return query if job is None else query.with_("job", str(job))


# --- shared with the pages ------------------------------------------------------------------------


def previewed(here: Room, action: Verb, query: Query, priority: int | None = None) -> Previewed:
    def read(tx: Tx) -> Previewed:
        found: Preview = preview(tx, KINDS[action], query, among=ITEMS, priority=priority, seconds=LOOKING)
        names = names_of(tx, found.names)
        return Previewed(
            action=action, q=str(query), eligible=found.eligible, refused=found.refused, more=found.more,
            names=[names.get(key, key) for key in found.names], unit=found.unit, waiting=found.waiting,
        )  # fmt: skip

    return here.store.read(read)


def started(here: Room, action: Verb, query: Query, by: str, *, job_id: int | None = None) -> Command:
    return ask(here.store, KINDS[action], job_id, {"query": str(query)}, by)
