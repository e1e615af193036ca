from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dalsegno.objects import (
    NameTaken,
    SourceChanged,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    UploadCancelled,
    open_store,
)
from dalsegno.objects.local import ATTRIBUTE, FolderStore
from tests.objects.conftest import MIB, Song
from tests.objects.names import HOSTILE, REFUSED

MakeSong = Callable[..., Song]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "the store"


@pytest.fixture
def folder(root: Path) -> FolderStore:
    return FolderStore(root)


def strays(root: Path) -> list[str]:
    return [path.name for path in root.rglob("*") if path.name.endswith(".part") or "probe" in path.name]


@pytest.mark.parametrize("size", [0, 1, 3 * MIB + 7])
def test_a_file_arrives_whole(folder: FolderStore, root: Path, song: MakeSong, size: int) -> None:
    it = song(size)
    moves: list[tuple[int, int]] = []
    put = folder.put("a/b/c.flac", *it, moved=lambda done, of: moves.append((done, of)))
    assert (root / "a/b/c.flac").read_bytes() == it.path.read_bytes() == b"".join(folder.read("a/b/c.flac"))
    assert (put.skipped, put.bytes_sent, put.stored.sha256, put.stored.size) == (False, size, it.sha256, size)
    assert not size or moves[-1] == (size, size)
    assert folder.stat("a/b/c.flac") == put.stored
    assert strays(root) == []


def test_the_same_content_is_skipped_and_other_content_refused(folder: FolderStore, root: Path, song: MakeSong) -> None:
    old, new = song(1000, 1), song(1000, 2)
    folder.put("x", *old)
    assert folder.put("x", *old).skipped
    assert not folder.put("x", *old, force=True).skipped
    with pytest.raises(NameTaken) as taken:
        folder.put("x", *new)
    assert taken.value.code == "name_taken"
    assert (root / "x").read_bytes() == old.path.read_bytes()
    assert not folder.put("x", *new, overwrite=True).skipped
    assert (root / "x").read_bytes() == new.path.read_bytes()
    assert strays(root) == []


def test_the_checksum_is_not_believed_once_the_file_was_touched(
    folder: FolderStore, root: Path, song: MakeSong
) -> None:
    it = song(1000)
    folder.put("x", *it)
    (root / "x").write_bytes(b"y" * 1000)
    os.utime(root / "x", (1, 1))
    found = folder.stat("x")
    assert found is not None
    assert found.sha256 != it.sha256
    with pytest.raises(NameTaken):
        folder.put("x", *it)


def test_without_attributes_the_checksum_is_computed(
    folder: FolderStore, root: Path, song: MakeSong, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "setxattr", raising=False)
    monkeypatch.delattr(os, "getxattr", raising=False)
    it = song(1000)
    folder.put("x", *it)
    assert not folder.probe().metadata
    assert folder.put("x", *it).skipped


def test_the_checksum_survives_in_an_attribute(folder: FolderStore, root: Path, song: MakeSong) -> None:
    it = song(1000)
    folder.put("x", *it)
    if not folder.probe().metadata:
        pytest.skip("this filesystem has no extended attributes")
    assert os.getxattr(root / "x", ATTRIBUTE).decode().startswith(it.sha256)
    assert strays(root) == []


@pytest.mark.parametrize("key", HOSTILE)
def test_odd_names_are_kept(folder: FolderStore, song: MakeSong, key: str) -> None:
    it = song(100)
    if any(len(segment.encode()) > 255 for segment in key.split("/")):
        with pytest.raises(StoreRefused, match="too long"):
            folder.put(key, *it)
        return
    folder.put(key, *it)
    assert b"".join(folder.read(key)) == it.path.read_bytes()


@pytest.mark.parametrize("key", REFUSED)
def test_names_that_lead_elsewhere_are_refused(folder: FolderStore, root: Path, song: MakeSong, key: str) -> None:
    with pytest.raises(StoreRefused):
        folder.put(key, *song(100))
    assert not root.exists()


def test_a_link_does_not_lead_out(folder: FolderStore, root: Path, song: MakeSong, tmp_path: Path) -> None:
    root.mkdir()
    (tmp_path / "outside").mkdir()
    (root / "way").symlink_to(tmp_path / "outside")
    with pytest.raises(StoreRefused, match="leads out"):
        folder.put("way/x", *song(100))
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_source_that_changed_is_not_stored(folder: FolderStore, root: Path, song: MakeSong) -> None:
    it = song(1000)
    it.path.write_bytes(b"z" * 1000)
    with pytest.raises(SourceChanged):
        folder.put("x", *it)
    it.path.write_bytes(b"short")
    with pytest.raises(SourceChanged):
        folder.put("x", *it)
    assert folder.stat("x") is None
    assert strays(root) == []


def test_a_cancelled_copy_leaves_nothing(folder: FolderStore, root: Path, song: MakeSong) -> None:
    it = song(3 * MIB)
    moves: list[int] = []
    with pytest.raises(UploadCancelled):
        folder.put("x", *it, moved=lambda done, _: moves.append(done), cancelled=lambda: len(moves) > 2)
    assert folder.stat("x") is None
    assert strays(root) == []


def test_a_copy_killed_in_the_middle_leaves_no_wrong_file(folder: FolderStore, root: Path, song: MakeSong) -> None:
    it = song(3 * MIB)
    program = f"""
import os, signal
from pathlib import Path
from dalsegno.objects.local import FolderStore
def moved(done, size):
    if done > size // 2: os.kill(os.getpid(), signal.SIGKILL)
FolderStore(Path({str(root)!r})).put("x", Path({str(it.path)!r}), {it.sha256!r}, {it.size}, moved=moved)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    assert folder.stat("x") is None
    assert len(strays(root)) == 1
    folder.put("x", *it)
    assert (root / "x").read_bytes() == it.path.read_bytes()
    assert strays(root) == []


def test_two_processes_do_not_write_one_key_at_once(folder: FolderStore, root: Path, song: MakeSong) -> None:
    it = song(2 * MIB)

    def moved(done: int, size: int) -> None:
        with pytest.raises(StoreUnavailable) as busy:
            FolderStore(root).put("x", *it)
        assert busy.value.code == "busy"

    folder.put("x", *it, moved=moved)
    assert (root / "x").read_bytes() == it.path.read_bytes()


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "tiny"
    place.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=False).returncode
    ):
        pytest.skip("mounting a tmpfs needs root")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_is_said_so_and_left_clean(tiny: Path, song: MakeSong) -> None:
    store = FolderStore(tiny)
    old, new = song(300_000, 1), song(2 * MIB, 2)
    store.put("x", *old)
    with pytest.raises(StoreFull) as full:
        store.put("x", *new, overwrite=True)
    assert (full.value.code, full.value.status) == ("store_full", 507)
    assert (tiny / "x").read_bytes() == old.path.read_bytes()
    assert strays(tiny) == []


def test_a_lock_of_the_dead_holds_nobody_up(folder: FolderStore, root: Path, song: MakeSong) -> None:
    it = song(10)
    folder.put("y", *it)
    part = root / ".dalsegno-whatever.part"
    with part.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        folder.put("x", *it)
    assert (root / "x").exists()


def test_urls(tmp_path: Path) -> None:
    for url in (f"file://{tmp_path}/a%20b", f"{tmp_path}/a b"):
        store = open_store(url, {})
        assert isinstance(store, FolderStore)
        assert (store.root, store.kind) == (tmp_path / "a b", "file")
        assert store.url == f"file://{tmp_path}/a%20b"
    for wrong in ("relative/path", "ftp://x/y", "file://host/x", "s3://", "s3://key:secret@bucket/x"):
        with pytest.raises(StoreRefused) as refused:
            open_store(wrong, {})
        assert refused.value.code == "url_invalid"
        assert "secret" not in str(refused.value)
