"""The built-in workflow: real files, never twice, never outside the library, and a full disk pauses it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno import Done, Fail, PauseJob, Release, Skip
from dalsegno.builtin import scale
from dalsegno.builtin.files import receipt_of, whole, write_whole
from dalsegno.testing import Ran, drain, run_item

NOTE = {"number": 9, "seconds": 0.05}
SERVICES = [scale.tone, scale.listen, scale.playlist]


def render(root: Path, key: str = "A3", **how: Any) -> Ran:
    return run_item(
        scale.tone, key=key, params={**NOTE, **how.pop("params", {})}, snapshot={"LIBRARY_ROOT": str(root)}, **how
    )


def files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "scale").iterdir())


def test_a_note_is_a_whole_wav_file_with_its_receipt(tmp_path: Path) -> None:
    ran = render(tmp_path)
    assert isinstance(ran.outcome, Done)
    path = Path(ran.result["path"])
    assert files(tmp_path) == ["10-A3.wav", "10-A3.wav.sha256"]
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnframes()) == (scale.RATE, ran.result["frames"])
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    assert ran.result["sha256"] == checksum
    assert receipt_of(path).read_text() == f"{checksum}  10-A3.wav\n"
    assert ran.progress[-1].fraction == 1.0
    assert [file.kind for file in ran.artifacts] == ["output"]


def test_a_note_that_is_there_is_skipped_before_any_work(tmp_path: Path) -> None:
    first = render(tmp_path)
    path = Path(first.result["path"])
    before = path.stat().st_mtime_ns
    again = render(tmp_path)
    assert isinstance(again.outcome, Skip)
    assert again.result == first.result
    assert again.progress == []
    assert path.stat().st_mtime_ns == before
    assert [file.kind for file in again.artifacts] == ["output"]


def test_forced_it_is_rendered_again(tmp_path: Path) -> None:
    path = Path(render(tmp_path).result["path"])
    before = path.stat().st_ino
    again = render(tmp_path, forced=True)
    assert isinstance(again.outcome, Done)
    assert path.stat().st_ino != before


@pytest.mark.parametrize("damage", ["truncated", "changed", "no receipt"])
def test_a_damaged_file_is_rendered_again(tmp_path: Path, damage: str) -> None:
    first = render(tmp_path)
    path = Path(first.result["path"])
    content = path.read_bytes()
    match damage:
        case "truncated":
            path.write_bytes(content[:-2])
        case "changed":
            path.write_bytes(content[:-2] + b"xx")
        case _:
            receipt_of(path).unlink()
    again = render(tmp_path)
    assert isinstance(again.outcome, Done)
    assert path.read_bytes() == content
    assert again.result == first.result


def test_canceled_it_stops_and_leaves_no_file(tmp_path: Path) -> None:
    ran = render(tmp_path, cancelled=True)
    assert isinstance(ran.outcome, Release)
    assert not (tmp_path / "scale").exists()


@pytest.mark.parametrize("key", ["../../outside", "ABSOLUTE", "a/b", "..", ".hidden", "x\0y", "\n"])
def test_no_name_leads_out_of_the_library(tmp_path: Path, key: str) -> None:
    root = tmp_path / "library"
    key = str(tmp_path / "outside") if key == "ABSOLUTE" else key
    assert isinstance(render(root, key).outcome, Done)
    bound = run_item(scale.playlist, key=key, params={"tracks": []}, snapshot={"LIBRARY_ROOT": str(root)})
    assert isinstance(bound.outcome, Done)
    made = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(made) == 4
    assert all(path.parent == root / "scale" for path in made), made


def test_listening_finds_what_is_wrong(tmp_path: Path) -> None:
    rendered = render(tmp_path).result
    path = Path(rendered["path"])

    def listen() -> Ran:
        return run_item(scale.listen, input=rendered)

    assert listen().result["rms"] > 0.1
    content = path.read_bytes()
    path.write_bytes(content[:44] + bytes(len(content) - 44))
    assert listen().outcome == Fail("10-A3.wav is not the file that was written", code="checksum_mismatch")
    rendered["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    assert getattr(listen().outcome, "code", None) == "too_quiet"
    path.write_bytes(b"no sound")
    assert isinstance(listen().outcome, Fail)
    path.unlink()
    assert isinstance(listen().outcome, Fail)


def test_the_whole_workflow_binds_the_notes_in_order(tmp_path: Path) -> None:
    params = {"notes": 13, "seconds": 0.02, "pace": 0}
    drained = drain(SERVICES, scale.SCALE, params=params, snapshot={"LIBRARY_ROOT": str(tmp_path)})
    assert drained.job.status == "completed"
    names = [line for line in (tmp_path / "scale/scale.m3u8").read_text().splitlines() if line[0] != "#"]
    assert names == sorted(names)
    assert len(names) == 13
    assert all((tmp_path / "scale" / name).exists() for name in names)
    again = drain(SERVICES, scale.SCALE, params=params, snapshot={"LIBRARY_ROOT": str(tmp_path)})
    assert {item.status for item in again.of("render")} == {"skipped"}
    assert {item.status for item in again.of("verify")} == {"succeeded"}


@pytest.mark.parametrize(
    "params", [{"notes": 0}, {"notes": 62}, {"notes": "many"}, {"seconds": 0}, {"seconds": 61}, {"seconds": "long"}]
)
def test_parameters_out_of_range_fail_the_job_with_the_reason(tmp_path: Path, params: dict[str, Any]) -> None:
    drained = drain(SERVICES, scale.SCALE, params=params, snapshot={"LIBRARY_ROOT": str(tmp_path)})
    assert drained.job.status == "failed"
    assert f"{next(iter(params))} must be" in (drained.job.error_message or "")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a filesystem of a chosen size needs root")
    point = tmp_path / "disk"
    point.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(point)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us mount")
    yield point
    subprocess.run(["umount", "-l", str(point)], check=True)


def test_a_full_disk_pauses_the_job(small_disk: Path) -> None:
    ran = render(small_disk, params={"seconds": 5})
    assert isinstance(ran.outcome, PauseJob)
    assert ran.outcome.code == "disk_full"
    assert not list((small_disk / "scale").glob("*.wav")), "no half a note is taken for a whole one"
    params = {"notes": 2, "seconds": 5, "pace": 0}
    drained = drain(SERVICES, scale.SCALE, params=params, snapshot={"LIBRARY_ROOT": str(small_disk)})
    assert drained.job.status == "paused"
    assert "disk_full" in (drained.job.pause_reason or "")
    assert "interrupted" in {item.status for item in drained.of("render")}


# --- files --------------------------------------------------------------------------------------


def test_a_file_is_whole_only_with_its_size_and_receipt(tmp_path: Path) -> None:
    path = tmp_path / "new/deep/file"
    assert whole(path, 5) is None
    checksum = write_whole(path, b"hello")
    assert whole(path, 5) == checksum
    assert whole(path, 6) is None
    path.write_bytes(b"jello")
    assert whole(path, 5) is None


def test_two_writers_of_one_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([number]) * 100_000 for number in range(4)]
    threads = [threading.Thread(target=write_whole, args=(path, content)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert not list(tmp_path.glob("*.part"))


def test_a_part_somebody_left_behind_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(b"x" * 1000)
    write_whole(tmp_path / "file", b"hello")
    assert (tmp_path / "file").read_bytes() == b"hello"
