"""An uploader killed with SIGKILL, a server killed with SIGKILL, a server that is full."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from dalsegno.objects import StoreError, StoreFull, StoreUnavailable
from tests.objects.conftest import MIB, Song, store_on
from tests.objects.notes import Note
from tests.s3 import S3Server, juicefs, seaweedfs

pytestmark = pytest.mark.xdist_group("s3")
MakeSong = Callable[..., Song]
T = TypeVar("T")

UPLOADER = """
import json, os, signal, sys
from pathlib import Path
from typing import TypeVar
from dalsegno.objects import open_store
from tests.objects.notes import Note
job = json.loads(sys.argv[1])
def moved(done, size):
    if done >= job["die_at"]:
        os.kill(os.getpid(), signal.SIGKILL)
store = open_store(job["url"], job["config"])
store.put("song", Path(job["path"]), job["sha256"], job["size"], resume=Note(Path(job["note"])), moved=moved)
"""


def on_server(server: S3Server, key: str, upload_id: str) -> int:
    with contextlib.closing(server.client()) as client:
        parts = client.list_parts(Bucket=server.bucket, Key=key, UploadId=upload_id).get("Parts", ())
    return sum(part["Size"] for part in parts)


def test_an_uploader_killed_again_and_again_sends_every_part_once(
    server: S3Server, song: MakeSong, tmp_path: Path
) -> None:
    it, note = song(64 * MIB), Note(tmp_path / "note")
    job = {"config": server.config, "path": str(it.path), "sha256": it.sha256, "size": it.size, "note": str(note.path)}
    job["url"] = f"s3://{server.bucket}/killed {tmp_path.name}"
    for die_at in (21 * MIB, 45 * MIB):
        run = [sys.executable, "-c", UPLOADER, json.dumps(job | {"die_at": die_at})]
        root = Path(__file__).parents[2]
        assert subprocess.run(run, check=False, env={**os.environ, "PYTHONPATH": str(root)}).returncode == -9
    unfinished = note.load()
    assert unfinished is not None
    there = on_server(server, unfinished.key, unfinished.upload_id)
    assert there == 40 * MIB

    store = store_on(server, prefix=f"killed {tmp_path.name}", small=16 * MIB, part_size=None)
    assert store.stat("song") is None
    put = store.put("song", *it, resume=note)
    assert put.bytes_sent == it.size - there
    assert put.parts_reused == 5
    assert b"".join(store.read("song")) == it.path.read_bytes()
    assert note.load() is None
    assert store.put("song", *it, resume=note).skipped
    store.close()


@pytest.mark.parametrize("make", [seaweedfs, juicefs])
def test_a_server_killed_under_way_costs_only_what_it_had_not_acknowledged(
    make: Callable[[Path], contextlib.AbstractContextManager[S3Server]], song: MakeSong, tmp_path: Path
) -> None:
    it, note = song(32 * MIB), Note(tmp_path / "note")
    with make(tmp_path / "server") as server:
        store = store_on(server)
        assert store.capabilities.multipart
        killed = False

        def moved(done: int, size: int) -> None:
            nonlocal killed
            if done >= 17 * MIB and not killed:
                killed = True
                server.kill()

        with pytest.raises(StoreUnavailable) as gone:
            store.put("song", *it, resume=note, moved=moved)
        assert gone.value.code == "unreachable"
        server.start()
        unfinished = note.load()
        assert unfinished is not None
        there = patiently(lambda: on_server(server, unfinished.key, unfinished.upload_id))
        assert there == 15 * MIB
        put = patiently(lambda: store.put("song", *it, resume=note))
        assert (put.parts_reused, put.bytes_sent) == (3, it.size - there)
        assert b"".join(store.read("song")) == it.path.read_bytes()
        store.close()


def patiently(attempt: Callable[[], T]) -> T:
    """A server that just came back may need a moment to find its own parts; each attempt already waits in between."""
    from botocore.exceptions import ClientError

    for _ in range(30):
        with contextlib.suppress(StoreError, ClientError):
            return attempt()
    return attempt()


def test_a_full_server_is_said_so(song: MakeSong, tmp_path: Path) -> None:
    with seaweedfs(tmp_path / "server", volumes=8, volume_mb=1) as server:
        store = store_on(server)
        songs = [song(6 * MIB, number) for number in range(9)]
        with pytest.raises(StoreFull) as full:
            any(store.put(f"song {number}", *it).skipped for number, it in enumerate(songs))
        assert full.value.code == "store_full"
        assert not full.value.certain
        store.close()
