"""`dalsegno backup` and `restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dalsegno.cli.desk import Desk, command

if TYPE_CHECKING:
    import sqlalchemy as sa
    from rich.console import Console

app = typer.Typer()

Target = Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.", show_default=False)]
Force = Annotated[bool, typer.Option("--force", help="Replace FILE if it is there.")]


@command(app, "backup")
def backup(desk: Desk, file: Target, force: Force = False) -> None:
    """Back up the database while it is in use.

    Of SQLite the backup is a SQLite database, of PostgreSQL an archive of pg_dump (which has to be on this machine, see
    PG_BIN). It is read back before it counts. Beside it is FILE.manifest with what is in it and its checksum. The files
    of the library, what is in object stores and the settings file are not in it.

    **Examples**

    dalsegno backup /mnt/usb/dalsegno-monday.db

    dalsegno backup --force latest.dump --json
    """
    from dalsegno.cli.bar import Bar
    from dalsegno.store.backup import backup as write
    from dalsegno.store.manifest import beside

    settings = desk.settings
    with Bar(desk.aside) as bar:
        done = write(direct(desk), file, force=force, tools=settings.pg_bin, told=bar.told)
    note(desk, {"at": done.taken_at, "file": str(file.absolute()), "bytes": done.size})
    answer = {"file": str(file.absolute()), "manifest": str(beside(file.absolute())), **plain(done)}

    def show(console: Console) -> None:
        console.print(
            f"{file}: {done.size / 1e6:,.1f} MB, {done.rows:,} rows, schema {done.schema}, verified.", markup=False
        )
        for place in done.places:
            console.print(f"Not in it: the files in {place['url']}", markup=False)

    desk.answer(answer, show)


def direct(desk: Desk) -> sa.URL:
    """The database itself: PostgreSQL's own programs do not go through a pooler."""
    from dalsegno.store.open import parse_url
    from dalsegno.store.past import past_pooler

    settings = desk.settings
    listen = settings.listen_database_url
    return past_pooler(parse_url(settings.database_url), parse_url(listen) if listen else None)


def plain(manifest: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(manifest)


def note(desk: Desk, last: dict[str, Any]) -> None:
    """For `dalsegno doctor`: that there is a backup, and since when."""
    from dalsegno.cli.ask import whoami
    from dalsegno.errors import DalSegnoError
    from dalsegno.store.notes import BACKUP, write_note

    try:
        with desk.store(migrate=False) as store:
            store.write("note", lambda tx: write_note(tx, BACKUP, last, whoami()))
    except DalSegnoError as error:
        desk.say(f"The backup is good, but the database could not be told of it: {error}")


Source = Annotated[Path, typer.Argument(metavar="FILE", help="What `dalsegno backup` wrote.", show_default=False)]
Replace = Annotated[
    bool,
    typer.Option("--force", help="Replace what is in the database. A SQLite file is kept aside under another name."),
]
Moved = Annotated[
    list[str] | None,
    typer.Option("--moved", metavar="OLD=NEW", help="A library or store that has another place here. Repeatable."),
]
Check = Annotated[bool, typer.Option("--check/--no-check", help="Afterwards, whether items, events and files agree.")]


@command(app, "restore")
def restore(desk: Desk, file: Source, force: Replace = False, moved: Moved = None, check: Check = True) -> None:
    """Put a backup in the place of the database, which must be empty (or --force) and without an engine at work.

    The backup is checked first; then everything is restored or nothing is. An older schema is brought up. What was
    under lease is rescued as after a crash: jobs of the catalog come up paused, and go on once you resume them.

    **Examples**

    dalsegno restore dalsegno-monday.db --database sqlite:////srv/dalsegno/dalsegno.db

    dalsegno restore latest.dump --moved /mnt/old/music=/mnt/new/music
    """
    from dalsegno.cli.bar import Bar
    from dalsegno.cli.check import conclude, look
    from dalsegno.moves.restore import restore as put

    settings = desk.settings
    pairs = _pairs(moved or [])
    with Bar(desk.aside) as bar:
        done = put(file, direct(desk), force=force, tools=settings.pg_bin, moved=pairs, told=bar.told)
        report = None
        if check:
            with desk.store() as store:
                report = look(store, told=bar.told)

    def show(console: Console) -> None:
        kept = f" What was there before is {done.kept}." if done.kept else ""
        schema = "" if done.schema == done.now else f" Its schema was brought from {done.schema} to {done.now}."
        console.print(f"{done.database} has {done.rows:,} rows from {file}.{schema}{kept}", markup=False)
        if not done.checked:
            console.print("There is no manifest beside it, so it could not be compared with one.")
        if done.rescued:
            console.print(
                "What was at work then was rescued as after a crash. Paused jobs go on with: dalsegno resume JOB"
            )

    conclude(desk, {"restored": plain(done)}, report, show)


def _pairs(texts: list[str]) -> dict[str, str]:
    found = [text.partition("=") for text in texts]
    for old, equals, new in found:
        if not old or not equals or not new:
            raise typer.BadParameter(f'"{old}{equals}{new}" is not OLD=NEW.', param_hint="--moved")
    return {old: new for old, _, new in found}
