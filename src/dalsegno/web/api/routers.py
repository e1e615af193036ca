"""Every part of the API, in the order in which its documentation shows them."""

from __future__ import annotations

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

ROUTERS = [
    module.router
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
