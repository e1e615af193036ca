"""`dalsegno config show|check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from dalsegno.cli.desk import Desk, command

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(no_args_is_help=True, help="Look at the settings in force.")


@command(app, "show")
def show(desk: Desk) -> None:
    """Show every setting, its value (secrets masked) and where it comes from."""
    from dalsegno.cli.words import escaped, table

    loaded = desk.load()
    rows = loaded.shown()

    def draw(console: Console) -> None:
        lines = []
        for row in rows:
            place = f"{loaded.file}:{row.line}" if row.line else row.origin
            lines.append((row.key, escaped(row.value), escaped(place)))
        console.print(table(("key", "value", "from"), lines))

    desk.answer({"file": loaded.file if loaded.found else None, "settings": rows}, draw)


@command(app, "check")
def check(desk: Desk) -> None:
    """Check the settings: the file, the services it names, the database, the library folder."""
    import os

    from dalsegno.cli.toolbox import open_toolbox
    from dalsegno.errors import SettingInvalid

    loaded = desk.load()
    toolbox = open_toolbox(loaded.settings.services)
    root = loaded.settings.library_root.absolute()
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise SettingInvalid(key="LIBRARY_ROOT", problem=f"{existing} cannot be written to by this user.")
    with desk.store() as store:
        where = store.url
    names = toolbox.names()
    file = loaded.file if loaded.found else None
    answer = {"file": file, "database": where, "library": root, "services": names}

    def draw(console: Console) -> None:
        console.print(f"settings  {file or 'defaults (no dalsegno.env)'}", markup=False)
        console.print(f"database  {where}", markup=False)
        console.print(f"library   {root}", markup=False)
        console.print(f"services  {', '.join(names)}", markup=False)
        console.print("All is well.")

    desk.answer(answer, draw)
