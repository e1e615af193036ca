"""`dalsegno schedules` and `dalsegno schedule add|show|set|pause|resume|run|remove|preview`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dalsegno.cli.desk import Desk, command, number
from dalsegno.cli.flow import ShowByDefault
from dalsegno.cli.jobs import Limit, Query, onward
from dalsegno.cli.run import From, ItemsFile, Modules, OfPlaylist, OfPool, OfQuery, OfSong, OfSource, Param
from dalsegno.cli.told_schedules import facts, line_of, previewed, run_rows

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from dalsegno.cli.toolbox import Toolbox
    from dalsegno.engine.orders import Order
    from dalsegno.insight.schedules import ScheduleLine
    from dalsegno.store.store import Store, Tx

app = typer.Typer()
schedule_app = typer.Typer(
    cls=ShowByDefault,
    no_args_is_help=True,
    help="Show a schedule (**dalsegno schedule NAME**), or add, change, pause, resume, run or remove one.",
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name, or its number.")]
CRON = "Five fields: minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly."
Cron = Annotated[str | None, typer.Option("--cron", metavar="EXPRESSION", help=CRON)]
Zone = Annotated[
    str | None,
    typer.Option("--time-zone", "--tz", metavar="ZONE", help="Whose clock it goes by: Europe/Berlin, UTC. Yours."),
]
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


@command(app, "schedules")
def schedules(
    desk: Desk,
    query: Query = "",
    cursor: Annotated[str | None, typer.Option("--cursor", metavar="CURSOR", help="The next page.")] = None,
    limit: Limit = 50,
) -> None:
    """List the schedules: what each starts, when it is due next, and what became of its last run.

    **Examples**

    dalsegno schedules --json

    dalsegno schedules -q "state:paused,failed template:full"
    """
    from dalsegno.cli.words import table
    from dalsegno.insight.query import parse
    from dalsegno.insight.schedules import SCHEDULES, find_schedules

    asked = parse(query, SCHEDULES)
    with desk.store() as store:
        page = store.read(lambda tx: find_schedules(tx, asked, cursor=cursor, limit=limit))
        now = store.clock.now()

    def show(console: Console) -> None:
        if not page.lines:
            told = "No such schedule." if query or cursor else "No schedules."
            console.print(f'{told} Add one: dalsegno schedule add nightly full --cron "30 2 * * *"', markup=False)
            return
        columns = ("schedule", "starts", "when", "next run", "last run")
        console.print(table(columns, [line_of(line, now) for line in page.lines]))
        onward(console, page)

    desk.answer({"schedules": page.lines, "next_cursor": page.next_cursor}, show)


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
        made = store.write("schedule", lambda tx: engine.add(tx, wanted, _me()))
        line = store.read(lambda tx: get_schedule(tx, made))
        now = store.clock.now()
        _hint(desk, store)
    desk.answer(_full(line, now), lambda console: previewed(console, line, now, f'Schedule "{name}" is added.'))


@command(schedule_app, "show")
def show(desk: Desk, name: Name, limit: Limit = 10) -> None:
    """Show a schedule: when it is due next, and what became of its runs."""
    from dalsegno.cli.words import table
    from dalsegno.insight.schedules import list_runs

    with desk.store() as store:
        line = store.read(lambda tx: _find(tx, name))
        runs = store.read(lambda tx: list_runs(tx, line.schedule.id, limit=limit))
        now = store.clock.now()

    def draw(console: Console) -> None:
        facts(console, line, now)
        if runs.lines:
            console.print(table(("due", "became", "job", "why"), run_rows(line, runs.lines), right=("job",)))
        else:
            console.print("It has not run yet.")

    desk.answer({**_full(line, now), "runs": runs.lines, "next_cursor": runs.next_cursor}, draw)


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
        line = store.read(lambda tx: _find(tx, name))
        if request or workflow or everything:
            kept = {key: value for key, value in line.schedule.request.items() if not (everything and key == "scope")}
            order = _checked(desk, store, workflow or line.schedule.workflow, {**kept, **request}, services)
            changes |= {"workflow": order.workflow, "request": dict(order.request)}
        store.write("schedule", lambda tx: engine.change(tx, line.schedule.id, changes, _me()))
        after = store.read(lambda tx: _find(tx, str(line.schedule.id)))
        now = store.clock.now()
    told = f'Schedule "{after.schedule.name}" is changed.' if changes else "Nothing was said to change."
    desk.answer(_full(after, now), lambda console: previewed(console, after, now, told))


@command(schedule_app, "pause")
def pause(
    desk: Desk,
    name: Name,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; shown with it.")] = None,
) -> None:
    """Start nothing until it is resumed. Jobs that it has started go on."""
    from dalsegno.engine import schedules as engine

    _act(desk, name, lambda tx, which: engine.pause(tx, which, _me(), reason), "is paused")


@command(schedule_app, "resume")
def resume(desk: Desk, name: Name) -> None:
    """Let it go on from now; what came meanwhile is not made up for."""
    from dalsegno.engine import schedules as engine

    _act(desk, name, lambda tx, which: engine.resume(tx, which, _me()), "goes on")


@command(schedule_app, "run")
def run(desk: Desk, name: Name) -> None:
    """Start it now, besides its times; also a paused one. An engine takes it up."""
    from dalsegno.engine import schedules as engine
    from dalsegno.insight.schedules import get_run

    with desk.store() as store:
        line = store.read(lambda tx: _find(tx, name))
        made = store.write("schedule", lambda tx: engine.run_now(tx, line.schedule.id, _me()))
        _hint(desk, store)
        found = store.read(lambda tx: get_run(tx, made))
    said = f'Schedule "{line.schedule.name}" will run as soon as an engine takes it up: dalsegno schedule {name}'
    desk.answer({"run": found}, lambda console: console.print(said, markup=False))


@command(schedule_app, "remove")
def remove(desk: Desk, name: Name) -> None:
    """Remove it with the record of its runs. The jobs that it started stay."""
    from dalsegno.engine import schedules as engine

    with desk.store() as store:
        line = store.read(lambda tx: _find(tx, name))
        store.write("schedule", lambda tx: engine.remove(tx, line.schedule.id, _me()))
    said = f'Schedule "{line.schedule.name}" is removed.'
    desk.answer({"removed": line.schedule.name}, lambda console: console.print(said, markup=False))


@command(schedule_app, "preview")
def preview(
    desk: Desk,
    cron: Annotated[str, typer.Argument(metavar="EXPRESSION", help=CRON)],
    time_zone: Zone = None,
    count: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="How many times.")] = 5,
) -> None:
    """Show when an expression is due. Nothing is stored.

    **Example**

    dalsegno schedule preview "0 9 1,15 * *" --time-zone Asia/Shanghai
    """
    from dalsegno.cli.told_schedules import times
    from dalsegno.clock import SystemClock, local_zone
    from dalsegno.insight.schedules import preview as look

    now = SystemClock().now()
    found = look(cron, time_zone or local_zone(), now, count)

    def draw(console: Console) -> None:
        console.print(f"{found.says} ({found.time_zone}):", markup=False)
        times(console, found.runs, found.time_zone, now)

    desk.answer(found, draw)


# --- shared ---------------------------------------------------------------------------------------


def _act(desk: Desk, name: str, work: Any, done: str) -> None:
    with desk.store() as store:
        line = store.read(lambda tx: _find(tx, name))
        store.write("schedule", lambda tx: work(tx, line.schedule.id))
        after = store.read(lambda tx: _find(tx, str(line.schedule.id)))
        now = store.clock.now()
    desk.answer(
        _full(after, now), lambda console: previewed(console, after, now, f'Schedule "{after.schedule.name}" {done}.')
    )


def _find(tx: Tx, name: str) -> ScheduleLine:
    from dalsegno.insight.schedules import get_schedule

    return get_schedule(tx, number(name) if name.isdecimal() else name)


def _full(line: ScheduleLine, now: Any) -> dict[str, Any]:
    return {"schedule": line.schedule, "last": line.last, "upcoming": line.upcoming(now)}


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


def _me() -> str:
    from dalsegno.cli.ask import whoami

    return whoami()


def _hint(desk: Desk, store: Store) -> None:
    from dalsegno.cli.ask import hint_if_alone

    hint_if_alone(desk, store)
