"""`dalsegno schedules` and `dalsegno schedule show|pause|resume|run|remove|preview`; `add` and `set` are beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dalsegno.cli.desk import Desk, ShowByDefault, command, number
from dalsegno.cli.jobs import Limit, Query, onward
from dalsegno.cli.told_schedules import facts, line_of, previewed, run_rows

if TYPE_CHECKING:
    from rich.console import Console

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
Zone = Annotated[
    str | None,
    typer.Option("--time-zone", "--tz", metavar="ZONE", help="Whose clock it goes by: Europe/Berlin, UTC. Yours."),
]


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


@command(schedule_app, "show")
def show(desk: Desk, name: Name, limit: Limit = 10) -> None:
    """Show a schedule: when it is due next, and what became of its runs."""
    from dalsegno.cli.words import table
    from dalsegno.insight.schedules import list_runs

    with desk.store() as store:
        line = store.read(lambda tx: find(tx, name))
        runs = store.read(lambda tx: list_runs(tx, line.schedule.id, limit=limit))
        now = store.clock.now()

    def draw(console: Console) -> None:
        facts(console, line, now)
        if runs.lines:
            console.print(table(("due", "became", "job", "why"), run_rows(line, runs.lines), right=("job",)))
        else:
            console.print("It has not run yet.")

    desk.answer({**full(line, now), "runs": runs.lines, "next_cursor": runs.next_cursor}, draw)


@command(schedule_app, "pause")
def pause(
    desk: Desk,
    name: Name,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; shown with it.")] = None,
) -> None:
    """Start nothing until it is resumed. Jobs that it has started go on."""
    from dalsegno.engine import schedules as engine

    _act(desk, name, lambda tx, which: engine.pause(tx, which, me(), reason), "is paused")


@command(schedule_app, "resume")
def resume(desk: Desk, name: Name) -> None:
    """Let it go on from now; what came meanwhile is not made up for."""
    from dalsegno.engine import schedules as engine

    _act(desk, name, lambda tx, which: engine.resume(tx, which, me()), "goes on")


@command(schedule_app, "run")
def run(desk: Desk, name: Name) -> None:
    """Start it now, besides its times; also a paused one. An engine takes it up."""
    from dalsegno.engine import schedules as engine
    from dalsegno.insight.schedules import get_run

    with desk.store() as store:
        line = store.read(lambda tx: find(tx, name))
        made = store.write("schedule", lambda tx: engine.run_now(tx, line.schedule.id, me()))
        hint(desk, store)
        found = store.read(lambda tx: get_run(tx, made))
    said = f'Schedule "{line.schedule.name}" will run as soon as an engine takes it up: dalsegno schedule {name}'
    desk.answer({"run": found}, lambda console: console.print(said, markup=False))


@command(schedule_app, "remove")
def remove(desk: Desk, name: Name) -> None:
    """Remove it with the record of its runs. The jobs that it started stay."""
    from dalsegno.engine import schedules as engine

    with desk.store() as store:
        line = store.read(lambda tx: find(tx, name))
        store.write("schedule", lambda tx: engine.remove(tx, line.schedule.id, me()))
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
        line = store.read(lambda tx: find(tx, name))
        store.write("schedule", lambda tx: work(tx, line.schedule.id))
        after = store.read(lambda tx: find(tx, str(line.schedule.id)))
        now = store.clock.now()
    desk.answer(
        full(after, now), lambda console: previewed(console, after, now, f'Schedule "{after.schedule.name}" {done}.')
    )


def find(tx: Tx, name: str) -> ScheduleLine:
    from dalsegno.insight.schedules import get_schedule

    return get_schedule(tx, number(name) if name.isdecimal() else name)


def full(line: ScheduleLine, now: Any) -> dict[str, Any]:
    return {"schedule": line.schedule, "last": line.last, "upcoming": line.upcoming(now)}


def me() -> str:
    from dalsegno.cli.ask import whoami

    return whoami()


def hint(desk: Desk, store: Store) -> None:
    from dalsegno.cli.ask import hint_if_alone

    hint_if_alone(desk, store)
