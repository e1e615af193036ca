"""Audio files under folders of this machine: each root a pool, each folder with audio in it a playlist.

There is no playlist of everything: it would name every song a second time. Hidden folders, and those that NAS systems
keep thumbnails in, are passed over, and so are our own libraries and stores below a root. Links to folders are not
followed, and links to files only within the root.
"""

from __future__ import annotations

import os
import re
import unicodedata
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Iterator
from pathlib import Path

from tinytag import TinyTag

from dalsegno.model.signal import ProviderError
from dalsegno.sources.folder_index import Index
from dalsegno.sources.model import Gone, Media, Playlist, Pool, Source, Track, Unusable
from dalsegno.sources.paths import storable
from dalsegno.sources.registry import Config
from dalsegno.sources.suffixes import lossless, suffix_of

PASSED_OVER = frozenset({"@eadir", "#recycle", "$recycle.bin", "system volume information", "lost+found"})
OURS = frozenset({".dalsegno", ".dalsegno-store-id"})
"""In a library, and in a folder that files are uploaded to: what is in those came from a source, this one perhaps."""
_NUMBER = re.compile(r"^\s*(?:\d{1,2}-)?(\d{1,3})\s*[-._\s]\s*(?=\S)")


def open_source(config: Config) -> Source:
    return Folders([Path(root) for root in config.list("FOLDER_ROOTS")])


class Folders(Source):
    name = "folder"
    one_host = True

    def __init__(self, roots: Iterable[Path]) -> None:
        self._roots = dict(_labels(roots))
        self._index = Index()

    def pools(self) -> Iterable[Pool]:
        return [Pool(id=label, name=label, kind="folder") for label in self._roots]

    def playlists(self, pool: Pool) -> Iterable[Playlist]:
        root = self._root(pool.id)
        for folder, count in _folders(root):
            inside = folder.relative_to(root)
            id = storable(str(Path(pool.id) / inside))
            name = _shown(inside.name) or pool.name
            yield Playlist(id=id, name=name, kind="folder", count=count, snapshot=_exact(inside))

    def tracks(self, playlist: Playlist) -> Iterable[Track]:
        root, folder = self._find(playlist.id, playlist.snapshot.get("bytes"))
        if not folder.is_dir():
            raise Gone(f"The folder {playlist.id} is not there any more.")
        label = playlist.id.partition("/")[0]
        return (_track(label, root, file) for file in _audio(root, folder))

    def search(self, track: Track) -> Iterable[Track]:
        wanted = _key(track.title)
        if not wanted:
            return
        for label, inside in self._index.find(wanted, self._tagged):
            root = self._roots.get(label)
            file = root / os.fsdecode(inside) if root is not None else None
            if root is not None and file is not None and _inside(root, file):
                yield _track(label, root, file)

    def resolve(self, track: Track) -> Media:
        root, file = self._find(track.id, track.snapshot.get("bytes"))
        if not _inside(root, file):
            raise Gone(f'The file of "{track.title}" is not there any more.')
        suffix = suffix_of(file.name)
        return Media(
            path=file,
            size=file.stat().st_size,
            suffix=suffix,
            lossless=lossless(suffix),
            duration=track.duration,
        )

    def close(self) -> None:
        self._index.close()

    def _root(self, label: str) -> Path:
        """A root that is missing or empty is a disk that is not mounted, which is no reason to call its songs gone."""
        root = self._roots.get(label)
        if root is None:
            raise Gone(f'No folder "{label}" is among FOLDER_ROOTS any more.')
        try:
            with os.scandir(root) as entries:
                if any(True for _ in entries):
                    return root
        except OSError as error:
            raise ProviderError(
                message=f"{storable(str(root))} cannot be read: {error.strerror}. Is it mounted?"
            ) from None
        raise ProviderError(message=f"{storable(str(root))} is empty. Is it mounted?")

    def _find(self, id: str, exact: object) -> tuple[Path, Path]:
        label, _, inside = id.partition("/")
        root = self._root(label)
        if isinstance(exact, str):
            try:
                inside = os.fsdecode(b64decode(exact, validate=True))
            except NotBase64:
                raise Unusable(f"What is kept about {id} cannot be read.", code="bad_snapshot") from None
        if "\0" in inside or inside.startswith("/") or ".." in Path(inside).parts:
            raise Unusable(f"{id} leads out of its folder.", code="path_refused")
        return root, root / inside

    def _tagged(self) -> Iterator[tuple[str, str, bytes]]:
        """Every song by the titles it may be looked for by: its tag's, and its file name's."""
        for label in self._roots:
            try:
                root = self._root(label)
            except ProviderError:
                continue
            for folder, _ in _folders(root):
                for file in _audio(root, folder):
                    inside = os.fsencode(file.relative_to(root))
                    for key in {_key(_track(label, root, file).title), _key(_named(file)[1])} - {""}:
                        yield key, label, inside


def _labels(roots: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """By the folder's own name, which is the first part of every id under it; a second of that name is numbered."""
    seen: dict[str, int] = {}
    for root in roots:
        path = root.expanduser().absolute()
        label = storable(path.name or "root")
        seen[label] = seen.get(label, 0) + 1
        yield (label if seen[label] == 1 else f"{label}~{seen[label]}"), path


def _folders(root: Path) -> Iterator[tuple[Path, int]]:
    """Those with audio in them, and how many files; of a folder only the names of its own folders are remembered."""
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        below, count = [], 0
        inside = _entries(folder)
        if folder != root and any(entry.name in OURS for entry in inside):
            continue
        for entry in inside:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name.lower() not in PASSED_OVER:
                    below.append(folder / entry.name)
            elif _is_audio(root, entry):
                count += 1
        waiting += reversed(below)
        if count:
            yield folder, count


def _audio(root: Path, folder: Path) -> Iterator[Path]:
    return (folder / entry.name for entry in _entries(folder) if _is_audio(root, entry))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """In the order of their names; a folder that may not be read counts as empty."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _is_audio(root: Path, entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(".") or not suffix_of(entry.name):
        return False
    try:
        return _inside(root, Path(entry.path)) if entry.is_symlink() else entry.is_file()
    except OSError:
        return False


def _inside(root: Path, file: Path) -> bool:
    """Whether it is a file, and under the root also when every link is followed."""
    try:
        return file.is_file() and file.resolve().is_relative_to(root.resolve())
    except OSError:
        return False


def _track(label: str, root: Path, file: Path) -> Track:
    inside = file.relative_to(root)
    number, title = _named(file)
    id, exact = storable(str(Path(label) / inside)), _exact(inside)
    try:
        tag = TinyTag.get(file)
    except Exception:  # whatever a broken file makes a parser do, it is still there to be played
        return Track(id=id, title=title, track_no=number, snapshot=exact)
    return Track(
        id=id,
        title=_line(tag.title) or title,
        artists=tuple(_line(each) for each in (tag.artist, *_more(tag, "artist")) if _line(each)),
        album=_line(tag.album),
        track_no=tag.track or (number if not tag.title else None),
        disc_no=tag.disc or None,
        year=_year(tag.year),
        duration=tag.duration or None,
        isrc=next((_line(each) for each in _more(tag, "isrc") if each), None),
        snapshot=exact,
    )


def _more(tag: TinyTag, name: str) -> list[str]:
    values = tag.other.get(name)
    return [str(value) for value in values] if isinstance(values, list) else []


def _year(text: str | None) -> int | None:
    found = re.match(r"\d{4}", text or "")
    return int(found[0]) if found else None


def _named(file: Path) -> tuple[int | None, str]:
    """Track number and title, as far as the file's name tells."""
    stem = _shown(file.stem)
    found = _NUMBER.match(stem)
    return (int(found[1]), stem[found.end() :]) if found else (None, stem)


def _line(value: str | None) -> str:
    return " ".join((value or "").replace("\0", " ").encode("utf-8", "replace").decode().split())


def _key(title: str) -> str:
    """A title as it is compared: letters and digits only, whatever their width and case."""
    return "".join(letter for letter in unicodedata.normalize("NFKC", title).casefold() if letter.isalnum())


def _exact(inside: Path) -> dict[str, str]:
    """What an id cannot say: a name that is no UTF-8."""
    raw = os.fsencode(inside)
    try:
        raw.decode()
    except UnicodeDecodeError:
        return {"bytes": b64encode(raw).decode()}
    return {}


def _shown(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "replace")
