"""`dalsegno pools`, `playlists`, `songs` and `song`: the catalog as it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dalsegno.cli.desk import Desk, command, number
from dalsegno.cli.jobs import Limit
from dalsegno.cli.run import OfPlaylist, OfPool, OfQuery, OfSource

if TYPE_CHECKING:
    from rich.console import Console

    from dalsegno.store.store import Store

app = typer.Typer()
After = Annotated[int | None, typer.Option(parser=number, metavar="ID", help="After this one: the next page.")]


@command(app, "pools")
def pools(desk: Desk) -> None:
    """List the pools of playlists, with their status (异常, 进行中, 未完成, 已完成) and why."""
    from dalsegno.catalog.status import list_pools
    from dalsegno.cli.words import escaped, moment, table

    with desk.store() as store:
        backend = _backend(desk, store)
        lines = store.read(lambda tx: list_pools(tx, upload_backend_id=backend))

    def show(console: Console) -> None:
        if not lines:
            console.print("No pools yet. Collect them: dalsegno collect")
            return
        rows = [
            (str(line.id), escaped(line.platform), escaped(line.name), _status(line.status), str(line.playlists),
             moment(line.collected_at), escaped(line.because))
            for line in lines
        ]  # fmt: skip
        columns = ("pool", "source", "name", "status", "playlists", "collected", "because")
        console.print(table(columns, rows, right=("pool", "playlists")))

    desk.answer(lines, show)


@command(app, "playlists")
def list_of_playlists(
    desk: Desk,
    source: Annotated[str | None, typer.Option(help="Only of this source.")] = None,
    pool: Annotated[int | None, typer.Option(parser=number, metavar="POOL", help="Only of this pool.")] = None,
    name: Annotated[str | None, typer.Option(help="Only with this text in the name.")] = None,
    status: Annotated[str | None, typer.Option(help="Only error, active, incomplete or complete.")] = None,
    after: After = None,
    limit: Limit = 50,
) -> None:
    """List playlists with their status, and why: songs there, downloaded, uploaded, failed."""
    from dalsegno.catalog.status import PlaylistStatus, list_playlists
    from dalsegno.cli.inputs import choices
    from dalsegno.cli.words import escaped, table

    wanted = choices(status, PlaylistStatus, "playlist status")
    with desk.store() as store:
        backend = _backend(desk, store)
        page = store.read(
            lambda tx: list_playlists(
                tx, platform=source, pool_id=pool, name=name, status=PlaylistStatus(wanted[0]) if wanted else None,
                upload_backend_id=backend, after=after, limit=limit,
            )
        )  # fmt: skip

    def show(console: Console) -> None:
        if not page.lines:
            console.print("No such playlists. Collect them: dalsegno collect")
            return
        rows = [
            (str(line.id), escaped(line.platform), escaped(line.name), _status(line.status), str(line.song_count),
             str(line.downloaded), str(line.uploaded), str(line.failed or ""), escaped(line.because))
            for line in page.lines
        ]  # fmt: skip
        columns = ("playlist", "source", "name", "status", "songs", "here", "uploaded", "failed", "because")
        console.print(table(columns, rows, right=("playlist", "songs", "here", "uploaded", "failed")))
        if page.next is not None:
            console.print(f"More: --after {page.next}")

    desk.answer(page, show)


@command(app, "songs")
def list_of_songs(
    desk: Desk,
    source: OfSource = None,
    pool: OfPool = None,
    playlist: OfPlaylist = None,
    query: OfQuery = "",
    here: Annotated[bool | None, typer.Option("--here/--not-here", help="Only with a file, or without.")] = None,
    after: After = None,
    limit: Limit = 50,
) -> None:
    """List songs, and the file that each has."""
    from dalsegno.catalog.scope import parse_scope
    from dalsegno.catalog.songs import list_songs
    from dalsegno.cli.words import duration, escaped, table

    scope = parse_scope({"sources": source or [], "pools": pool or [], "playlists": playlist or [], "query": query})
    with desk.store() as store:
        lines = store.read(lambda tx: list_songs(tx, scope, downloaded=here, after=after or 0, limit=limit))

    def show(console: Console) -> None:
        if not lines:
            console.print("No such songs. Sync playlists first: dalsegno sync")
            return
        rows = [
            (str(line.id), escaped(line.platform), escaped(line.artist), escaped(line.title),
             duration(line.duration), escaped(line.quality), escaped(line.found_on))
            for line in lines
        ]  # fmt: skip
        console.print(table(("song", "source", "artist", "title", "length", "file", "from"), rows, right=("song",)))

    desk.answer(lines, show)


@command(app, "song")
def song(
    desk: Desk, song_id: Annotated[int, typer.Argument(parser=number, metavar="SONG", help="The song's number.")]
) -> None:
    """Show one song: its file and every copy of it, its playlists, and what was considered for it and why not."""
    from dalsegno.catalog.songs import song_detail
    from dalsegno.cli.words import escaped, table

    with desk.store() as store:
        found = store.read(lambda tx: song_detail(tx, song_id))

    def show(console: Console) -> None:
        line = found.song
        console.print(
            f"{escaped(line.artist)} - {escaped(line.title)} ({escaped(line.platform)}:{escaped(line.remote_id)})"
        )
        console.print(f"in {', '.join(map(escaped, found.playlists)) or 'no playlist'}")
        if line.missing_at is not None:
            console.print("[yellow]gone upstream[/yellow]")
        for copy in found.copies:
            console.print(f"  {escaped(copy.kind)}: {escaped(copy.root)}/{escaped(copy.path)}")
        if found.candidates:
            rows = [
                (str(each.attempt), escaped(each.platform), escaped(each.title),
                 "" if each.score is None else f"{each.score:.2f}", each.verdict, escaped(each.reason))
                for each in found.candidates
            ]  # fmt: skip
            console.print(table(("attempt", "source", "found", "score", "verdict", "because"), rows, right=("score",)))

    desk.answer(found, show)


def _status(status: Any) -> str:
    from dalsegno.catalog.status import TITLES

    colour = {"error": "red", "active": "cyan", "incomplete": "yellow", "complete": "green"}[status]
    return f"[{colour}]{TITLES[status]}[/{colour}]"


def _backend(desk: Desk, store: Store) -> int | None:
    """The store that counts as uploaded to, if one is set and was ever used."""
    from dalsegno.catalog.catalog import Catalog

    catalog = Catalog(store, desk.settings)
    target = catalog.object_store(desk.settings.snapshot())
    return None if target is None else catalog.backend(target.kind, target.identity)
