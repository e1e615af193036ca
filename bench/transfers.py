"""Downloads beside `aria2c` and uploads beside `rclone copy`, in one run over loopback.

    python -m bench.transfers [--small 2000] [--large 5] [--pairs 3] [--workers 10] [--json]

Every round runs both sides on the same files, ours in a process of its own: the engine on SQLite, checksums, decoding
checks and file records included. What counts is the median of the rounds' ratios, both sides without fsync (our
database lies in memory for that, and files are not synced), each begun on an idle machine; a last run with everything
durable shows what that costs.
Needs aria2c and rclone (Debian: aria2, rclone).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
SMALL, LARGE = 100_000, 200_000_000
TIMEOUT = 900
IDLE_PERCENT = 10.0
IN_MEMORY = Path("/dev/shm")
"""The one place where fsync costs nothing."""


def wav(size: int, seed: int) -> Iterator[bytes]:
    """A file of exactly `size` bytes, no two alike."""
    rate = struct.pack("<IHHIIHH", 16, 1, 2, 44100, 176400, 4, 16)
    yield b"RIFF" + struct.pack("<I", size - 8) + b"WAVEfmt " + rate + b"data" + struct.pack("<I", size - 44)
    left, block, number = size - 44, random.Random(seed).randbytes(1_000_000), 0
    while left:
        piece = (struct.pack("<Q", number) + block[8:])[:left]
        yield piece
        left, number = left - len(piece), number + 1


def make_files(folder: Path, count: int, size: int) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{number:05}.wav" for number in range(count)]
    for number, file in enumerate(files):
        if not file.exists():
            with file.open("wb") as stream:
                stream.writelines(wav(size, number))
    return files


def _new(work: Path, side: str) -> Path:
    """All are kept to the end: for a minute, ext4 makes new files slowly where many were just deleted."""
    return Path(tempfile.mkdtemp(prefix=f"{side}-", dir=work))


# --- our side, in a process of its own ----------------------------------------------------------


def ours(work: Path, playlist: str, store: str, workers: int, durable: bool) -> dict[str, Any]:
    """Download a playlist and, where a store is given, upload what came."""
    from dalsegno import Engine, open_store
    from dalsegno import durable as files
    from dalsegno.catalog.services import catalog_services
    from dalsegno.catalog.templates import order
    from dalsegno.garbage import look_rarely
    from dalsegno.settings import Settings

    files.enabled = durable
    with tempfile.TemporaryDirectory(dir=work if durable else IN_MEMORY, prefix="dalsegno-bench-") as home:
        settings = Settings(
            database_url=f"sqlite:///{home}/bench.db",
            library_root=work / "library",
            min_free_space=0,
            playlist_files=(playlist,),
            download_workers=workers,
            upload_workers=workers,
            **(json.loads(store) if store else {}),
        )
        database = open_store(settings.database_url)
        look_rarely()  # as the command line does
        took: dict[str, Any] = {}
        with Engine(database, catalog_services(database, settings)) as engine:
            for name in ("collect", "sync", "download", *(["upload"] if store else [])):
                start, busy = time.monotonic(), time.process_time()
                status = engine.wait(order(database, settings, name).job_id, TIMEOUT)
                if status != "completed":
                    raise SystemExit(f"{name} ended as {status}")
                took[name] = time.monotonic() - start
                took[f"{name}_cpu"] = time.process_time() - busy
        database.close()
    took["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return took


def run_ours(work: Path, playlist: str, store: dict[str, Any] | None, workers: int, *, durable: bool) -> dict[str, Any]:
    place = _new(work, "ours")
    arguments = ["--ours", str(place), playlist, json.dumps(store) if store else "", str(workers), str(int(durable))]
    done = subprocess.run(
        [sys.executable, "-m", "bench.transfers", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    return dict(json.loads(done.stdout))


# --- the others ---------------------------------------------------------------------------------


def aria2c(work: Path, urls: Sequence[str], workers: int) -> float:
    place = _new(work, "aria2c")
    (work / "urls.txt").write_text("\n".join(urls) + "\n")
    command = ["aria2c", "-q", "-i", str(work / "urls.txt"), "-d", str(place), "-j", str(workers), "-x", "1"]
    start = time.monotonic()
    subprocess.run([*command, "--file-allocation=none"], check=True)
    return time.monotonic() - start


def rclone(folder: Path, server: Any, prefix: str, workers: int) -> float:
    env = {
        **{name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"},
        "RCLONE_CONFIG_TO_TYPE": "s3",
        "RCLONE_CONFIG_TO_PROVIDER": "Other",
        "RCLONE_CONFIG_TO_ENDPOINT": server.endpoint,
        "RCLONE_CONFIG_TO_ACCESS_KEY_ID": server.access_key,
        "RCLONE_CONFIG_TO_SECRET_ACCESS_KEY": server.secret_key,
        "RCLONE_CONFIG": "/dev/null",
    }
    command = ["rclone", "copy", str(folder), f"to:{server.bucket}/{prefix}", "--transfers", str(workers), "-q"]
    start = time.monotonic()
    subprocess.run(command, check=True, env=env)
    return time.monotonic() - start


def _settle() -> None:
    """What one side has left to the disk and to the servers is not the next one's burden."""
    os.sync()
    for _ in range(60):
        if psutil.cpu_percent(interval=0.5) < IDLE_PERCENT:
            return


# --- side by side -------------------------------------------------------------------------------


def compare(
    work: Path, kind: str, files: list[Path], url: str, server: Any, pairs: int, workers: int
) -> dict[str, Any]:
    urls = [f"{url}/{kind}/{file.name}" for file in files]
    playlist = work / "files" / f"{kind}.m3u8"
    playlist.write_text("#EXTM3U\n" + "".join(f"#EXTINF:1,{kind} {n:05}\n{each}\n" for n, each in enumerate(urls)))
    address = f"{url}/{kind}.m3u8"
    rounds: list[dict[str, Any]] = []
    for number in range(pairs):
        store = {
            "object_store": f"s3://{server.bucket}/ours-{kind}-{number}",
            "s3_endpoint": server.endpoint,
            "s3_access_key": server.access_key,
            "s3_secret_key": server.secret_key,
        }
        sides = [
            lambda: {"aria2c": aria2c(work, urls, workers)},
            lambda number=number: {"rclone": rclone(files[0].parent, server, f"rclone-{kind}-{number}", workers)},
            lambda store=store: run_ours(work, address, store, workers, durable=False),
        ]
        took: dict[str, Any] = {}
        for side in sides if number % 2 else reversed(sides):
            _settle()
            took |= side()
        rounds.append(took)
        print(json.dumps({"kind": kind, **{name: round(value, 2) for name, value in took.items()}}), file=sys.stderr)
    synced = run_ours(work, address, None, workers, durable=True)
    plain = median(each["download"] for each in rounds)
    return {
        "files": len(files),
        "download_ratio": round(median(each["aria2c"] / each["download"] for each in rounds), 2),
        "upload_ratio": round(median(each["rclone"] / each["upload"] for each in rounds), 2),
        "download_s": round(plain, 2),
        "aria2c_s": round(median(each["aria2c"] for each in rounds), 2),
        "upload_s": round(median(each["upload"] for each in rounds), 2),
        "rclone_s": round(median(each["rclone"] for each in rounds), 2),
        "download_durable_s": round(synced["download"], 2),
        "fsync_costs": round(synced["download"] / plain, 2),
        "peak_mb": round(max(each["peak_mb"] for each in rounds)),
    }


def main() -> None:
    if "--ours" in sys.argv:
        place, playlist, store, workers, durable = sys.argv[sys.argv.index("--ours") + 1 :]
        print(json.dumps(ours(Path(place), playlist, store, int(workers), bool(int(durable)))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=2000, help="files of 100 KB")
    parser.add_argument("--large", type=int, default=5, help="files of 200 MB")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=10)
    asked = parser.parse_args()
    for tool in ("aria2c", "rclone"):
        if shutil.which(tool) is None:
            parser.error(f"{tool} is not installed (Debian: apt-get install aria2 rclone)")
    from tests.s3 import seaweedfs
    from tests.servers import caddy

    with tempfile.TemporaryDirectory(prefix="dalsegno-transfers-") as folder:
        work = Path(folder)
        (work / "s3").mkdir()
        kinds = {"small": (asked.small, SMALL), "large": (asked.large, LARGE)}
        made = {kind: make_files(work / "files" / kind, *what) for kind, what in kinds.items() if what[0]}
        with caddy(work / "files") as url, seaweedfs(work / "s3") as server:
            found = {
                kind: compare(work, kind, files, url, server, asked.pairs, asked.workers)
                for kind, files in made.items()
            }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
