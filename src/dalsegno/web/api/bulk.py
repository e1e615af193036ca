"""Everything that a query finds, or items by number: previewed, then tried again or canceled as one tracked command."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field, StrictInt, model_validator

from dalsegno.catalog.find import ITEMS, source_facet
from dalsegno.engine.bulk import MOST_NAMED
from dalsegno.errors import InputInvalid, NotFound, QueryInvalid
from dalsegno.insight.bulk import Action, Preview, preview
from dalsegno.insight.facets import Facet, Facets, item_facets
from dalsegno.insight.query import Query, parse
from dalsegno.requests.subjects import names_of
from dalsegno.store.store import Tx
from dalsegno.web.api.asking import ACCEPTED, ask, refusals, told
from dalsegno.web.api.models import Body, Command, Name
from dalsegno.web.api.parameters import Q
from dalsegno.web.room import Here, Room, Who, asker

router = APIRouter(tags=["items"])

Verb = Literal["retry", "force-retry", "cancel"]
KINDS: dict[Verb, Action] = {"retry": "bulk_retry", "force-retry": "bulk_force_retry", "cancel": "bulk_cancel"}
Id = Annotated[StrictInt, Field(ge=1, lt=2**63)]


class Many(Body):
    """Which items, and what is to be done to them."""

    action: Verb
    q: str | None = Field(default=None, max_length=2000, description="All that this query finds.",
                          examples=["state:failed stage:download"])  # fmt: skip
    job: Id | None = Field(default=None, description="Only those of this job.")


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
    """How many it will not be done to, by why: a state, or `being_canceled`."""
    more: bool
    """There are more than these numbers say."""
    names: list[str]
    """What the first eligible ones are about."""


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
    return previewed(here, asked.action, _query(asked.q, asked.job))


@router.post("/bulk", status_code=202, responses={**ACCEPTED, **refusals(NotFound, QueryInvalid, InputInvalid)})
def bulk(here: Here, who: Who, response: Response, asked: Bulk) -> Command:
    """Do it, bit by bit. `progress` of the command says how far it is; `POST /api/commands/{id}/stop` ends it."""
    by = asker(asked.requested_by, who)
    if asked.items is not None:
        payload: dict[str, object] = {"items": asked.items}
        return told(response, ask(here.store, KINDS[asked.action], asked.job, payload, by))
    return told(response, started(here, asked.action, _query(asked.q, asked.job), by, job_id=asked.job))


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


def previewed(here: Room, action: Verb, query: Query) -> Previewed:
    def read(tx: Tx) -> Previewed:
        found: Preview = preview(tx, KINDS[action], query, among=ITEMS)
        names = names_of(tx, found.names)
        return Previewed(
            action=action, q=str(query), eligible=found.eligible, refused=found.refused, more=found.more,
            names=[names.get(key, key) for key in found.names],
        )  # fmt: skip

    return here.store.read(read)


def started(here: Room, action: Verb, query: Query, by: str, *, job_id: int | None = None) -> Command:
    return ask(here.store, KINDS[action], job_id, {"query": str(query)}, by)
