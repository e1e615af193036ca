"""What an upstream has, as it says it: its own list, passed on with our token and without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from dalsegno.errors import DalSegnoError, RequestInvalid, UpstreamBusy, UpstreamFailed, UpstreamUnknown
from dalsegno.model.suggest import did_you_mean
from dalsegno.requests.gate import Gate
from dalsegno.requests.room import BREAKER
from dalsegno.requests.room import Room as Tools
from dalsegno.requests.upstream import Listed, SearchSource
from dalsegno.web.api.asking import refusals
from dalsegno.web.room import Here, Room

router = APIRouter(prefix="/v1", tags=["parse requests"])

WARNING = "Warning"
WARNING_MAX = 1000
PARAMS_MAX = 40
LONGEST = 2000
_DRIFT = {
    WARNING: {
        "description": '`199 dalsegno "…"` where the upstream answered otherwise than documented, and how.',
        "schema": {"type": "string"},
    }
}


class SourceList(BaseModel):
    """One page."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    results: list[Any]
    """As the upstream has them."""
    total: int | None
    next_page: str | None
    """What to pass as `next_page` for the next one."""
    prev_page: str | None


Named = Annotated[str, Path(max_length=60, pattern=r"^[a-z0-9][a-z0-9-]*$", description="A search source: `kodik`.")]
Text = Annotated[str | None, Query(max_length=LONGEST)]
Turned = Annotated[str | None, Query(max_length=LONGEST, description="`nextPage` or `prevPage` of an answer.")]


@router.get(
    "/{source}/list",
    responses={
        200: {"headers": _DRIFT},
        **refusals(RequestInvalid, UpstreamUnknown, UpstreamFailed, UpstreamBusy),
    },
)
def source_list(
    here: Here,
    request: Request,
    response: Response,
    source: Named,
    limit: Annotated[int | None, Query(ge=1, le=100, description="Results on a page.")] = None,
    types: Text = None,
    year: Text = None,
    translation_id: Text = None,
    sort: Text = None,
    order: Text = None,
    next_page: Turned = None,
    prev_page: Turned = None,
) -> SourceList:
    """What there is, a page at a time, filtered and sorted by the upstream itself: it gets all other parameters, too.

    An answer in a shape that is not the documented one is passed on with a `Warning` header.
    """
    upstream = _upstream(request, source)
    said = {
        "limit": limit, "types": types, "year": year, "translation_id": translation_id, "sort": sort, "order": order,
        "next_page": next_page, "prev_page": prev_page,
    }  # fmt: skip
    found = _ask(here, upstream, _params(request, said))
    if found.drift:
        response.headers[WARNING] = _warning(source, found.drift)
    return SourceList(
        results=found.results, total=found.total, next_page=found.next_page, prev_page=found.prev_page
    )  # fmt: skip


def _params(request: Request, said: Mapping[str, Any]) -> dict[str, str]:
    params = {name: value for name, value in request.query_params.items() if name not in said and value}
    params |= {name: str(value) for name, value in said.items() if value}
    if len(params) > PARAMS_MAX or any(len(text) > LONGEST for pair in params.items() for text in pair):
        raise RequestInvalid(problem="These are more parameters, or longer ones, than any list has.")
    return params


def _upstream(request: Request, name: str) -> SearchSource:
    tools: Tools = request.app.state.parse_tools
    upstreams = tools.upstreams
    if name in upstreams.names():
        found = upstreams.get(name)
        if found.can("listing"):
            return found
    hint = " Set KODIK_URL in dalsegno.env." if name == "kodik" else did_you_mean(name, upstreams.names())
    raise UpstreamUnknown(name=name, hint=hint)


def _ask(here: Room, upstream: SearchSource, params: dict[str, str]) -> Listed:
    try:
        with Gate(here.store, BREAKER).passing(f"search:{upstream.name}"):
            return upstream.listing(params)
    except DalSegnoError:
        raise
    except Exception as error:  # whatever a plug-in raises is its upstream's trouble, not ours
        raise UpstreamFailed(name=upstream.name, problem=str(error) or type(error).__name__) from error


def _warning(source: str, drift: tuple[str, ...]) -> str:
    """RFC 9111 calls it obsolete; the clients that look for it are not."""
    text = f"{source}: {'; '.join(drift)}".replace("\\", "/").replace('"', "'")[:WARNING_MAX]
    return f'199 dalsegno "{text.encode("ascii", "replace").decode()}"'
