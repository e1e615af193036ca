"""`dalsegno workers`, `migrate` and `version`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.desk import Desk, command

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer()


@command(app, "workers")
def workers(desk: Desk) -> None:
    """Show who is at work: processes, their workers, and what each is doing."""
    from dalsegno.cli.words import coloured, duration, escaped, moment, table
    from dalsegno.insight.workers import list_nodes, list_processes, transfer_totals

    with desk.store() as store:
        processes, nodes, transfers = store.read(lambda tx: (list_processes(tx), list_nodes(tx), transfer_totals(tx)))

    def show(console: Console) -> None:
        if not processes:
            console.print("Nobody is at work. Start an engine: dalsegno agent")
        for line in processes:
            process = line.process
            state = "" if line.alive else " [red](no heartbeat)[/red]"
            since = f"since {moment(process.started_at)}, heartbeat {moment(process.heartbeat_at)}"
            console.print(f"{escaped(process.node)} process {process.pid}, {since}{state}")
            rows = [
                (
                    escaped(worker.name), coloured(worker.status), str(worker.item_id or ""),
                    "" if worker.progress is None else f"{worker.progress:.0%}", _speed(worker.speed),
                    duration(worker.seconds_left), escaped(worker.text),
                )
                for worker in line.workers
            ]  # fmt: skip
            columns = ("worker", "status", "item", "done", "speed", "left", "")
            console.print(table(columns, rows, right=("item", "done", "speed", "left")))
        if transfers.workers:
            console.print(f"{transfers.workers} transferring, {_speed(transfers.speed)} together")

    desk.answer({"processes": processes, "nodes": nodes, "transfers": transfers}, show)


def _speed(per_second: float | None) -> str:
    """Nothing for somebody who moves no bytes."""
    return "" if per_second is None else f"{per_second / (1 << 20):.2f} MB/s"


To = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="URL", help="Move everything to this database, which must be empty.", show_default=False
    ),
]
WithoutBackup = Annotated[
    bool, typer.Option("--without-backup", help="Change the schema though no backup is made first.")
]


@command(app, "migrate")
def migrate(desk: Desk, to: To = None, without_backup: WithoutBackup = False) -> None:
    """Bring the database to the schema of this version; or move everything to another database.

    Every command that opens an older database brings it up too, after a backup beside it (on PostgreSQL by pg_dump, in
    BACKUP_FOLDER). This one refuses where no backup can be made; the others go on with PostgreSQL, and say so.

    With --to, from SQLite to PostgreSQL or back: no engine may be at work. Every table is copied in one transaction,
    then read back and compared by counts and checksums. The old database stays as it is, with a note in it.

    **Examples**

    dalsegno migrate

    dalsegno migrate --to postgresql://dalsegno@db/dalsegno
    """
    from dalsegno.store.revisions import known_revisions

    if to is not None:
        _move(desk, to)
        return
    with desk.store(attended=True, backup=not without_backup) as store:
        where = store.url
    revision = known_revisions()[-1]
    answer = {"database": where, "revision": revision}
    desk.answer(answer, lambda console: console.print(f"{where} has schema {revision}.", markup=False))


def _move(desk: Desk, to: str) -> None:
    from dataclasses import asdict

    from dalsegno.cli.bar import Bar
    from dalsegno.moves.move import move
    from dalsegno.store.open import parse_url

    with Bar(desk.aside) as bar:
        moved = move(parse_url(desk.settings.database_url), parse_url(to), told=bar.told)

    def show(console: Console) -> None:
        console.print(
            f"{moved.rows:,} rows of {len(moved.tables)} tables moved from {moved.source} to {moved.target}; "
            "counts and checksums agree.",
            markup=False,
        )
        console.print("Now set DATABASE_URL to it. The old database is as it was, and is no longer used.")

    desk.answer({**asdict(moved), "rows": moved.rows}, show)


@command(app, "version")
def version(desk: Desk) -> None:
    """Show the versions of Dal Segno and of what it stands on."""
    import platform
    import sqlite3
    from importlib.metadata import version as installed

    from dalsegno.store.revisions import known_revisions
    from dalsegno.version import VERSION

    answer = {
        "dalsegno": VERSION,
        "schema": known_revisions()[-1],
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "sqlalchemy": installed("sqlalchemy"),
        "psycopg": installed("psycopg"),
    }

    def show(console: Console) -> None:
        for name, text in answer.items():
            console.print(f"{name:<11} {text}")

    desk.answer(answer, show)
