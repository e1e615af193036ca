"""`dalsegno config show|check|revisions|diff|apply|edit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.desk import Desk, command, number

if TYPE_CHECKING:
    from rich.console import Console

    from dalsegno.config.current import Current
    from dalsegno.config.model import Diff, Saved
    from dalsegno.store.store import Store

app = typer.Typer(no_args_is_help=True, help="Look at the settings in force, change them, and go back.")
Note = Annotated[str | None, typer.Option(help="Why, for whoever looks back.")]
RevisionId = Annotated[int, typer.Argument(parser=number, metavar="REVISION", help="The revision's number.")]


@command(app, "show")
def show(desk: Desk) -> None:
    """Show every setting, its value (secrets masked) and where it comes from."""
    from dataclasses import replace

    from dalsegno.cli.words import escaped, table
    from dalsegno.config.masks import mask_value

    loaded = desk.load()
    rows = [replace(row, value=mask_value(row.key, row.value)) for row in loaded.shown()]

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
    from dalsegno.config.meant import meaningless
    from dalsegno.errors import SettingInvalid

    _mention(desk)
    loaded = desk.load()
    for key, problem in meaningless(loaded.settings):
        raise SettingInvalid(key=key, problem=problem)
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


def _mention(desk: Desk) -> None:
    """All that is wrong with the file, where it is more than the one thing that the command ends with."""
    from dalsegno.config.check import check as faults
    from dalsegno.config.files import read
    from dalsegno.settings.load import DEFAULT_FILE

    file = desk.env_file or DEFAULT_FILE
    found = faults(read(file).document)
    if len(found) > 1 or any(fault.level == "warning" for fault in found):
        for fault in found:
            key = f", {fault.key}" if fault.key else ""
            desk.say(f"{file}, line {fault.line}{key}: {fault.reason} {fault.suggestion}".rstrip())


# --- revisions ------------------------------------------------------------------------------------


@command(app, "revisions")
def revisions(
    desk: Desk,
    before: Annotated[
        int | None, typer.Option(parser=number, metavar="ID", help="Older than this: the next page.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many to show.")] = 20,
) -> None:
    """List the saved versions of the settings file, newest first, with how many jobs were made with each."""
    from dalsegno.cli.words import escaped, moment, table
    from dalsegno.config.revisions import list_revisions

    current = desk.current()
    with desk.store() as store:
        lines = store.read(lambda tx: list_revisions(tx, current, before=before, limit=limit))

    def draw(console: Console) -> None:
        if not lines:
            console.print("No revisions. The console keeps the first when it starts: dalsegno serve")
            return
        rows = [
            (
                f"{line.revision.id}{' *' if line.current else ''}", moment(line.revision.created_at),
                escaped(line.revision.saved_by), str(line.jobs), escaped(line.revision.note),
            )
            for line in lines
        ]  # fmt: skip
        console.print(table(("revision", "saved", "by", "jobs", "note"), rows, right=("jobs",)))
        if len(lines) == limit:
            console.print(f"More: dalsegno config revisions --before {lines[-1].revision.id}", style="dim")

    desk.answer(lines, draw)


@command(app, "diff")
def diff(
    desk: Desk,
    revision_id: RevisionId,
    other: Annotated[
        int | None, typer.Argument(parser=number, metavar="[OTHER]", help="Another one; the file on disk unless said.")
    ] = None,
) -> None:
    """Show what differs between two revisions, or between a revision and the file on disk. Secrets are masked.

    **Examples**

    dalsegno config diff 3

    dalsegno config diff 3 5
    """
    from dalsegno.config.compare import compare

    current = desk.current()
    with desk.store() as store:
        found = compare(store, current, revision_id, other)
    desk.answer(found, lambda console: _draw(console, found.diff))


@command(app, "apply")
def apply(desk: Desk, revision_id: RevisionId, note: Note = None) -> None:
    """Make an old revision the settings file again. Secrets stay as they are: revisions do not hold them.

    Jobs that are there keep the settings they were made with.

    **Examples**

    dalsegno config apply 3 --note "the old disk is back"
    """
    from dalsegno.cli.ask import whoami
    from dalsegno.config.save import apply as apply_revision

    current = desk.current()
    with desk.store() as store:
        saved = apply_revision(store, current, revision_id, by=whoami(), note=note)
    _tell(desk, saved)


@command(app, "edit")
def edit(
    desk: Desk,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set this key; repeat for more.")
    ] = None,
    unset: Annotated[list[str] | None, typer.Option(metavar="KEY", help="Take this key out; repeat for more.")] = None,
    note: Note = None,
) -> None:
    """Change the settings file: in $EDITOR, or with --set and --unset. It is checked, then written and kept.

    Secrets are masked; what is left masked stays as it is. Comments, order and blank lines stay too.

    **Examples**

    dalsegno config edit

    dalsegno config edit --set LIBRARY_ROOT=/mnt/bigger --note "a bigger disk"
    """
    from dalsegno.cli.ask import whoami
    from dalsegno.config.save import begin, save
    from dalsegno.config.view import config_view, form_content

    wanted = _wanted(changes or [], unset or [])
    current = desk.current()
    with desk.store() as store:
        begin(store, current)
        view = config_view(store, current)
        if wanted:
            content = form_content(current, wanted)
            saved = save(store, current, content, by=whoami(), note=note, base_version=view.version)
        else:
            saved = _typed(desk, store, current, view.content, note, view.version)
    _tell(desk, saved)


def _wanted(changes: list[str], unset: list[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for each in changes:
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f'"{each}" is not KEY=VALUE.')
        found[key.strip().upper()] = value
    return {**found, **{key.strip().upper(): None for key in unset}}


def _typed(desk: Desk, store: Store, current: Current, content: str, note: str | None, version: str) -> Saved:
    """Until it is right, or nobody is there to try again."""
    import sys

    from dalsegno.cli.ask import whoami
    from dalsegno.config.save import save
    from dalsegno.errors import ConfigInvalid

    while True:
        content = _in_editor(content)
        try:
            return save(store, current, content, by=whoami(), note=note, base_version=version)
        except ConfigInvalid as error:
            for each in error.details["errors"]:
                desk.say(f"line {each['line']}: {each['key'] or ''} {each['reason']} {each['suggestion']}")
            if not sys.stdin.isatty() or not typer.confirm("Edit again?", default=True, err=True):
                raise


def _in_editor(content: str) -> str:
    import os
    import shlex
    import subprocess
    import tempfile
    from pathlib import Path

    from dalsegno.errors import InputInvalid

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="dalsegno-") as folder:
        file = Path(folder) / "dalsegno.env"
        file.write_bytes(content.encode())
        try:
            ended = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
        except OSError as error:
            raise InputInvalid(problem=f"{editor} cannot be started: {error.strerror}. Set EDITOR.") from None
        if ended:
            raise InputInvalid(problem=f"{editor} ended with {ended}; nothing was saved.")
        return file.read_bytes().decode("utf-8", "replace")


def _tell(desk: Desk, saved: Saved) -> None:
    for fault in saved.warnings:
        desk.say(f"line {fault.line}, {fault.key}: {fault.reason} {fault.suggestion}")

    def draw(console: Console) -> None:
        _draw(console, saved.diff)
        if not saved.created:
            console.print("The file says so already.")
            return
        console.print(f"Saved as revision {saved.revision.id}: {saved.revision.file_path}", markup=False)
        for says in saved.impact.says:
            console.print(says, markup=False)

    desk.answer(saved, draw)


def _draw(console: Console, found: Diff) -> None:
    for line in found.unified.splitlines():
        style = {"+": "green", "-": "red", "@": "dim"}.get(line[:1])
        console.print("".join(each if each.isprintable() else " " for each in line), markup=False, style=style)
    for change in found.keys:
        if change.secret and change.change == "changed":
            console.print(f"{change.key} has another value.", markup=False)
    if found.same:
        console.print("No difference.")
