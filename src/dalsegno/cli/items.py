"""`dalsegno items` and `dalsegno item`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.desk import Desk, command, number
from dalsegno.cli.jobs import Cursor, Limit, Query, onward

if TYPE_CHECKING:
    from rich.console import Console

    from dalsegno.insight.items import ItemDetail

app = typer.Typer()
ItemId = Annotated[int, typer.Argument(parser=number, metavar="ITEM", help="The item's number.")]


@command(app, "items")
def items(
    desk: Desk,
    job_id: Annotated[
        int | None, typer.Argument(parser=number, metavar="[JOB]", help="The job's number; with --query: any.")
    ] = None,
    state: Annotated[str | None, typer.Option(help="Only these, for example failed,interrupted.")] = None,
    stage: Annotated[str | None, typer.Option(help="Only items of this stage.")] = None,
    after: Annotated[
        int | None, typer.Option(parser=number, metavar="ID", help="After this item: the next page.")
    ] = None,
    query: Query = "",
    cursor: Cursor = None,
    limit: Limit = 50,
) -> None:
    """List the items of a job, stage by stage; or with a query those of all jobs, newest first.

    **Examples**

    dalsegno items 3 --state failed,interrupted

    dalsegno items -q "state:failed stage:download -error:429"
    """
    from dalsegno.catalog.find import ITEMS
    from dalsegno.cli.inputs import choices
    from dalsegno.cli.words import coloured, escaped, span, table
    from dalsegno.errors import InputInvalid
    from dalsegno.insight.finding import find_items
    from dalsegno.insight.items import list_items
    from dalsegno.insight.query import parse
    from dalsegno.model.states import ItemStatus

    wanted = choices(state, ItemStatus, "item state")
    if job_id is None and not query:
        raise InputInvalid(problem='Say which: dalsegno items JOB, or dalsegno items -q "state:failed".')
    asked = parse(query, ITEMS)
    for key, values in (("state", wanted), ("stage", [stage]), ("job", [job_id])):
        asked = asked.with_(key, *(str(value) for value in values if value)) if any(values) else asked
    page = None
    with desk.store() as store:
        if query:
            page = store.read(lambda tx: find_items(tx, asked, among=ITEMS, cursor=cursor, limit=limit))
            lines = page.lines
        else:
            assert job_id is not None
            lines = store.read(lambda tx: list_items(tx, job_id, stage=stage, state=wanted, after=after, limit=limit))

    def show(console: Console) -> None:
        if not lines:
            console.print("No such items.")
            return
        rows = [
            (
                str(line.item.id), escaped(line.stage), escaped(line.item.key), coloured(line.item.status),
                str(line.item.attempt or ""), span(line.item.started_at, line.item.finished_at),
                escaped(line.item.error_message or line.item.progress_text),
            )
            for line in lines
        ]  # fmt: skip
        columns = ("item", "stage", "key", "status", "failures", "took", "")
        console.print(table(columns, rows, right=("item", "failures", "took")))
        if page is not None:
            onward(console, page)
        elif len(lines) == limit:
            console.print(f"More: --after {lines[-1].item.id}", style="dim")

    desk.answer(lines, show)


@command(app, "item")
def item(desk: Desk, item_id: ItemId) -> None:
    """Show one item: what it is, what it made, and everything that happened to it."""
    from dalsegno.insight.items import item_detail

    with desk.store() as store:
        detail = store.read(lambda tx: item_detail(tx, item_id))
    desk.answer(detail, lambda console: _show(console, detail))


def _show(console: Console, detail: ItemDetail) -> None:
    from dalsegno.cli.streams import event_text
    from dalsegno.cli.words import coloured, escaped

    item = detail.item
    console.print(
        f"Item {item.id}: {escaped(item.key)}, stage {escaped(detail.stage.key)} of job {item.job_id}, "
        f"{coloured(item.status)}"
    )
    if item.error_message:
        console.print(f"  {escaped(item.error_code)}: {escaped(item.error_message)}", style="red")
    facts = {
        "worker": detail.lease and detail.lease.worker,
        "phase": item.phase,
        "progress": None if item.progress is None else f"{item.progress:.0%} {item.progress_text or ''}",
        "failures": item.attempt or None,
        "interruptions": item.interruptions or None,
        "follows": None if detail.parent is None else f"item {detail.parent.id} ({detail.parent.status})",
        "params": item.params,
        "result": item.result,
    }
    for name, value in facts.items():
        if value is not None:
            console.print(f"  {name}: {escaped(value)}", style="dim")
    for file in detail.artifacts:
        console.print(f"  {file.kind}: {escaped(file.key)} ({file.size_bytes:,} bytes, sha256 {file.checksum[:12]}…)")
    for event in detail.events:
        console.print("  " + event_text(event), markup=False)
