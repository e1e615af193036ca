"""A catalog to kill: its origin and its store live in processes of their own and survive."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

import dalsegno
from dalsegno.catalog.export import FOLDER
from dalsegno.catalog.presence import MARKER, STORE_MARKER
from dalsegno.catalog.receipts import STAGING
from dalsegno.catalog.schema import (
    file_assets,
    file_locations,
    object_storage_backends,
    playlist_songs,
    playlists,
    songs,
    uploads,
)
from dalsegno.model.states import JOB_FINISHED
from dalsegno.objects.model import RESERVED
from dalsegno.store.schema import items, jobs, stages
from tests.crash.harness import Child, Harness, eventually
from tests.helpers import assert_sound, every
from tests.proxy import Proxy
from tests.s3 import S3Server
from tests.servers import wav
from tests.stateful.audit import check

PROGRAM = Path(__file__).with_name("catalog_program.py")
COMPANIONS = (".lrc", ".txt", ".png", ".jpg")


def catalog_points() -> list[str]:
    """Every place in the catalog to die at: its own points, and both sides of each of its commits."""
    points: list[str] = []
    for file in sorted((Path(dalsegno.__file__).parent / "catalog").glob("*.py")):
        text = file.read_text()
        points += re.findall(r"faults\.point\(\"([a-z.]+)\"\)", text)
        for name in re.findall(r"\.write\(\s*\"([a-z.]+)\"", text):
            points += [f"{name}.commit.before", f"{name}.commit.after"]
    return list(dict.fromkeys(points))


# --- where songs come from ----------------------------------------------------------------------


@dataclass
class Origin:
    """The demo catalog in a process of its own, and a folder in which some songs are there twice."""

    url: str
    folder: Path
    process: subprocess.Popen[str] = field(repr=False)

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(urllib.parse.urljoin(self.url, path), timeout=30) as answer:
            return answer.read()

    def stats(self) -> Counter[str]:
        """How often each track was asked for, by what: its audio or its link."""
        told = json.loads(self.get("/stats"))
        return Counter({f"{kind} {id}": n for kind in ("requests", "resolves") for id, n in told[kind].items()})

    def companions(self, platform: str, remote_id: str) -> list[str]:
        """The suffixes of what belongs beside a song."""
        if platform == "folder":
            return []
        return [".png", *([".lrc"] if json.loads(self.get(f"/tracks/{remote_id}/link"))["lyrics"] else [])]

    def checksum(self, platform: str, remote_id: str) -> str:
        if platform == "folder":
            data = (self.folder.parent / remote_id).read_bytes()
        else:
            data = self.get(json.loads(self.get(f"/tracks/{remote_id}/link"))["url"])
        return hashlib.sha256(data).hexdigest()


@contextmanager
def origin(folder: Path, *, songs: int, seed: int = 1) -> Iterator[Origin]:
    local = folder / "old records"
    for number in range(12):
        # Three songs are there twice under other names, one twice under the same.
        wav(local / f"box {number % 2}" / f"{number}.wav", 0.3, tone=200.0 + 50 * (number % 9))
    wav(local / "box 0" / "again.wav", 0.3, tone=1234.0)
    wav(local / "box 1" / "again.wav", 0.3, tone=1234.0)
    command = [sys.executable, "-m", "dalsegno.sources.demo_server", "--no-faults", "--pace", "0"]
    command += ["--songs", str(songs), "--playlists", "6", "--seed", str(seed)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Origin(process.stdout.readline().strip(), local, process)
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


# --- where they go ------------------------------------------------------------------------------


class FolderShelf:
    """An object store that is a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    @property
    def settings(self) -> dict[str, str]:
        return {"OBJECT_STORE": f"file://{self.root}"}

    def writes(self, path: str) -> object:
        """Changes whenever the object is stored anew."""
        found = (self.root / path).stat()
        return found.st_ino, found.st_mtime_ns

    def objects(self) -> dict[str, str]:
        return {name: checksum(self.root / name) for name in files(self.root) if name != STORE_MARKER}

    def check_clean(self) -> None:
        reserved = [name for name in files(self.root) if RESERVED in name]
        assert reserved in ([], [STORE_MARKER]), "left in the store"


class BucketShelf:
    """A bucket, over a line that counts."""

    def __init__(self, server: S3Server, line: Proxy, prefix: str) -> None:
        self.server, self.line, self.prefix = server, line, prefix

    @property
    def settings(self) -> dict[str, str]:
        return {
            **{key: str(value) for key, value in self.server.config.items()},
            "S3_ENDPOINT": self.line.url,
            "OBJECT_STORE": f"s3://{self.server.bucket}/{self.prefix}",
        }

    def writes(self, path: str) -> object:
        count = self.line.asked["PUT", f"/{self.server.bucket}/{self.prefix}/{path}"]
        assert count, f"nobody ever stored {path}"
        return count

    def objects(self) -> dict[str, str]:
        found: dict[str, str] = {}
        with closing(self.server.client()) as client:
            pages = client.get_paginator("list_objects_v2").paginate(
                Bucket=self.server.bucket, Prefix=f"{self.prefix}/"
            )
            for page in pages:
                for each in page.get("Contents", ()):
                    if RESERVED in each["Key"]:
                        continue  # of a process that was killed while it tried out what the store can do
                    body = client.get_object(Bucket=self.server.bucket, Key=each["Key"])["Body"]
                    digest = hashlib.sha256()
                    for chunk in body.iter_chunks(1 << 20):
                        digest.update(chunk)
                    body.close()
                    found[each["Key"].removeprefix(f"{self.prefix}/")] = digest.hexdigest()
        return found

    def unfinished(self) -> list[Any]:
        with closing(self.server.client()) as client:
            found = client.list_multipart_uploads(Bucket=self.server.bucket).get("Uploads", ())
            return [each for each in found if RESERVED not in each["Key"]]

    def check_clean(self) -> None:
        assert not self.unfinished(), "an upload in parts was left in the store"


# --- the runs -----------------------------------------------------------------------------------


@dataclass
class Seen:
    """What was true when a process had just died."""

    stats: Counter[str]
    done: set[tuple[str, str]]
    """Songs whose success was stored, by platform and id."""
    landed: set[str]
    """Songs of the demo that were finished though it was not stored: they have a receipt."""
    uploaded: dict[str, object]
    """Objects whose success was stored, and when they were written."""


@dataclass
class Catalog(Harness):
    source: Origin | None = None
    shelf: FolderShelf | BucketShelf | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)

    @property
    def library(self) -> Path:
        return self.folder / "library"

    def start(self, *_: object, fault: str = "", **__: object) -> Child:
        paths = [str(PROGRAM.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            "PYTHONPATH": os.pathsep.join(paths),
            "DATABASE_URL": self.url,
            "LIBRARY_ROOT": str(self.library),
            "MIN_FREE_SPACE": "1MB",
            "DOWNLOAD_WORKERS": "4",
            "BACKOFF_BASE_SEC": "0.2",
            "CRASH_JOURNAL": str(self.journal_path),
            "DALSEGNO_FAULT": fault,
            **self.settings,
        }
        if self.source is not None:
            environment |= {"DEMO_URL": self.source.url, "FOLDER_ROOTS": str(self.source.folder)}
        if self.shelf is not None:
            environment |= self.shelf.settings
        self.folder.mkdir(parents=True, exist_ok=True)
        child = Child([sys.executable, str(PROGRAM)], environment, self.folder / "log")
        self.children.append(child)
        return child

    def await_start(self, child: Child) -> None:
        """Its engine runs, or it is dead already."""
        eventually("it starts", lambda: self.said("started", child.pid) or child.ends_within(0), 60)

    def finish(self) -> None:
        child = self.start()
        assert child.wait(240) == 0, child.said()

    def rows(self, statement: sa.Executable) -> list[sa.RowMapping]:
        with self.store() as store:
            return every(store, statement)

    def ended(self) -> bool:
        return any(row["status"] in JOB_FINISHED for row in self.rows(sa.select(jobs.c.status)))

    def statuses(self, step: str) -> Counter[str]:
        query = sa.select(items.c.status).join(stages, stages.c.id == items.c.stage_id).where(stages.c.key == step)
        return Counter(row["status"] for row in self.rows(query))

    # --- deaths -------------------------------------------------------------------------------

    def note_death(self) -> Seen:
        """Before anybody else comes: what must not be done again."""
        self.settled_down()
        check(self.look())
        self.check_deaths()
        done = self._done()
        by_number = {row["id"]: row["remote_id"] for row in self.rows(sa.select(songs)) if row["platform"] == "demo"}
        landed = {by_number[number] for number in self.receipts() if number in by_number}
        stats = Counter[str]() if self.source is None else self.source.stats()
        seen = Seen(stats, done, landed, {path: self._writes(path) for path in self._uploaded()})
        self.seen.append(seen)
        return seen

    def check_deaths(self) -> None:
        """Nothing that was done or landed at any death was asked for again since, nor stored again."""
        stats = Counter[str]() if self.source is None else self.source.stats()
        for seen in self.seen:
            for platform, remote_id in seen.done:
                for name in (f"requests {remote_id}", f"resolves {remote_id}"):
                    assert platform != "demo" or stats[name] == seen.stats[name], f"{name} after it was stored"
            for remote_id in seen.landed:
                name = f"requests {remote_id}"
                assert stats[name] == seen.stats[name], f"{name} after it had landed"
            for path, written in seen.uploaded.items():
                assert self._writes(path) == written, f"{path} was uploaded again"

    def receipts(self) -> set[int]:
        """Songs that have one."""
        logs = (self.library / STAGING).glob("receipts-*.log")
        lines = [line for path in logs for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return {int(json.loads(line)["key"].partition("-")[2]) for line in lines}

    def _done(self) -> set[tuple[str, str]]:
        query = (
            sa.select(items.c.key)
            .join(stages, stages.c.id == items.c.stage_id)
            .where(stages.c.key == "download", items.c.status == "succeeded")
        )
        numbers = {int(row["key"].partition(":")[2]) for row in self.rows(query)}
        return {(row["platform"], row["remote_id"]) for row in self.rows(sa.select(songs)) if row["id"] in numbers}

    def _uploaded(self) -> list[str]:
        query = (
            sa.select(file_locations.c.path)
            .join(object_storage_backends, object_storage_backends.c.id == file_locations.c.backend_id)
            .where(object_storage_backends.c.kind != "library")
        )
        return [row["path"] for row in self.rows(query)]

    def _writes(self, path: str) -> object:
        return None if self.shelf is None else self.shelf.writes(path)

    # --- the verdict --------------------------------------------------------------------------

    def judge(self, **_: Any) -> Any:  # type: ignore[override]
        """Everything there, once, as the origin has it, and nothing else."""
        self.check_deaths()
        self._judge_database()
        wanted = self._judge_files()
        self._judge_playlists(wanted)

    def _judge_database(self) -> None:
        picture = self.look()
        check(picture)
        assert {job["status"] for job in picture.jobs.values()} == {"completed"}, picture.jobs
        assert not picture.leases
        assert not picture.processes
        assert {item["status"] for item in picture.items.values()} <= {"succeeded", "skipped"}
        assert all(item["attempt"] == 0 for item in picture.items.values()), "a death cost an attempt"
        with self.store() as store:
            assert_sound(store, *picture.jobs)
        assert not self.rows(sa.select(uploads))

    def _judge_files(self) -> dict[int, Path]:
        """Where each song's file is."""
        assert self.source is not None
        assert self.shelf is not None
        found = self.rows(
            sa.select(songs.c.id, songs.c.platform, songs.c.remote_id, file_assets.c.sha256,
                      file_locations.c.path, object_storage_backends.c.kind)
            .join(file_assets, file_assets.c.id == songs.c.asset_id)
            .join(file_locations, file_locations.c.asset_id == file_assets.c.id)
            .join(object_storage_backends, object_storage_backends.c.id == file_locations.c.backend_id)
        )  # fmt: skip
        total = self.rows(sa.select(sa.func.count().label("n")).select_from(songs))[0]["n"]
        truth = {row["id"]: self.source.checksum(row["platform"], row["remote_id"]) for row in found}
        assert len(truth) == total > 0
        here, there = audio_of(self.library), self.shelf.objects()
        places: dict[int, Path] = {}
        for row in found:
            held = here if row["kind"] == "library" else there
            assert row["sha256"] == held[row["path"]] == truth[row["id"]], dict(row)
            if row["kind"] == "library":
                places[row["id"]] = self.library / row["path"]
                beside = self.source.companions(row["platform"], row["remote_id"])
                assert not [each for each in beside if not places[row["id"]].with_suffix(each).stat().st_size]
        assert places.keys() == truth.keys()
        for held in (here, there):
            assert Counter(held.values()) == Counter(set(truth.values())), "not exactly one file for each content"
        assert [path.name for path in (self.library / STAGING).iterdir() if path.name != MARKER] == []
        assert not [name for name in files(self.library) if name.endswith((".part", ".new"))]
        self.shelf.check_clean()
        return places

    def _judge_playlists(self, places: Mapping[int, Path]) -> None:
        folder = self.library / FOLDER
        sheets: dict[str, list[Path]] = {}
        for file in folder.iterdir():
            lines = file.read_text().splitlines()
            assert lines[2] not in sheets, "a playlist has two files"
            sheets[lines[2]] = [(folder / line).resolve() for line in lines if not line.startswith("#")]
        for row in self.rows(sa.select(playlists)):
            query = (
                sa.select(playlist_songs.c.song_id)
                .where(playlist_songs.c.playlist_id == row["id"])
                .order_by(playlist_songs.c.position)
            )
            wanted = [places[each["song_id"]].resolve() for each in self.rows(query)]
            mark = f"#DALSEGNO:{row['platform']}:{row['remote_id']}"
            assert sheets.pop(mark, None) == wanted, f"{row['name']}: its file is not right"
        assert not sheets


def files(root: Path) -> list[str]:
    return [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]


def audio_of(library: Path) -> dict[str, str]:
    """Checksums of what is in the library, without what belongs beside songs."""
    names = [name for name in files(library) if not name.startswith((f"{STAGING}/", f"{FOLDER}/"))]
    return {name: checksum(library / name) for name in names if not name.endswith(COMPANIONS)}


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
