"""Parse requests: submitted once, listed, canceled, tried again. Nobody has to hold a connection open, or to poll."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, NoReturn

from fastapi import APIRouter, Body, Query, Response
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from dalsegno.engine.submit import active_twin
from dalsegno.errors import CommandRefused, NotFound, PayloadTooLarge, RequestInvalid, TooManyRequests, TwinActive
from dalsegno.model.states import JOB_FINISHED
from dalsegno.model.suggest import did_you_mean
from dalsegno.requests import ask as asking
from dalsegno.requests.records import State
from dalsegno.requests.schema import STATES
from dalsegno.requests.view import Phase, RequestView, count_requests, list_requests, new_request, one_request
from dalsegno.store.store import Tx
from dalsegno.web.api.asking import ACCEPTED, ask, refusals, told
from dalsegno.web.api.jobs import retry_failed
from dalsegno.web.api.models import Asked, Command
from dalsegno.web.api.parameters import Number
from dalsegno.web.api.parse_body import BODY, CreatedBy, Wanted
from dalsegno.web.room import Here, Room, Who, asker

router = APIRouter(prefix="/v1/parse/requests", tags=["parse requests"])

TOTAL = "X-Total-Count"
MOST = 2**63 - 1
_LOCATION = {"Location": {"description": "The request's own address.", "schema": {"type": "string"}}}


class ParseRequest(BaseModel):
    """A request. What it found is read from `/api/v1/export/ready`, by everybody at their own pace."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    id: int
    request_hash: str
    """The same for requests that ask for the same."""
    status: State
    phase: Phase
    progress_decoded: int
    progress_total: int
    result_content_ids: list[int]
    error_message: str | None
    retry_count: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    last_heartbeat_at: datetime | None
    """When whoever works on it was last known to live; it moves also while nothing else does."""

    @classmethod
    def of(cls, view: RequestView) -> ParseRequest:
        return cls(
            id=view.id,
            request_hash=view.hash,
            status=view.status,
            phase=view.phase,
            progress_decoded=view.decoded,
            progress_total=view.total,
            result_content_ids=view.content_ids,
            error_message=view.error,
            retry_count=view.retry_count,
            created_at=view.created_at,
            started_at=view.started_at,
            finished_at=view.finished_at,
            last_heartbeat_at=view.heartbeat_at,
        )


@router.post(
    "",
    status_code=201,
    responses={
        201: {"description": "It is new.", "headers": _LOCATION},
        200: {
            "description": "The same was asked for before and is not finished yet: this is it.",
            "model": ParseRequest,
            "headers": _LOCATION,
        },
        **refusals(RequestInvalid, PayloadTooLarge, TooManyRequests),
    },
    openapi_extra=BODY,
)
def submit_parse_request(
    here: Here, who: Who, wanted: Wanted, created_by: CreatedBy, response: Response
) -> ParseRequest:
    """Ask for something to be searched and, with `decodeLinks`, decoded. It goes on whether or not anybody waits."""
    by = asker(created_by, who)
    asked = asking.ask(here.store, here.settings, wanted, created_by=created_by, requested_by=by)
    response.status_code = 201 if asked.created else 200
    response.headers["Location"] = f"/api/v1/parse/requests/{asked.id}"
    if asked.created:
        return ParseRequest.of(new_request(asked.id, wanted, created_by, asked.at))
    return ParseRequest.of(here.store.read(lambda tx: one_request(tx, asked.id)))


@router.get(
    "",
    responses={
        200: {"headers": {TOTAL: {"description": "How many there are on all pages.", "schema": {"type": "integer"}}}},
        **refusals(RequestInvalid),
    },
)
def parse_requests(
    here: Here,
    response: Response,
    status: Annotated[str | None, Query(max_length=20, description=f"One of {', '.join(STATES)}.")] = None,
    limit: Annotated[
        int | None, Query(ge=0, le=MOST, description="How many at most; 0 only counts. REQUESTS_MAX_PAGE_LIMIT holds.")
    ] = None,
    offset: Annotated[int, Query(ge=0, le=MOST, description="How many to leave out first.")] = 0,
) -> list[ParseRequest]:
    """Requests, newest first, and how many there are. To know how many wait: `?status=PENDING&limit=0`."""
    settings = here.settings
    if status is not None and status not in STATES:
        raise RequestInvalid(problem=f'There is no status "{status}".{did_you_mean(status, STATES)}')
    most = min(settings.requests_default_page_limit if limit is None else limit, settings.requests_max_page_limit)

    def read(tx: Tx) -> tuple[int, list[RequestView]]:
        found = list_requests(tx, state=status, limit=most, offset=offset)
        return count_requests(tx, state=status), found

    count, views = here.store.read(read)
    response.headers[TOTAL] = str(count)
    return [ParseRequest.of(view) for view in views]


@router.get("/{request_id}", responses=refusals(NotFound))
def parse_request(here: Here, request_id: Number) -> ParseRequest:
    """One request, for people who look. Programs need not poll it: `/api/v1/export/ready` has what is done."""
    return ParseRequest.of(here.store.read(lambda tx: one_request(tx, request_id)))


@router.post("/{request_id}/cancel", status_code=202, responses={**ACCEPTED, **refusals(NotFound, CommandRefused)})
def cancel_parse_request(
    here: Here, who: Who, request_id: Number, response: Response, asked: Annotated[Asked | None, Body()] = None
) -> Command:
    """What waits is canceled, what runs is asked to stop; what was found and decoded stays."""
    return told(response, cancel(here, request_id, asker(asked.requested_by if asked else None, who)))


@router.post(
    "/{request_id}/retry", status_code=202, responses={**ACCEPTED, **refusals(NotFound, CommandRefused, TwinActive)}
)
def retry_parse_request(
    here: Here, who: Who, request_id: Number, response: Response, asked: Annotated[Asked | None, Body()] = None
) -> Command:
    """Try again what failed of it. While another request does the same, 409 names that one (`twin`)."""
    return told(response, retry(here, request_id, asker(asked.requested_by if asked else None, who)))


# --- shared with the pages ------------------------------------------------------------------------


def cancel(here: Room, request_id: int, by: str) -> Command:
    view = here.store.read(lambda tx: one_request(tx, request_id))
    if view.job_status in JOB_FINISHED:
        _refuse(view, "canceled", "Nothing is left to cancel.")
    return ask(here.store, "cancel", request_id, None, by)


def retry(here: Room, request_id: int, by: str) -> Command:
    """An engine looks again when it comes to it; what it would refuse by then is most often known now."""

    def look(tx: Tx) -> tuple[RequestView, int | None]:
        found = one_request(tx, request_id)
        return found, active_twin(tx, asking.key_of(found.hash))

    view, twin = here.store.read(look)
    if twin is not None and twin != request_id:
        raise TwinActive(id=request_id, twin=twin)
    if not view.failed_items:
        waits = view.job_status not in JOB_FINISHED
        _refuse(view, "retried", "It will run by itself." if waits else "Nothing of it can be: submit it again.")
    return retry_failed(here, request_id, by)


def _refuse(view: RequestView, verb: str, fix: str) -> NoReturn:
    raise CommandRefused(what="Parse request", id=view.id, verb=verb, state=view.job_status, fix=fix)
