"""`dalsegno prune` and `dalsegno archive`: what is over goes, and comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dalsegno.cli.desk import Desk, command

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer()
archive_app = typer.Typer(no_args_is_help=True, help="Months of events and logs that were put away.")
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would go, and why.")]
MonthLabel = Annotated[str, typer.Argument(metavar="MONTH", help="As `archive list` shows it, for example 2026-05.")]
KindOption = Annotated[str | None, typer.Option(metavar="KIND", help="events or logs; both unless said.")]


@command(app, "prune")
def prune(desk: Desk, dry_run: DryRun = False) -> None:
    """Take away what is over and need not be kept any longer, as the RETENTION_… settings say.

    A running engine does so by itself, a little every minute. Jobs with items that could still be retried stay, and
    so does whatever songs, files and settings are about.

    **Examples**

    dalsegno prune --dry-run

    dalsegno prune
    """
    from dalsegno.insight.retention import preview

    settings = desk.settings
    with desk.store() as store:
        if not dry_run:
            _prune(desk, store, settings)
            return
        found = preview(store, settings.retention)

    def show(console: Console) -> None:
        if not found.goes:
            console.print("Nothing would go.")
        for head, lines in (("Would go:", found.goes), ("Would stay although it is old:", found.kept)):
            if lines:
                console.print(head)
            for each in lines:
                more = "more than " if each.more else ""
                lane = f"{each.lane}: " if each.lane else ""
                of = f" with {each.items:,} items" if each.items else ""
                some = (
                    f" ({', '.join(each.names)}{', …' if each.count > len(each.names) > 1 else ''})"
                    if each.names
                    else ""
                )
                console.print(f"  {lane}{more}{each.count:,} {each.what}{of}, {each.because}{some}", markup=False)

    desk.answer(found, show)


def _prune(desk: Desk, store: Any, settings: Any) -> None:
    from collections import Counter

    from dalsegno.archive.keeper import Keeper
    from dalsegno.engine.pruner import TOLD, one_round
    from dalsegno.engine.pruning import Elsewhere

    total: Counter[str] = Counter()
    keeper = Keeper(store, lambda: settings) if store.shared else None
    try:
        for taken in one_round(store, settings.retention, keep=keeper, again=True):
            total += taken
    except Elsewhere:
        desk.say("An engine is pruning at this moment; it goes on by itself.")
    removed = {kind: total[kind] for kind in TOLD if total[kind]}
    text = ", ".join(f"{count:,} {kind}" for kind, count in removed.items()) or "nothing"
    desk.answer({"removed": removed}, lambda console: console.print(f"Removed: {text}."))


@command(archive_app, "list")
def list_months(desk: Desk) -> None:
    """Show which months were put away, and where."""
    from dalsegno.archive.restoring import list_archives
    from dalsegno.cli.words import escaped, moment, table

    with desk.store() as store:
        found = store.read(list_archives)

    def show(console: Console) -> None:
        rows = [
            (each.label, each.kind, f"{each.rows:,}", f"{each.size_bytes:,}", moment(each.archived_at),
             "in the database" if each.dropped_at is None or each.restored_at else "put away",
             escaped(f"{each.store}/{each.key}"))
            for each in found
        ]  # fmt: skip
        columns = ("month", "what", "rows", "bytes", "archived", "is", "where")
        console.print(table(columns, rows, right=("rows", "bytes")))

    desk.answer({"archives": found}, show)


@command(archive_app, "restore")
def restore_month(desk: Desk, month: MonthLabel, kind: KindOption = None) -> None:
    """Bring a month back into the database, byte for byte; it stays for 30 days.

    Of events and logs, what is there already is left as it is. The archive is read to its end and compared with its
    checksums first. One that is damaged is refused.
    """
    from dalsegno.archive.restoring import find_archives, restore
    from dalsegno.store.months import months

    settings = desk.settings
    with desk.store() as store:
        names = [each.name for each in store.read(lambda tx: find_archives(tx, month, kind))]
        there = {each.name for each in store.read(months)} if store.shared else set()
        left = [name for name in names if name not in there]
        # Where all are there, or one was asked for, restoring says what is wrong with that.
        back = [restore(store, settings, name) for name in left or names]
    stay = [name for name in names if name in there]
    lines = [f"{name} is in the database already." for name in stay]
    lines += [f"{each.name}: {each.rows:,} rows are back." for each in back]
    desk.answer({"restored": back, "there": stay}, lambda console: console.print("\n".join(lines)))
