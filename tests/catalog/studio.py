"""A catalog at work: real sources and stores around an engine, and what must hold when it is done."""

from __future__ import annotations

import hashlib
import json
import struct
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

import sqlalchemy as sa

from dalsegno import Engine, Store
from dalsegno.catalog.presence import MARKER
from dalsegno.catalog.schema import (
    file_assets,
    file_locations,
    object_storage_backends,
    playlist_songs,
    playlists,
    song_candidates,
    songs,
)
from dalsegno.catalog.services import catalog_services
from dalsegno.catalog.templates import order
from dalsegno.cli.ask import ask
from dalsegno.settings import Settings
from tests import audio
from tests.helpers import SWIFT, every, items_of, wait_for_job, wait_until
from tests.s3 import S3Server
from tests.servers import BIN, free_port, serving

ENDED = ("completed", "completed_with_errors", "failed", "canceled", "paused")
"""Statuses in which a job does nothing more by itself."""

HARD_NAMES = (
    "../../etc/passwd", "..", ".", "/etc/shadow", "C:\\Windows\\system32", "CON", "con.flac", "NUL", "COM1.txt", "AUX ",
    "trailing dots...", "trailing space ", " leading space", ".hidden", "~", "-rf", "--help", "100% + 50%", "%2e%2e%2f",
    "a+b c&d=e?f#g", "\"double\" 'single' `back`", "<b>|*?:", "$(reboot)", "first line\nsecond line", "tab\there",
    "right \u202eot tfel\u202c and back", "zero\u200bwidth\ufeff", "Cafe\u0301", "Café", "\uff26\uff35", "ﬁ ligature",
    "🎷🌧️ Sax 👩‍🚀🏳️‍🌈", "x" * 300, "长" * 300, "é" * 300, "🎻" * 150, "夜曲", "ゆき", "눈 오는 밤", "Ночь", "ليل",
    "לילה", "Ünder Å", "ẞß", "İi", "SAME", "same", "Same", "a/b/c", "...", "???", "1/2", "Playlists", ".dalsegno",
)  # fmt: skip
"""Titles that are hard on file names, on URLs, on lines and on eyes."""


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- an engine with the catalog's services --------------------------------------------------------


def settings_for(library: Path, **keys: Any) -> Settings:
    """Nothing of the machine's own settings; room is looked for, not kept."""
    return Settings(library_root=library, **{"min_free_space": 0, **keys})


@contextmanager
def at_work(store: Store, settings: Settings) -> Iterator[Engine]:
    with Engine(store, catalog_services(store, settings), SWIFT) as engine:
        yield engine


def run(store: Store, settings: Settings, template: str = "full", *, timeout: float = 90.0, **how: Any) -> int:
    """One job until it has ended or is paused; returns its number."""
    job_id = order(store, settings, template, **how).job_id
    with at_work(store, settings):
        wait_for_job(store, job_id, ENDED, timeout)
    return job_id


class Trouble(NamedTuple):
    """How an item ended, as people see it."""

    status: str
    code: str | None
    text: str | None
    attempt: int


def troubles(store: Store, job_id: int, step: str = "download") -> dict[str, Trouble]:
    """Every item of a step, by its song's title."""
    titles = {f"song:{row['id']}": row["title"] for row in every(store, sa.select(songs.c.id, songs.c.title))}
    return {
        titles.get(item["key"], item["key"]): Trouble(
            item["status"], item["error_code"], item["error_message"], item["attempt"]
        )
        for item in items_of(store, job_id, step)
    }


def candidates(store: Store, title: str) -> list[sa.RowMapping]:
    """What was considered for a song, in order."""
    query = sa.select(song_candidates).join(songs, songs.c.id == song_candidates.c.song_id)
    return every(store, query.where(songs.c.title == title).order_by(song_candidates.c.id))


def force_retry(store: Store, settings: Settings, item_id: int) -> None:
    """As an operator would, and until its job has ended again."""
    said = ask(store, "force_retry_item", item_id=item_id)
    assert said.status == "applied", said.error_message
    assert said.job_id is not None
    with at_work(store, settings):
        wait_for_job(store, said.job_id, ENDED, 60)


def song(store: Store, title: str) -> sa.RowMapping:
    (found,) = every(store, sa.select(songs).where(songs.c.title == title))
    return found


# --- what is where --------------------------------------------------------------------------------


class Place(NamedTuple):
    song_id: int
    remote_id: str
    title: str
    sha256: str
    kind: str
    url: str
    path: str


def places(store: Store) -> list[Place]:
    """Every song's file in every place it is known to be."""
    query = (
        sa.select(
            songs.c.id,
            songs.c.remote_id,
            songs.c.title,
            file_assets.c.sha256,
            object_storage_backends.c.kind,
            object_storage_backends.c.url,
            file_locations.c.path,
        )
        .join(file_assets, file_assets.c.id == songs.c.asset_id)
        .join(file_locations, file_locations.c.asset_id == file_assets.c.id)
        .join(object_storage_backends, object_storage_backends.c.id == file_locations.c.backend_id)
        .where(file_locations.c.missing_at.is_(None))
        .order_by(songs.c.id)
    )
    return [Place(*row.values()) for row in every(store, query)]


def tree(root: Path, but: Path | None = None) -> dict[str, int]:
    """Every file under `root`, with its size; what is under `but` is left out."""
    return {
        str(path.relative_to(root)): path.lstat().st_size
        for path in sorted(root.rglob("*"))
        if not path.is_dir() and (but is None or not path.is_relative_to(but))
    }


def audio_in(library: Path) -> list[Path]:
    kinds = {".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a"}
    return sorted(path for path in library.rglob("*") if path.suffix in kinds)


def assert_clean(library: Path) -> None:
    """Nothing half-done is left."""
    assert [path for path in library.rglob("*") if path.name.endswith((".part", ".tmp"))] == []
    left = library / ".dalsegno"
    assert not left.exists() or [path for path in left.iterdir() if path.name != MARKER] == []


def assert_same(store: Store, origin: Mapping[str, Path], server: S3Server, prefix: str) -> None:
    """Origin, library and bucket have the same bytes for each of these songs (by remote id), and nothing else."""
    local = {place.remote_id: place for place in places(store) if place.kind == "library"}
    remote = {place.remote_id: place for place in places(store) if place.kind == "s3"}
    assert local.keys() == remote.keys() == origin.keys()
    objects = bucket(server, prefix)
    for key, file in origin.items():
        wanted = digest(file)
        assert local[key].sha256 == wanted, local[key]
        assert digest(Path(local[key].url, local[key].path)) == wanted, local[key]
        assert objects.get(remote[key].path) == wanted, remote[key]
    assert set(objects) == {place.path for place in remote.values()}


def bucket(server: S3Server, prefix: str) -> dict[str, str]:
    """The SHA-256 of everything under a prefix, read back by another client."""
    client, found = server.client(), {}
    try:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=server.bucket, Prefix=f"{prefix}/"):
            for entry in page.get("Contents", ()):
                with client.get_object(Bucket=server.bucket, Key=entry["Key"])["Body"] as body:
                    found[entry["Key"].removeprefix(f"{prefix}/")] = hashlib.sha256(body.read()).hexdigest()
    finally:
        client.close()
    return found


def assert_playlists(store: Store, library: Path) -> dict[tuple[str, str], list[Path]]:
    """Each synced playlist has its file: relative, in order, every entry there. Returns them by kind and name."""
    sheets: dict[str, Path] = {}
    for path in (library / "Playlists").glob("*.m3u8"):
        lines = path.read_text(encoding="utf-8").split("\n")
        assert lines[0] == "#EXTM3U"
        sheets[lines[2].removeprefix("#DALSEGNO:")] = path
    files: dict[int, list[Path]] = {}
    for place in places(store):
        if place.kind == "library":
            files.setdefault(place.song_id, []).append(Path(place.url, place.path))
    found: dict[tuple[str, str], list[Path]] = {}
    for row in every(store, sa.select(playlists).where(playlists.c.synced_at.is_not(None))):
        members = every(
            store,
            sa.select(playlist_songs.c.song_id)
            .where(playlist_songs.c.playlist_id == row["id"], playlist_songs.c.removed_at.is_(None))
            .order_by(playlist_songs.c.position),
        )
        here = [member["song_id"] for member in members if member["song_id"] in files]
        key = f"{row['platform']}:{row['remote_id']}"
        if not here and key not in sheets:
            continue
        lines = [line for line in sheets[key].read_text(encoding="utf-8").split("\n") if line and line[0] != "#"]
        for line in lines:
            assert not Path(line).is_absolute() or not Path(line).is_relative_to(library), line
        entries = [(sheets[key].parent / line).resolve() for line in lines]
        assert all(entry.is_file() for entry in entries), row["name"]
        assert len(entries) == len(here), row["name"]
        for entry, number in zip(entries, here, strict=True):
            assert entry in [file.resolve() for file in files[number]], row["name"]
        found[row["kind"], row["name"]] = entries
    return found


# --- caddy, which writes down who asked for what --------------------------------------------------


class Web(NamedTuple):
    """Files over HTTP, or another server behind it."""

    url: str
    log: Path

    def asked(self) -> Counter[str]:
        """How often each path was asked for, in all that has been answered by now."""
        mark = f"/mark-{free_port()}"
        try:
            urllib.request.urlopen(self.url + mark, timeout=30).close()
        except OSError as answer:
            answer.close() if hasattr(answer, "close") else None
        return wait_until(lambda: self._read(mark), f"{mark} in the access log")

    def _read(self, mark: str) -> Counter[str]:
        paths = [
            unquote(urlsplit(json.loads(line)["request"]["uri"]).path) for line in self.log.read_text().splitlines()
        ]
        return Counter(path for path in paths if not path.startswith("/mark-")) if mark in paths else Counter()


@contextmanager
def web(root: Path | None = None, *, before: str = "") -> Iterator[Web]:
    """Caddy with an access log, serving `root`, or standing before another server."""
    with tempfile.TemporaryDirectory(prefix="caddy-") as folder:
        port, home = free_port(), Path(folder)
        what = f"reverse_proxy {before}" if before else f"root * {root}\n file_server"
        (home / "Caddyfile").write_text(
            f"{{\n admin off\n auto_https off\n}}\nhttp://127.0.0.1:{port} {{\n bind 127.0.0.1\n"
            f" log {{\n output file {home}/access.log\n format json\n }}\n {what}\n}}\n"
        )
        command = [str(BIN / "caddy"), "run", "--config", "Caddyfile", "--adapter", "caddyfile"]
        env = {"HOME": folder, "XDG_DATA_HOME": folder, "XDG_CONFIG_HOME": folder}
        url = f"http://127.0.0.1:{port}"
        with serving(command, f"{url}/mark-ready", home, env=env):
            yield Web(url, home / "access.log")


def m3u(entries: list[tuple[str, str]], title: str = "") -> str:
    """A playlist of (title, URL or path)."""
    lines = ["#EXTM3U", *([f"#PLAYLIST:{title}"] if title else [])]
    for name, where in entries:
        lines += [f"#EXTINF:-1,{name}", where]
    return "\n".join(lines) + "\n"


def quoted(path: Path, root: Path) -> str:
    return "/" + quote(str(path.relative_to(root)), safe="/")


# --- songs with tags, of three kinds --------------------------------------------------------------


def tagged(number: int, title: str, artist: str, album: str) -> tuple[bytes, str]:
    """A real song and its suffix. Numbers make other bytes, and kinds take turns."""
    match number % 3:
        case 0:
            return _tagged_flac(audio.flac(0.02, number, channels=1), title, artist, album), ".flac"
        case 1:
            return _id3(title, artist, album) + audio.mp3(0.3, number, id3=False), ".mp3"
        case _:
            tag = _id3(title, artist, album)
            chunk = b"id3 " + struct.pack("<I", len(tag)) + tag + b"\0" * (len(tag) % 2)
            plain = audio.wav(0.02, number, channels=1) + chunk
            return plain[:4] + struct.pack("<I", len(plain) - 8) + plain[8:], ".wav"


def _tagged_flac(plain: bytes, title: str, artist: str, album: str) -> bytes:
    comments = [f"{name}={text}".encode() for name, text in (("TITLE", title), ("ARTIST", artist), ("ALBUM", album))]
    tags = struct.pack("<I4sI", 4, b"test", len(comments))
    tags += b"".join(struct.pack("<I", len(comment)) + comment for comment in comments)
    after_info = 4 + 4 + 34
    old = 4 + int.from_bytes(plain[after_info + 1 : after_info + 4], "big")
    return plain[:after_info] + b"\x84" + len(tags).to_bytes(3, "big") + tags + plain[after_info + old :]


def _id3(title: str, artist: str, album: str) -> bytes:
    frames = b""
    for name, text in ((b"TIT2", title), (b"TPE1", artist), (b"TALB", album)):
        content = b"\x03" + text.encode()
        frames += name + _syncsafe(len(content)) + b"\0\0" + content
    return b"ID3\x04\0\0" + _syncsafe(len(frames)) + frames


def _syncsafe(number: int) -> bytes:
    return bytes(number >> shift & 0x7F for shift in (21, 14, 7, 0))


# --- a Subsonic server, asked from the side -------------------------------------------------------


class Subsonic(NamedTuple):
    url: str
    user: str
    password: str

    def call(self, verb: str, **params: Any) -> dict[str, Any]:
        query = urlencode({"u": self.user, "p": self.password, "c": "test", "v": "1.12.0", "f": "json", **params}, True)
        with urllib.request.urlopen(f"{self.url}/rest/{verb}.view", query.encode(), timeout=60) as answer:
            said = json.load(answer)["subsonic-response"]
        assert said["status"] == "ok", said
        return dict(said)

    def songs(self) -> dict[str, str]:
        """Every song's id, and its path in the library."""
        found: dict[str, str] = {}
        while True:
            page = self.call("search3", query="", songCount=500, songOffset=len(found), albumCount=0, artistCount=0)
            some = page["searchResult3"].get("song", [])
            if not some:
                return found
            found |= {each["id"]: each["path"] for each in some}
