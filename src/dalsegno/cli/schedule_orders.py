"""`dalsegno schedule add|set`: what is started by the clock, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dalsegno.cli.desk import Desk, command
from dalsegno.cli.run import From, ItemsFile, Modules, OfPlaylist, OfPool, OfQuery, OfSong, OfSource, Param
from dalsegno.cli.schedules import CRON, Name, Zone, find, full, hint, me, schedule_app
from dalsegno.cli.told_schedules import previewed

if TYPE_CHECKING:
    from pathlib import Path

    from dalsegno.cli.toolbox import Toolbox
    from dalsegno.engine.orders import Order
    from dalsegno.store.store import Store

app = schedule_app
Cron = Annotated[str | None, typer.Option("--cron", metavar="EXPRESSION", help=CRON)]
CatchUp = Annotated[
    str | None,
    typer.Option(metavar="POLICY", help="Runs missed while no engine was there: skip, one (the default) or all."),
]
Most = Annotated[int | None, typer.Option("--catch-up-most", metavar="N", help="With all: at most so many. 10.")]
Overlap = Annotated[
    str | None,
    typer.Option(metavar="POLICY", help="While the job before it is unfinished: skip (the default), queue or allow."),
]
Priority = Annotated[int | None, typer.Option(help="Of its jobs; smaller runs first. 100.")]


@command(schedule_app, "add")
def add(
    desk: Desk,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called.")],
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="What it starts: a template or a workflow.")],
    cron: Annotated[str, typer.Option("--cron", metavar="EXPRESSION", help=CRON)],
    time_zone: Zone = None,
    catch_up: CatchUp = None,
    catch_up_most: Most = None,
    overlap: Overlap = None,
    priority: Priority = None,
    param: Param = None,
    items: ItemsFile = None,
    services: Modules = None,
    source: OfSource = None,
    pool: OfPool = None,
    playlist: OfPlaylist = None,
    song: OfSong = None,
    query: OfQuery = "",
    download_source: From = None,
) -> None:
    """Start jobs by the clock, and show the next five times.

    What it starts is checked now, and again each time, with the settings of that moment. A run that cannot
    start is kept with its error; it does not stop the next one.

    **Examples**

    dalsegno schedule add nightly full --cron "30 2 * * *" --time-zone Europe/Berlin

    dalsegno schedule add rain sync-download --cron "0 */4 * * *" --playlist "Rain Songs" --overlap queue

    dalsegno schedule add frames render --cron "*/10 * * * MON-FRI" --catch-up skip --services mystudio.services
    """
    from dalsegno.clock import local_zone
    from dalsegno.engine import schedules as engine
    from dalsegno.insight.schedules import get_schedule

    request = _request(param, items, source, pool, playlist, song, query, download_source)
    said = _given(time_zone=time_zone or local_zone(), catch_up=catch_up, catch_up_most=catch_up_most, overlap=overlap,
                  priority=priority)  # fmt: skip
    with desk.store() as store:
        order = _checked(desk, store, workflow, request, services)
        wanted = engine.Schedule(name, order.workflow, cron, request=order.request, **said)
        made = store.write("schedule", lambda tx: engine.add(tx, wanted, me()))
        line = store.read(lambda tx: get_schedule(tx, made))
        now = store.clock.now()
        hint(desk, store)
    desk.answer(full(line, now), lambda console: previewed(console, line, now, f'Schedule "{name}" is added.'))


@command(schedule_app, "set")
def set_(
    desk: Desk,
    name: Name,
    rename: Annotated[str | None, typer.Option(metavar="NAME", help="Another name.")] = None,
    workflow: Annotated[str | None, typer.Option(metavar="WORKFLOW", help="Start this instead.")] = None,
    cron: Cron = None,
    time_zone: Zone = None,
    catch_up: CatchUp = None,
    catch_up_most: Most = None,
    overlap: Overlap = None,
    priority: Priority = None,
    param: Param = None,
    items: ItemsFile = None,
    services: Modules = None,
    source: OfSource = None,
    pool: OfPool = None,
    playlist: OfPlaylist = None,
    song: OfSong = None,
    query: OfQuery = "",
    download_source: From = None,
    everything: Annotated[bool, typer.Option("--everything", help="No scope any more: the whole catalog.")] = False,
) -> None:
    """Change a schedule. What is not said stays as it is; another time counts from now.

    **Examples**

    dalsegno schedule set nightly --cron "0 4 * * *"

    dalsegno schedule set nightly --catch-up all --catch-up-most 3 --overlap queue
    """
    from dalsegno.engine import schedules as engine

    request = _request(param, items, source, pool, playlist, song, query, download_source)
    changes = _given(name=rename, cron=cron, time_zone=time_zone, catch_up=catch_up, catch_up_most=catch_up_most,
                     overlap=overlap, priority=priority)  # fmt: skip
    with desk.store() as store:
        line = store.read(lambda tx: find(tx, name))
        if request or workflow or everything:
            kept = {key: value for key, value in line.schedule.request.items() if not (everything and key == "scope")}
            order = _checked(desk, store, workflow or line.schedule.workflow, {**kept, **request}, services)
            changes |= {"workflow": order.workflow, "request": dict(order.request)}
        store.write("schedule", lambda tx: engine.change(tx, line.schedule.id, changes, me()))
        after = store.read(lambda tx: find(tx, str(line.schedule.id)))
        now = store.clock.now()
    told = f'Schedule "{after.schedule.name}" is changed.' if changes else "Nothing was said to change."
    desk.answer(full(after, now), lambda console: previewed(console, after, now, told))


# --- what is asked for ------------------------------------------------------------------------------


def _checked(desk: Desk, store: Store, workflow: str, request: dict[str, Any], services: list[str] | None) -> Order:
    from dalsegno.catalog.orders import check_order
    from dalsegno.cli.toolbox import open_toolbox
    from dalsegno.engine.orders import Order
    from dalsegno.requests.workflow import PARSE

    settings = desk.settings
    toolbox: Toolbox = open_toolbox([*settings.services, *(services or ())])
    return check_order(store, Order(workflow, request), settings, toolbox.workflows, not_these=PARSE.name)


def _request(
    param: list[str] | None, items: Path | None, source: list[str] | None, pool: list[str] | None,
    playlist: list[str] | None, song: list[str] | None, query: str, download_source: list[str] | None,
) -> dict[str, Any]:  # fmt: skip
    from dalsegno.cli.inputs import items_from, pairs

    scope = {"sources": source, "pools": pool, "playlists": playlist, "songs": song, "query": query}
    asked = {
        "scope": {key: value for key, value in scope.items() if value},
        "params": pairs(param or (), "--param"),
        "items": items_from(items),
        "download_sources": download_source,
    }
    return {key: value for key, value in asked.items() if value}


def _given(**said: Any) -> dict[str, Any]:
    return {key: value for key, value in said.items() if value is not None}
