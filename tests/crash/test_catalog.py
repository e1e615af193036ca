"""kill -9 in the middle of full runs of the catalog: everything arrives once, whole; nothing is asked for twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from dalsegno.catalog.schema import uploads
from tests.crash.catalog_harness import BucketShelf, Catalog, FolderShelf, audio_of, catalog_points, checksum, origin
from tests.crash.harness import KILLED, eventually, fault_names
from tests.proxy import Proxy, proxied
from tests.s3 import seaweedfs
from tests.servers import caddy

MIB = 1 << 20
MakeCatalog = Callable[..., Catalog]
NEVER = {
    "check.commit.before", "check.commit.after", "download.commit.before", "download.commit.after", "land.claimed",
    "land.reused", "upload.commit.before", "upload.commit.after",
}  # fmt: skip
"""Only met without an engine, by `dalsegno check`, without hard links, by a file that somebody else put there, or by an
upload in parts."""
RECEIPTED = ("land.receipt", "land.moved", "land.durable", "land.removed", "settle.commit.before")
"""From here on a song is finished, though it is not written down."""


@pytest.fixture
def catalogs(fresh_database: Callable[..., str], tmp_path: Path) -> Iterator[MakeCatalog]:
    """`catalogs("sqlite", songs=40)`: a catalog to run, with an origin of its own."""
    made: list[Catalog] = []
    with ExitStack() as stack:

        def make(kind: str, *, songs: int = 40, bucket: object = None) -> Catalog:
            folder = tmp_path / f"catalog-{len(made)}"
            folder.mkdir()
            source = stack.enter_context(origin(folder, songs=songs, seed=len(made) + 1))
            shelf = bucket(f"run-{len(made)}") if callable(bucket) else FolderShelf(folder / "store")
            made.append(Catalog(fresh_database(kind), folder, source=source, shelf=shelf))
            return made[-1]

        try:
            yield make
        finally:
            for catalog in made:
                catalog.end_all()


# --- at random moments --------------------------------------------------------------------------


def kill_at_random(make: Callable[[], Catalog], kills: int, rng: random.Random) -> dict[str, int]:
    """Kills as many times as asked, in as many runs as that takes; returns what was seen."""
    points = [*catalog_points(), *(f"{name}.commit.{edge}" for name in fault_names() for edge in ("before", "after"))]
    seen = Counter[str]()
    catalog = make()
    while kills:
        fault = f"{rng.choice(points)}:{rng.choice((1, 2, 3, 5, 9))}" if rng.random() < 0.4 else ""
        child = catalog.start(fault=fault)
        if rng.random() < 0.9:
            catalog.await_start(child)
        if not child.ends_within(rng.uniform(0, 1.6)):
            child.kill()
        code = child.wait()
        assert code in (0, KILLED), child.said()
        death = catalog.note_death()
        kills -= code == KILLED
        seen += Counter({"kills": code == KILLED, "done": len(death.done), "landed": len(death.landed)})
        if code == 0 or (kills and catalog.ended()):
            catalog.finish()
            catalog.judge()
            seen["runs"] += 1
            catalog = make()
    catalog.finish()
    catalog.judge()
    seen["runs"] += 1
    return dict(seen)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_kills_at_random_moments_of_a_full_run(catalogs: MakeCatalog, kind: str) -> None:
    kill_at_random(lambda: catalogs(kind, songs=24), 3, random.Random(7))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_fifty_kills_at_random_moments_of_full_runs(
    catalogs: MakeCatalog, kind: str, record_property: Callable[[str, object], None]
) -> None:
    record_property("seen", kill_at_random(lambda: catalogs(kind, songs=120), 50, random.Random()))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.xdist_group("s3")
def test_kills_at_random_moments_of_a_full_run_into_a_bucket(
    catalogs: MakeCatalog, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with seaweedfs(tmp_path / "s3") as server, proxied(server.endpoint) as line:
        make = lambda: catalogs("sqlite", songs=80, bucket=lambda name: BucketShelf(server, line, name))  # noqa: E731
        record_property("seen", kill_at_random(make, 20, random.Random()))


# --- at every named point -----------------------------------------------------------------------


def die_at_each(make: Callable[[], Catalog], points: list[str]) -> list[str]:
    """One life per point, each going on where the last one died; returns the points that were met."""
    met: list[str] = []
    catalog = make()
    for point in points:
        child = catalog.start(fault=point)
        code = child.wait(120)
        assert code in (0, KILLED), child.said()
        catalog.note_death()
        if code == KILLED:
            met.append(point)
            assert point not in RECEIPTED or catalog.receipts(), point
        if catalog.ended():
            catalog.finish()
            catalog.judge()
            catalog = make()
    catalog.finish()
    catalog.judge()
    return met


def test_a_death_at_the_points_between_landing_and_settling(catalogs: MakeCatalog) -> None:
    """What has landed is adopted: nobody asks its source for it again."""
    points = ["fetch.stored:2", "land.synced", *RECEIPTED, "settle.commit.after"]
    assert die_at_each(lambda: catalogs("sqlite", songs=12), points) == points


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_death_at_every_named_point_of_the_catalog(catalogs: MakeCatalog, kind: str) -> None:
    every = [point for point in catalog_points() if point not in NEVER]
    points = [*every, *(f"{name}.commit.{edge}:4" for name in ("settle", "claim") for edge in ("before", "after"))]
    met: set[str] = set()
    while missing := [point for point in points if point not in met]:
        found = die_at_each(lambda: catalogs(kind, songs=60), missing)
        assert found, f"never met: {missing}"
        met |= set(found)


# --- large files --------------------------------------------------------------------------------


def large_wav(path: Path, size: int) -> None:
    """Noise of just that many bytes."""
    noise = random.Random(3)
    head = b"RIFF" + (size - 8).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
    head += b"\x01\x00\x02\x00" + (44100).to_bytes(4, "little") + (176400).to_bytes(4, "little") + b"\x04\x00\x10\x00"
    head += b"data" + (size - 44).to_bytes(4, "little")
    with path.open("wb") as file:
        file.write(head)
        while left := size - file.tell():
            file.write(noise.randbytes(min(MIB, left)))


def go_on_with_a_large_file(url: str, folder: Path, size: int) -> dict[str, int]:
    """Killed in the middle of its download and in the middle of its upload; returns what went over the line."""
    web = folder / "web"
    web.mkdir()
    large_wav(web / "long night.wav", size)
    (web / "list.m3u8").write_text("#EXTM3U\n#EXTINF:-1,Somebody - Long Night\nlong%20night.wav\n")
    with (
        caddy(web) as address,
        proxied(address) as line,
        seaweedfs(folder / "s3") as server,
        proxied(server.endpoint) as wire,
    ):
        shelf = BucketShelf(server, wire, "deep/prefix")
        settings = {"PLAYLIST_FILES": f"{line.url}/list.m3u8"}
        catalog = Catalog(url, folder / "run", shelf=shelf, settings=settings)
        try:
            return _kill_down_and_up(catalog, line, wire, web / "long night.wav")
        finally:
            catalog.end_all()


def _kill_down_and_up(catalog: Catalog, line: Proxy, wire: Proxy, song: Path) -> dict[str, int]:
    assert isinstance(catalog.shelf, BucketShelf)
    size = song.stat().st_size
    line.hold_at("down", size * 6 // 10)
    child = catalog.start()
    eventually("the download is under way", line.held.is_set, 60)
    (part,) = (catalog.library / ".dalsegno").glob("*.part")
    eventually("all that came but the last buffer is on disk", lambda: part.stat().st_size > line.down - MIB)
    child.kill()
    catalog.note_death()
    have = part.stat().st_size
    line.let_go()
    before = line.down

    wire.hold_at("up", size * 6 // 10 + 3 * MIB)  # in the middle of a part
    child = catalog.start()
    eventually("the upload is under way", wire.held.is_set, 120)
    rest = line.down - before
    assert rest <= size - have + MIB // 4, "more was fetched than was missing"
    assert line.down <= size + 2 * MIB
    child.kill()
    catalog.note_death()
    (kept,) = catalog.rows(sa.select(uploads))
    (unfinished,) = catalog.shelf.unfinished()
    assert unfinished["UploadId"] == kept["upload_id"]
    wire.let_go()
    catalog.finish()
    assert wire.up <= size + kept["part_size"] + MIB, "more was sent than was missing"
    assert not catalog.rows(sa.select(uploads))
    assert not catalog.shelf.unfinished()
    assert list(audio_of(catalog.library).values()) == list(catalog.shelf.objects().values()) == [checksum(song)]
    assert [path.name for path in (catalog.library / ".dalsegno").iterdir()] == ["library-id"]
    return {"size": size, "had": have, "fetched": line.down, "sent": wire.up}


@pytest.mark.xdist_group("s3")
def test_a_large_file_goes_on_from_where_it_was_down_and_up(sqlite_url: str, tmp_path: Path) -> None:
    go_on_with_a_large_file(sqlite_url, tmp_path, 40 * MIB)


@pytest.mark.long
@pytest.mark.xdist_group("s3")
def test_a_file_of_200_mb_goes_on_from_where_it_was_down_and_up(
    database_url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    moved = go_on_with_a_large_file(database_url, tmp_path, 200 * MIB)
    assert moved["had"] >= 50 * MIB
    record_property("moved", moved)
