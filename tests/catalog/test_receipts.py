"""Receipts: kept by one process, found by the next, gone when settled."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from dalsegno import durable
from dalsegno.catalog import receipts as module
from dalsegno.catalog.receipts import STAGING, Receipt, Receipts

ONE = Receipt(sha256="0" * 64, size=3, path="群星/Café.flac", audio={"format": "flac"}, modified_ns=5,
              extra={"lyrics": "la\nla"})  # fmt: skip
CHILD = """
import os, signal, sys
from pathlib import Path
from dalsegno.catalog.receipts import Receipt, Receipts
mine = Receipts(Path(sys.argv[1]))
for key in sys.argv[2:]:
    mine.keep(key, Receipt(sha256=key, size=1, path=key, audio={}, modified_ns=0))
print("kept", flush=True)
sys.stdin.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


def logs(root: Path) -> list[Path]:
    return sorted((root / STAGING).glob("receipts-*.log"))


def child(root: Path, *keys: str) -> subprocess.Popen[str]:
    made = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(root), *keys], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert made.stdout is not None
    assert made.stdout.readline() == "kept\n"
    return made


def test_a_receipt_is_found_until_it_is_forgotten_and_then_no_file_is_left(tmp_path: Path) -> None:
    mine = Receipts(tmp_path)
    assert mine.find("song-1") is None
    mine.keep("song-1", ONE)
    mine.keep("song-2", ONE)
    assert mine.find("song-1") == ONE
    assert len(logs(tmp_path)) == 1
    assert mine.forget("song-1") == ONE
    assert mine.forget("song-1") is None
    assert mine.all() == {"song-2": ONE}
    mine.forget("song-2")
    assert logs(tmp_path) == []
    mine.keep("song-1", ONE)
    assert mine.find("song-1") == ONE


def test_what_a_killed_process_kept_is_taken_over_and_what_a_living_one_keeps_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN", 0.0)
    mine = Receipts(tmp_path)
    mine.keep("song-1", ONE)
    with child(tmp_path, "song-1", "song-2") as other:
        assert mine.find("song-2") is None
        assert len(logs(tmp_path)) == 2
        other.communicate("")
    found = mine.find("song-2")
    assert found is not None
    assert found.path == "song-2"
    assert mine.find("song-1") == ONE  # ours is the newer word
    assert len(logs(tmp_path)) == 1
    assert Receipts(tmp_path).all() == {}  # held by `mine`, in this very process


def test_what_a_killed_process_kept_is_taken_over_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, text: bytes) -> int:
        raise OSError(28, "No space left on device")

    with child(tmp_path, "song-1", "song-2") as other:
        other.communicate("")
    (log,) = logs(tmp_path)
    with log.open("ab") as stream:
        stream.write(b'{"key": "song-3", "sha')  # it was cut off
    mine = Receipts(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", full)
        assert mine.find("song-1") is not None
        assert mine.find("song-2") is not None
    mine.keep("song-4", ONE)
    assert logs(tmp_path) == [log]
    assert [line[:16] for line in log.read_bytes().splitlines()] == [
        b'{"key": "song-1"', b'{"key": "song-2"', b'{"key": "song-4"',
    ]  # fmt: skip
    for key in ("song-1", "song-2", "song-4"):
        mine.forget(key)
    assert logs(tmp_path) == []


def test_the_last_word_on_a_song_counts_and_a_line_cut_off_says_nothing(tmp_path: Path) -> None:
    mine = Receipts(tmp_path)
    mine.keep("song-1", ONE)
    mine.keep("song-1", replace(ONE, path="elsewhere.flac"))
    mine.keep("song-2", ONE)
    (log,) = logs(tmp_path)
    text = log.read_bytes()
    mine.forget("song-1")
    mine.forget("song-2")
    log.write_bytes(b"\xff\n[]\n{}\n" + text[:-10])
    found = Receipts(tmp_path).all()
    assert {key: receipt.path for key, receipt in found.items()} == {"song-1": "elsewhere.flac"}


def test_a_file_grown_large_is_written_anew_without_what_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGE", 2000)
    mine = Receipts(tmp_path)
    mine.keep("song-0", ONE)
    for number in range(1, 50):
        mine.keep(f"song-{number}", ONE)
        mine.forget(f"song-{number}")
        (log,) = logs(tmp_path)
        assert log.stat().st_size < 2500
    assert mine.find("song-0") == ONE
    assert b'"song-0"' in log.read_bytes()


def test_a_file_somebody_took_away_is_made_again(tmp_path: Path) -> None:
    mine = Receipts(tmp_path)
    mine.keep("song-1", ONE)
    logs(tmp_path)[0].unlink()
    mine.keep("song-2", ONE)
    (log,) = logs(tmp_path)
    assert log.read_bytes().count(b"\n") == 2


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Receipts(tmp_path)
    mine.keep("song-1", ONE)
    (log,) = logs(tmp_path)
    before, write = log.read_bytes(), os.write

    def half(descriptor: int, text: bytes) -> int:
        if len(text) < 100:
            raise OSError(28, "No space left on device")
        return write(descriptor, text[: len(text) - 50])

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", half)
        with pytest.raises(OSError, match="No space"):
            mine.keep("song-2", ONE)
    assert log.read_bytes() == before
    assert mine.find("song-2") is None
    mine.keep("song-3", ONE)
    assert log.read_bytes().count(b"\n") == 2


def test_threads_share_a_flush_and_each_is_durable_when_its_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    syncing = durable.sync_data

    def slow(descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        syncing(descriptor)
        threading.Event().wait(0.01)
        flushed.append(size)

    monkeypatch.setattr(durable, "sync_data", slow)
    mine = Receipts(tmp_path)
    mine.keep("song-0", ONE)
    trouble: list[str] = []

    def keep(number: int) -> None:
        mine.keep(f"song-{number}", ONE)
        if max(flushed) < logs(tmp_path)[0].read_bytes().find(b'"song-%d"' % number):
            trouble.append(f"song-{number}")

    threads = [threading.Thread(target=keep, args=(number,)) for number in range(1, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not trouble
    assert len(flushed) < 17
    assert len(mine.all()) == 17
