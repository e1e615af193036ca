"""Whether the files that are written down are there: by size, and if asked for byte by byte."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import sqlalchemy as sa

from dalsegno.catalog.library import confirm_locations, lose_locations
from dalsegno.catalog.schema import file_assets, file_locations, songs
from dalsegno.catalog.schema import object_storage_backends as backends
from dalsegno.insight.agreement import Agreement, Deadline, stretches
from dalsegno.store.manifest import Told, untold
from dalsegno.store.store import Store, Tx

GONE = "Put the file back, or have it again: dalsegno {verb} --song {song}"
OTHER = (
    "If you changed it yourself (its tags, say), all is well. "
    "Otherwise move it away and have it again: dalsegno {verb} --song {song}"
)
NOWHERE = "Fetch it again: dalsegno download --song {song}"


def check_files(
    store: Store,
    report: Agreement,
    deadline: Deadline,
    *,
    deep: bool = False,
    told: Told = untold,
    proven: Callable[[str, Path], bool] | None = None,
) -> None:
    """Files that can be reached as files; what is in S3 is counted and not looked at.

    With `proven`, which says whether a folder (by kind and path) is the one that is known, what is gone from such a
    folder is written down as gone, and what is there again as there.
    """
    places = {row["id"]: row for row in store.read(lambda tx: tx.rows(sa.select(backends)))}
    roots = {number: root for number, row in places.items() if (root := _root(row["kind"], row["url"])) is not None}
    remote: dict[str, int] = {}
    for number, root in list(roots.items()):
        if not root.is_dir():
            says = f"the folder {root} is not there, and files are known in it"
            fix = "Mount it, or say where it is now when you restore: dalsegno restore FILE --moved OLD=NEW"
            report.disagrees("folder_missing", places[number]["url"], says, fix)
            del roots[number]
    sure: Callable[[int], bool] | None = None
    if proven is not None:
        sure = lambda number: proven(places[number]["kind"], roots[number])  # noqa: E731
    for after, end, last in stretches(store, file_locations.c.id):
        if deadline.is_over():
            report.complete = False
            break
        at, gone, back = store.clock.now(), [], []
        for row in store.read(lambda tx, after=after, end=end: _known(tx, after, end)):  # type: ignore[misc]
            root = roots.get(row.backend_id)
            if root is not None:
                verb = "download" if places[row.backend_id]["kind"] == "library" else "upload"
                there = _look(row, root, deep, report, verb)
                if there is False and not row.lost:
                    gone.append((row.backend_id, row.path, at))
                elif there and row.lost:
                    back.append((row.backend_id, row.path, at))
            elif places[row.backend_id]["kind"] == "s3":
                remote[places[row.backend_id]["url"]] = remote.get(places[row.backend_id]["url"], 0) + 1
            if deep and deadline.is_over():
                break
        if sure is not None:
            _keep(store, [each for each in gone if sure(each[0])], [each for each in back if sure(each[0])])
        told("files", end, last)
    for url, count in remote.items():
        report.unsaid.append(f"{count:,} files in {url}: only the store itself can tell")
    if not deadline.is_over():
        store.read(lambda tx: _nowhere(tx, report))


def _root(kind: str, url: str) -> Path | None:
    if kind == "library":
        return Path(url)
    return Path(unquote(url.removeprefix("file://"))) if kind == "file" else None


def _known(tx: Tx, after: int, end: int) -> list[sa.Row[Any]]:
    song = sa.select(sa.func.min(songs.c.id)).where(songs.c.asset_id == file_locations.c.asset_id)
    query = (
        sa.select(
            file_locations.c.backend_id, file_locations.c.path, file_assets.c.sha256, file_assets.c.size_bytes,
            file_locations.c.missing_at.is_not(None).label("lost"),
            song.correlate(file_locations).scalar_subquery().label("song"),
        )
        .join(file_assets, file_assets.c.id == file_locations.c.asset_id)
        .where(file_locations.c.id > after, file_locations.c.id <= end)
    )  # fmt: skip
    return list(tx.conn.execute(query))


def _keep(store: Store, gone: list[tuple[int, str, datetime]], back: list[tuple[int, str, datetime]]) -> None:
    if gone:
        store.write("check", lambda tx: lose_locations(tx.conn, gone))
    if back:
        store.write("check", lambda tx: confirm_locations(tx.conn, back))


def _look(row: sa.Row[Any], root: Path, deep: bool, report: Agreement, verb: str) -> bool | None:
    """Whether it is there as it was; None: it is another, or cannot be told. `verb` brings it."""
    path, wanted = root / row.path, row.size_bytes
    report.looked["files"] += 1
    again = {"verb": verb, "song": row.song if row.song is not None else "NUMBER"}
    try:
        size = path.stat().st_size
    except OSError as error:
        report.disagrees("file_missing", str(path), f"{error.strerror}", GONE.format(**again))
        return False if isinstance(error, FileNotFoundError | NotADirectoryError) else None
    if size != wanted:
        says = f"it has {size:,} bytes, {wanted:,} were written"
        report.disagrees("file_changed", str(path), says, OTHER.format(**again))
        return None
    if deep or row.lost:
        report.looked["files read"] += 1
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != row.sha256:
                says = "its checksum is not the one that was written down"
                report.disagrees("file_changed", str(path), says, OTHER.format(**again))
                return None
    return True


def _nowhere(tx: Tx, report: Agreement) -> None:
    """Songs that count as downloaded, and no place is known where."""
    somewhere = sa.exists().where(file_locations.c.asset_id == songs.c.asset_id)
    query = sa.select(songs.c.id).where(songs.c.asset_id.is_not(None), ~somewhere).order_by(songs.c.id)
    for number in tx.conn.execute(query).scalars():
        says = "it counts as downloaded, and no place is known where its file is"
        report.disagrees("song_nowhere", f"song:{number}", says, NOWHERE.format(song=number))
