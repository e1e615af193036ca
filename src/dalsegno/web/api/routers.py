"""Every part of the API, in the order in which its documentation shows them."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from dalsegno.web.api import (
    artifacts,
    bulk,
    commands,
    config,
    dashboard,
    events,
    exceptions,
    explain,
    export,
    flow,
    holds,
    items,
    jobs,
    journal,
    listing,
    parse,
    parse_search,
    plan,
    playlists,
    schedules,
    search,
    system,
    workers,
    workflows,
)
from dalsegno.web.api.parameters import only_known

LENIENT = (parse, parse_search, export, listing, events)
"""They take parameters that they do not know: other programs were promised as much, or pass more on."""


def _strict(router: APIRouter) -> APIRouter:
    outer = APIRouter(dependencies=[Depends(only_known)])
    outer.include_router(router)
    return outer


ROUTERS = [
    module.router if module in LENIENT else _strict(module.router)
    for module in (
        dashboard,
        jobs,
        plan,
        schedules,
        items,
        bulk,
        exceptions,
        playlists,
        parse,
        parse_search,
        export,
        listing,
        workers,
        events,  # before the journal: /events/stream is not an event
        journal,
        commands,
        config,
        holds,
        flow,
        search,
        explain,
        workflows,
        artifacts,
        system,
    )
]
