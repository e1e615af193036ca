"""`dalsegno bulk`: something done to everything that a query finds. First a look, then a durable operation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dalsegno.cli import exits
from dalsegno.cli.desk import Desk, command, number
from dalsegno.cli.jobs import Limit

if TYPE_CHECKING:
    from rich.console import Console

    from dalsegno.insight.bulk import Preview
    from dalsegno.insight.operations import Operation

app = typer.Typer(no_args_is_help=True, help="Do something to everything that a query finds.")
LOOKING = 2.0
"""Seconds for counting before it says "at least"."""
WITH_SIGNS = {"ignore_unknown_options": True}  # -error:429 and -3 are no options

Which = Annotated[
    str, typer.Argument(metavar="QUERY", help='Which items, as in the console: "state:failed -error:429".')
]
OfJob = Annotated[int | None, typer.Option("--job", parser=number, metavar="JOB", help="Only items of this job.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
Look = Annotated[bool, typer.Option("--preview", help="Only say what it would do.")]
Leave = Annotated[bool, typer.Option("--no-wait", help="Ask for it and leave; an engine does it.")]
Operated = Annotated[int, typer.Argument(parser=number, metavar="N", help="The operation's number.")]


@command(app, "retry", context_settings=WITH_SIGNS)
def retry(desk: Desk, query: Which, job: OfJob = None, yes: Yes = False, preview: Look = False,
          no_wait: Leave = False) -> None:  # fmt: skip
    """Give failed and interrupted items new attempts; finished jobs go back to work for them.

    **Example**

    dalsegno bulk retry "state:failed stage:download -error:429"
    """
    _do(desk, "bulk_retry", query, job, yes, preview, no_wait)


@command(app, "force-retry", context_settings=WITH_SIGNS)
def force_retry(desk: Desk, query: Which, job: OfJob = None, yes: Yes = False, preview: Look = False,
                no_wait: Leave = False) -> None:  # fmt: skip
    """Run items again although they are done: nothing they made before is reused."""
    _do(desk, "bulk_force_retry", query, job, yes, preview, no_wait)


@command(app, "cancel", context_settings=WITH_SIGNS)
def cancel(desk: Desk, query: Which, job: OfJob = None, yes: Yes = False, preview: Look = False,
           no_wait: Leave = False) -> None:  # fmt: skip
    """Take what waits out of its job for good; nothing follows from it. What runs is not touched."""
    _do(desk, "bulk_cancel", query, job, yes, preview, no_wait)


@command(app, "skip", context_settings=WITH_SIGNS)
def skip(desk: Desk, query: Which, job: OfJob = None, yes: Yes = False, preview: Look = False,
         no_wait: Leave = False) -> None:  # fmt: skip
    """Do not do these, and let what follows go on: pending, failed and interrupted items become skipped."""
    _do(desk, "bulk_skip", query, job, yes, preview, no_wait)


@command(app, "priority", context_settings=WITH_SIGNS)
def priority(
    desk: Desk,
    query: Which,
    priority: Annotated[int, typer.Argument(metavar="PRIORITY", help="Smaller runs first; a job has 100 by default.")],
    job: OfJob = None,
    yes: Yes = False,
    preview: Look = False,
    no_wait: Leave = False,
) -> None:
    """Change when the jobs get their turn that own these items. Jobs that are over are left alone.

    **Example**

    dalsegno bulk priority "playlist:12 state:pending" 50
    """
    _do(desk, "bulk_priority", query, job, yes, preview, no_wait, priority)


@command(app, "list")
def list_of_operations(
    desk: Desk,
    cursor: Annotated[str | None, typer.Option("--cursor", metavar="CURSOR", help="The next page.")] = None,
    limit: Limit = 20,
) -> None:
    """List operations, newest first."""
    from dalsegno.cli.jobs import onward
    from dalsegno.cli.words import coloured, escaped, moment, table
    from dalsegno.insight.operations import find_operations

    with desk.store() as store:
        page = store.read(lambda tx: find_operations(tx, cursor=cursor, limit=limit))

    def show(console: Console) -> None:
        if not page.lines:
            console.print('No operations yet. For example: dalsegno bulk retry "state:failed"')
            return
        rows = [
            (str(each.id), each.verb, escaped(_which(each)), coloured(each.state), f"{each.done:,}",
             f"{sum(each.refused.values()):,}", escaped(each.command.requested_by), moment(each.command.created_at))
            for each in page.lines
        ]  # fmt: skip
        columns = ("bulk", "what", "which", "state", "done", "not done", "by", "asked")
        console.print(table(columns, rows, right=("bulk", "done", "not done")))
        onward(console, page)

    desk.answer({"operations": page.lines, "next_cursor": page.next_cursor}, show)


@command(app, "show")
def show_operation(desk: Desk, operation: Operated) -> None:
    """Show one operation: how far it is, to how many not and why, and how to find what it changed."""
    from dalsegno.insight.operations import get_operation

    with desk.store() as store:
        found = store.read(lambda tx: get_operation(tx, operation))
    desk.answer(found, lambda console: console.print("\n".join(_told(found)), markup=False))


@command(app, "stop")
def stop(desk: Desk, operation: Operated) -> None:
    """Stop an operation after the bit it is at; what it has done stays done."""
    from dalsegno.engine.bulk import stop_bulk
    from dalsegno.insight.operations import get_operation

    with desk.store() as store:
        store.write("stop", lambda tx: stop_bulk(tx, operation))
        found = store.read(lambda tx: get_operation(tx, operation))
    text = f"Operation {operation} stops after the bit it is at. What it has done stays done."
    desk.answer(found, lambda console: console.print(text, markup=False))


# --- doing it ---------------------------------------------------------------------------------------


def _do(
    desk: Desk, kind: Any, query: str, job: int | None, yes: bool, look: bool, leave: bool,
    priority: int | None = None,
) -> None:  # fmt: skip
    from dalsegno.catalog.find import ITEMS
    from dalsegno.cli.ask import whoami
    from dalsegno.cli.following import follow
    from dalsegno.engine.commander import request
    from dalsegno.engine.priority import checked_priority
    from dalsegno.insight.bulk import preview
    from dalsegno.insight.operations import VERBS, get_operation
    from dalsegno.insight.query import parse

    asked = parse(query, ITEMS)
    asked = asked if job is None else asked.with_("job", str(job))
    payload: dict[str, Any] = {"query": str(asked)}
    if priority is not None:
        payload["priority"] = checked_priority(priority)
    with desk.store() as store:
        seen = store.read(lambda tx: preview(tx, kind, asked, among=ITEMS, priority=priority, seconds=LOOKING))
        nothing = not seen.eligible and not seen.more
        if look or nothing:
            desk.answer({"preview": seen, "operation": None}, lambda console: _show(console, seen, VERBS[kind]))
            return
        if not yes:
            _confirm(desk, seen, VERBS[kind])
        number = store.write(
            "request", lambda tx: request(tx, kind, job_id=job, payload=payload, requested_by=whoami())
        )
        desk.say(f"Operation {number}.")
        left = leave or follow(desk, store, number, expected=None if seen.more else seen.found)
        done = store.read(lambda tx: get_operation(tx, number))
    desk.answer(
        {"preview": seen, "operation": done}, lambda console: console.print("\n".join(_told(done)), markup=False)
    )
    raise typer.Exit(_code(done, bool(left), leave))


def _confirm(desk: Desk, seen: Preview, verb: str) -> None:
    from dalsegno.errors import InputInvalid

    if desk.as_json or not sys.stdin.isatty():
        raise InputInvalid(problem="Nothing was started. Say --yes to do it, or --preview to look only.")
    _show(desk.aside, seen, verb)
    if not typer.confirm("Do it?", err=True):
        raise typer.Exit(exits.CANCELED)


def _code(done: Operation, left: bool, asked_to_leave: bool) -> int:
    if done.state == "rejected":
        return exits.BAD_INPUT
    if done.over:
        return exits.CANCELED if done.state == "stopped" else exits.OK
    return exits.SIGNALED + 2 if left and not asked_to_leave else exits.OK


# --- saying it --------------------------------------------------------------------------------------

WHY = {
    "being_canceled": "their job is being canceled",
    "twin_active": "another job does the same now",
    "another_job": "of another job",
    "same_priority": "have this priority already",
    "finished": "are over",
    "pruned": "their job is kept no longer",
}


def _count(many: int, unit: str) -> str:
    return f"{many:,} {unit[:-1] if many == 1 else unit}"


def _refused(refused: dict[str, int]) -> list[str]:
    return [f"  not {count:,}: {WHY.get(why, why)}" for why, count in refused.items()]


def _show(console: Console, seen: Preview, verb: str) -> None:
    least = "at least " if seen.more else ""
    lines = [f"{verb}: {least}{_count(seen.eligible, seen.unit)}", *_refused(seen.refused)]
    if seen.waiting is not None:
        lines.append(f"  {_count(seen.waiting, 'items')} of theirs wait")
    lines += [f"  {name}" for name in seen.names]
    hidden = seen.eligible - len(seen.names)
    if seen.names and (hidden > 0 or seen.more):
        lines.append(f"  … and {least}{max(hidden, 0):,} more")
    console.print("\n".join(lines), markup=False)


def _which(operation: Operation) -> str:
    return operation.query if operation.query is not None else f"{operation.named:,} by number"


def _told(done: Operation) -> list[str]:
    """What it did, and how to find it."""
    head = f"Operation {done.id} ({done.verb}, {_which(done) or 'everything'}): {done.state}"
    lines = [f"{head}, {_count(done.done, done.unit)} changed.", *_refused(done.refused)]
    if done.command.error_message:
        lines.append(f"  {done.command.error_message}")
    if done.result and done.unit == "items":
        lines.append(f'  What it changed: dalsegno items -q "{done.result}"')
        lines.append(f'  What failed again of it: dalsegno items -q "{done.result} state:failed"')
    if done.result:
        lines.append(f'  Its jobs: dalsegno jobs -q "{done.result}"')
    if not done.over:
        lines.append(f"  It goes on. Look: dalsegno bulk show {done.id}; stop it: dalsegno bulk stop {done.id}")
    return lines
