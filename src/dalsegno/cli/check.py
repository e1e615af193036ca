"""`dalsegno check`: whether items, events and files agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dalsegno.cli import exits
from dalsegno.cli.desk import Desk, command

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from dalsegno.insight.agreement import Agreement
    from dalsegno.store.manifest import Told
    from dalsegno.store.store import Store

app = typer.Typer()

Deep = Annotated[
    bool, typer.Option("--deep", help="Read every file and compare its checksum. Takes as long as that takes.")
]
Files = Annotated[bool, typer.Option("--files/--no-files", help="Look for the files too.")]
Seconds = Annotated[
    float | None, typer.Option(min=1, metavar="N", help="Stop after so many seconds, and say how far it came.")
]


@command(app, "check")
def check(desk: Desk, deep: Deep = False, files: Files = True, seconds: Seconds = None) -> None:
    """Compare what is written down with itself and with the disk.

    Stages are recounted from their items, every item is compared with its last event, leases with both, and every
    file that is known with the one on the disk. What is gone from a library or a folder that files go to, which are
    there themselves, is written down as gone, what is there again as there; else it only reads. It works beside a
    running engine. Exit code 3: something does not fit.

    **Examples**

    dalsegno check

    dalsegno check --deep --json
    """
    from dalsegno.cli.bar import Bar

    with desk.store() as store, Bar(desk.aside) as bar:
        report = look(store, deep=deep, files=files, seconds=seconds, told=bar.told, proven=_proven_by(store))
    conclude(desk, {}, report, lambda _console: None)


def look(
    store: Store,
    *,
    deep: bool = False,
    files: bool = True,
    seconds: float | None = None,
    told: Told | None = None,
    proven: Callable[[str, Path], bool] | None = None,
) -> Agreement:
    from dalsegno.catalog.agreement import check_files
    from dalsegno.insight.agreement import Agreement, Deadline, check_records
    from dalsegno.store.manifest import untold

    report, deadline = Agreement(), Deadline(seconds)
    check_records(store, report, deadline, told or untold)
    if files:
        check_files(store, report, deadline, deep=deep, told=told or untold, proven=proven)
    report.seconds = round(deadline.spent(), 3)
    return report


def _proven_by(store: Store) -> Callable[[str, Path], bool]:
    """That a folder bears the id that it was given: nothing is gone from a disk that is not mounted."""
    from dalsegno.catalog.presence import Presence, StorePresence

    known = {each.kind: each(store, "") for each in (Presence, StorePresence)}
    return lambda kind, root: known[kind].is_proven(root)


def conclude(desk: Desk, answer: dict[str, Any], report: Agreement | None, first: Callable[[Console], None]) -> None:
    """Answer; exit with 3 where something does not agree."""

    def show(console: Console) -> None:
        first(console)
        if report is not None:
            _show(console, report)

    told = {} if report is None else {"check": {"agrees": report.agrees, **_plain(report)}}
    desk.answer({**answer, **told}, show)
    if report is not None and not report.agrees:
        raise typer.Exit(exits.COMPLETED_WITH_ERRORS)


def _plain(report: Agreement) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "looked": dict(report.looked), "found": dict(report.found), "named": [asdict(each) for each in report.named],
        "unsaid": report.unsaid, "complete": report.complete, "seconds": report.seconds,
    }  # fmt: skip


def _show(console: Console, report: Agreement) -> None:
    from dalsegno.cli.words import duration, escaped

    looked = ", ".join(f"{count:,} {name}" for name, count in report.looked.items())
    console.print(f"Looked at {looked or 'nothing'} in {duration(report.seconds)}.", markup=False)
    for line in report.unsaid:
        console.print(f"Not looked at: {line}", markup=False)
    if not report.complete:
        console.print("The time was up before everything was looked at: --seconds", markup=False)
    if report.agrees:
        console.print("Everything agrees." if report.complete else "So far everything agrees.")
        return
    for each in report.named:
        console.print(f"[red]{escaped(each.subject)}[/red] {escaped(each.says)}\n    {escaped(each.fix)}")
    more = sum(report.found.values()) - len(report.named)
    if more:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in report.found.items())
        console.print(f"… and {more:,} more. By kind: {kinds}", markup=False)
