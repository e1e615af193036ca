"""Playlists as M3U files in the library, for every player that knows nothing of us.

A file says in its third line which playlist it is of. So two playlists of one name stay apart for good, the first that
came keeps the plain name, and a file that somebody else put there is never written over. Nothing is ever deleted: what
a renamed playlist was called before stays.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from dalsegno.catalog.names import PART_MAX, legal
from dalsegno.catalog.schema import (
    file_assets,
    file_locations,
    object_storage_backends,
    playlist_songs,
    playlists,
    songs,
)
from dalsegno.durable import write_whole
from dalsegno.errors import NotFound

if TYPE_CHECKING:
    from dalsegno.store.store import Store, Tx

FOLDER = "Playlists"
SUFFIX = ".m3u8"


class Exported(NamedTuple):
    path: Path
    songs: int
    missing: int
    """Songs left out, because there is no local file of them."""


class Entry(NamedTuple):
    seconds: float | None
    artist: str
    title: str
    files: list[tuple[str, str]]
    """Where copies should be: a library's root, and the path in it."""


class Sheet(NamedTuple):
    """A playlist as the catalog has it."""

    id: int
    name: str
    mark: str
    entries: list[Entry]
    read_at: datetime


def export_playlist(store: Store, playlist_id: int, library_root: Path) -> Exported:
    """Write a playlist's file, unless it is already right."""
    root = library_root.absolute()
    sheet = store.read(lambda tx: _read(tx, playlist_id))
    folder = root / FOLDER
    lines, songs_in = ["#EXTM3U", f"#PLAYLIST:{_flat(sheet.name)}", sheet.mark], 0
    for entry in sheet.entries:
        if (place := _place(entry, str(root))) is not None:
            lines += [_info(entry), place]
            songs_in += 1
    content = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
    folder.mkdir(parents=True, exist_ok=True)
    path, found = _own(folder, sheet)
    if found != content:
        write_whole(path, content)
    written = sa.update(playlists).where(playlists.c.id == playlist_id).values(exported_at=sheet.read_at)
    store.write("export", lambda tx: tx.conn.execute(written).rowcount)
    return Exported(path, songs_in, len(sheet.entries) - songs_in)


def _read(tx: Tx, playlist_id: int) -> Sheet:
    row = tx.row(sa.select(playlists).where(playlists.c.id == playlist_id))
    if row is None:
        raise NotFound(what="playlist", id=playlist_id)
    local = (
        sa.select(
            file_locations.c.id,
            file_locations.c.asset_id,
            file_locations.c.verified_at,
            object_storage_backends.c.url,
            file_locations.c.path,
        )
        .join(object_storage_backends, object_storage_backends.c.id == file_locations.c.backend_id)
        .where(object_storage_backends.c.kind == "library", file_locations.c.missing_at.is_(None))
        .subquery("local")
    )
    query = (
        sa.select(
            songs.c.id,
            songs.c.title,
            songs.c.artist,
            sa.func.coalesce(songs.c.duration, file_assets.c.duration).label("seconds"),
            local.c.url,
            local.c.path,
        )
        .select_from(playlist_songs)
        .join(songs, songs.c.id == playlist_songs.c.song_id)
        .outerjoin(file_assets, file_assets.c.id == songs.c.asset_id)
        .outerjoin(local, local.c.asset_id == songs.c.asset_id)
        .where(playlist_songs.c.playlist_id == playlist_id, playlist_songs.c.removed_at.is_(None))
        .order_by(playlist_songs.c.position, songs.c.id, local.c.verified_at.desc(), local.c.id)
    )
    entries = []
    for _, copies in itertools.groupby(tx.rows(query), key=lambda song: song["id"]):
        known = list(copies)
        files = [(copy["url"], copy["path"]) for copy in known if copy["path"] is not None]
        entries.append(Entry(known[0]["seconds"], known[0]["artist"], known[0]["title"], files))
    mark = f"#DALSEGNO:{row['platform']}:{row['remote_id']}"
    return Sheet(row["id"], row["name"] or row["remote_id"], _flat(mark), entries, tx.now)


# --- lines ----------------------------------------------------------------------------------------


def _info(entry: Entry) -> str:
    seconds = -1 if entry.seconds is None else round(entry.seconds)
    return f"#EXTINF:{seconds},{' - '.join(filter(None, (_flat(entry.artist), _flat(entry.title))))}"


def _place(entry: Entry, root: str) -> str | None:
    """The line for its file: relative in this library, so that a copy of the whole plays; absolute in another one."""
    for home, path in sorted(entry.files, key=lambda file: file[0] != root):
        line = f"../{path}" if home == root else f"{home}/{path}"
        if _is_there(f"{home}/{path}") and line.splitlines() == [line]:
            # Percent signs stay: plain paths are not decoded.
            return line
    return None


def _is_there(file: str) -> bool:
    try:
        return os.path.isfile(file)  # noqa: PTH113
    except (OSError, ValueError):
        return False


def _flat(text: str) -> str:
    """One line, whatever was in it."""
    if text.isprintable() and "  " not in text and text == text.strip(" "):
        return text
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


# --- files ----------------------------------------------------------------------------------------


def _own(folder: Path, sheet: Sheet) -> tuple[Path, bytes | None]:
    """The playlist's file, and what it says now: the first name that is free or already its own."""
    for name in _names(sheet):
        path = folder / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return path, None
        except IsADirectoryError:
            continue
        if sheet.mark.encode("utf-8", "replace") in content.split(b"\n", 3)[:3]:
            return path, content
    raise AssertionError("names never end")


def _names(sheet: Sheet) -> Iterator[str]:
    yield legal(sheet.name, PART_MAX - len(SUFFIX)) + SUFFIX
    for number in itertools.count(1):
        more = f" ({sheet.id})" if number == 1 else f" ({sheet.id}-{number})"
        yield legal(sheet.name, PART_MAX - len(SUFFIX) - len(more)) + more + SUFFIX
