"""Whatever is wrong with the database: a clear error that says what to do, and nothing lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dalsegno import Engine, Store, open_store, service, submit
from dalsegno.errors import (
    DalSegnoError,
    DatabaseCorrupt,
    DatabaseFull,
    DatabaseOnNetworkShare,
    DatabaseReadOnly,
    DatabaseUnavailable,
    DatabaseUrlInvalid,
)
from dalsegno.store import open as opening
from dalsegno.store.open import filesystem_of
from tests.helpers import SWIFT, assert_sound, keys, one_step, run_job, stage_of, statuses_of, wait_for_job

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a filesystem of a chosen size needs root")


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    points: list[Path] = []

    def mount(options: str) -> Path:
        point = tmp_path / f"mount{len(points)}"
        point.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(point)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"this machine does not let us mount: {done.stderr.strip()}")
        points.append(point)
        return point

    yield mount
    for point in points:
        subprocess.run(["umount", "-l", str(point)], check=True)


def fill(ballast: Path) -> None:
    """Until nothing fits any more."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://root:secret@host/db", "mysql"),
        ("oracle://host", "oracle"),
        ("not a url", "not a URL"),
        ("", "not a URL"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_with_an_example(url: str, says: str) -> None:
    with pytest.raises(DatabaseUrlInvalid, match=says) as caught:
        open_store(url)
    assert "sqlite:///path" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_server_that_does_not_answer_is_said_to_be_away() -> None:
    with pytest.raises(DatabaseUnavailable, match="does not answer") as caught:
        open_store("postgresql://someone:hunter2@127.0.0.1:1/nowhere")
    assert "hunter2" not in str(caught.value)


def test_a_database_that_does_not_exist_is_named(postgres_url: str) -> None:
    with pytest.raises(DatabaseUnavailable, match="no_such_database"):
        open_store(postgres_url.replace("/test_", "/no_such_database_"))


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUrlInvalid, match="it is a folder"):
        open_store(f"sqlite:///{tmp_path}")


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/new/deep/dalsegno.db").close()
    assert (tmp_path / "new/deep/dalsegno.db").exists()


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    with pytest.raises(DatabaseReadOnly, match="file"):
        open_store(f"sqlite:///{tmp_path}/file/dalsegno.db")


@pytest.mark.parametrize("content", [b"this is no database, " * 500, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(content)
    with pytest.raises(DatabaseCorrupt, match=r"\.recover") as caught:
        open_store(f"sqlite:///{path}")
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


def test_a_database_damaged_in_the_middle_is_said_to_be_corrupt(sqlite_url: str) -> None:
    store = open_store(sqlite_url)
    job = submit(store, one_step(), items=[(key, {"x": "y" * 200}) for key in keys(3000)]).job_id
    store.close()
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    data = bytearray(path.read_bytes())
    data[40_960 : len(data) - 40_960] = os.urandom(len(data) - 81_920)
    path.write_bytes(data)

    def use() -> None:
        damaged = open_store(sqlite_url)
        try:
            statuses_of(damaged, job)
            damaged.write("test", lambda tx: tx.raw.execute("REINDEX") and None)
        finally:
            damaged.close()

    with pytest.raises(DatabaseCorrupt, match="not a healthy SQLite database"):
        use()


@as_root
def test_a_read_only_disk_is_refused_with_what_to_do(mounted: Callable[..., Path], sqlite_template: Path) -> None:
    point = mounted("size=8m")
    shutil.copy(sqlite_template, point / "x.db")
    subprocess.run(["mount", "-o", "remount,ro", str(point)], check=True)
    for name in ("x.db", "new.db"):
        with pytest.raises(DatabaseReadOnly, match="write access"):
            open_store(f"sqlite:///{point}/{name}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere; the read-only mount is tested instead")
def test_a_folder_without_write_access_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(DatabaseReadOnly, match="write access"):
            open_store(f"sqlite:///{tmp_path}/x.db")
    finally:
        tmp_path.chmod(0o700)


@as_root
def test_a_disk_that_goes_read_only_under_a_running_store_is_told_apart(
    mounted: Callable[..., Path], stores: Callable[..., Store]
) -> None:
    point = mounted("size=8m")
    store = stores(f"sqlite:///{point}/x.db")
    submit(store, one_step(), items=keys(1))
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", str(point)], check=True)
    with pytest.raises(DatabaseReadOnly):
        open_store(f"sqlite:///{point}/x.db")
    subprocess.run(["mount", "-o", "remount,rw", str(point)], check=True)
    again = stores(f"sqlite:///{point}/x.db")
    assert statuses_of(again, 1) == {"pending": 1}


@as_root
def test_a_full_disk_loses_nothing_and_work_goes_on_once_there_is_space(
    mounted: Callable[..., Path], stores: Callable[..., Store]
) -> None:
    point = mounted("size=2m")
    store = stores(f"sqlite:///{point}/x.db")
    job = submit(store, one_step(), items=keys(20)).job_id
    ballast = point / "ballast"
    fill(ballast)

    def submit_many() -> None:
        for number in range(1000):
            submit(store, one_step(), items=[(key, {"x": "y" * 500}) for key in keys(50)], scope=number)

    with pytest.raises(DatabaseFull, match="Free some space"):
        submit_many()
    assert statuses_of(store, job) == {"pending": 20}

    @service("work")
    def work(item: object) -> None:
        return None

    ballast.unlink()
    assert run_job(store, [work], job) == "completed"
    assert stage_of(store, job)["succeeded"] == 20
    assert_sound(store, job)


@as_root
def test_a_disk_that_fills_up_during_a_run_strands_nothing(
    mounted: Callable[..., Path], stores: Callable[..., Store]
) -> None:
    point = mounted("size=4m")
    store = stores(f"sqlite:///{point}/x.db")
    ballast = point / "ballast"
    seen: list[str] = []
    full = threading.Event()

    @service("work", workers=2)
    def work(item: object) -> None:
        seen.append(item.key)  # type: ignore[attr-defined]
        if len(seen) == 20:
            fill(ballast)
            full.set()

    job = submit(store, one_step(max_attempts=1), items=keys(200)).job_id
    with Engine(store, [work], SWIFT):
        assert full.wait(30)
        ballast.unlink()
        assert wait_for_job(store, job, timeout=60) == "completed"
    assert len(seen) == len(set(seen)) == 200, "a finished item ran again"
    assert_sound(store, job)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs", "smb3"])
def test_a_network_share_is_refused_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/x {tmp_path}/share {kind} rw 0 0\n")
    (tmp_path / "share").mkdir()
    monkeypatch.setattr(opening, "filesystem_of", lambda path: filesystem_of(path, mounts))
    with pytest.raises(DatabaseOnNetworkShare, match=kind) as caught:
        open_store(f"sqlite:///{tmp_path}/share/x.db")
    assert "PostgreSQL" in str(caught.value)
    assert list((tmp_path / "share").iterdir()) == []
    open_store(f"sqlite:///{tmp_path}/local.db").close()


def test_the_innermost_mount_decides_and_odd_names_are_read(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda1 / ext4 rw 0 0\nserver:/x /data nfs rw 0 0\n/dev/sdb1 /data/local\\040disk xfs rw 0 0\n"
    )
    assert filesystem_of(Path("/data/x.db"), mounts) == "nfs"
    assert filesystem_of(Path("/data/local disk/x.db"), mounts) == "xfs"
    assert filesystem_of(Path("/database/x.db"), mounts) == "ext4"
    assert filesystem_of(Path("/x.db"), tmp_path / "missing") == ""


def test_every_error_about_a_database_says_what_to_do() -> None:
    for error in DalSegnoError.__subclasses__():
        assert error.__doc__, error
        assert error.code != "error" or error is DalSegnoError
    codes = [error.code for error in DalSegnoError.__subclasses__()]
    assert len(codes) == len(set(codes))
