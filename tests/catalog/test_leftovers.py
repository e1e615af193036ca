"""What a killed process leaves behind: receipts, finished songs nobody wrote down, playlists that were not exported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog import landing, leftovers
from dalsegno.catalog.catalog import Catalog
from dalsegno.catalog.downloader import CatalogDownloader, ResolvedDownload
from dalsegno.catalog.export import FOLDER
from dalsegno.catalog.leftovers import part_key
from dalsegno.catalog.library import Filed, file_songs
from dalsegno.catalog.part import Note, Part
from dalsegno.catalog.presence import MARKER
from dalsegno.catalog.receipts import STAGING, Receipt, receipts_of
from dalsegno.catalog.schema import playlist_songs, playlists, songs
from dalsegno.catalog.upsert import keep_songs
from dalsegno.catalog.watch import Watch
from dalsegno.settings import Settings
from dalsegno.sources.model import Media
from dalsegno.store.store import Tx
from tests.catalog.studio import places, run
from tests.helpers import every, statuses_of, wait_until
from tests.servers import wav


class Life:
    """One life of a process: what it knows beside the database dies with it."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.catalog = Catalog(store, settings)
        self.downloader = CatalogDownloader(self.catalog)
        self.root = settings.library_root
        self.catalog.catch_up(self.root)

    def fetch(self, song: int) -> Filed:
        return self.downloader.fetch(self.resolve(song), Watch())

    def resolve(self, song: int) -> ResolvedDownload:
        found = self.downloader.look(song)
        assert found is not None
        return self.downloader.resolve(found, self.catalog.settings.snapshot(), Watch(), {})

    def adopt(self, song: int) -> Filed | None:
        found = self.downloader.look(song)
        assert found is not None
        return self.downloader.adopt(found, self.root)

    def write_down(self, filed: Filed) -> None:
        self.catalog.store.write("download", lambda tx: file_songs(tx.conn, [filed]))

    def settle(self, filed: Filed) -> None:
        self.write_down(filed)
        self.downloader.settled(self.root, filed)


class World:
    """Two songs with the same bytes, and a third one."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.root = store, folder / "library"
        for name, tone in (("one", 300.0), ("two", 300.0), ("three", 500.0)):
            wav(folder / "music" / f"{name}.wav", tone=tone)
        self.settings = Settings(library_root=self.root, folder_roots=(str(folder / "music"),))
        self.lives: list[Life] = []
        source = self.born().catalog.sources(self.settings.snapshot()).get("folder")
        (pool,) = source.pools()
        (playlist,) = source.playlists(pool)
        tracks = list(source.tracks(playlist))
        ids = store.write("sync", lambda tx: keep_songs(tx.conn, "folder", tracks, tx.now).ids)
        self.one, self.two, self.three = (ids[f"music/{name}.wav"] for name in ("one", "two", "three"))

    def born(self) -> Life:
        self.lives.append(Life(self.store, self.settings))
        return self.lives[-1]

    def files(self) -> list[str]:
        return sorted(path.name for path in self.root.rglob("*.wav"))

    def staged(self) -> list[str]:
        return sorted(path.name for path in (self.root / STAGING).iterdir() if path.name != MARKER)

    def receipts(self) -> set[int]:
        return {int(key.removeprefix("song-")) for key in receipts_of(self.root).all()}


@pytest.fixture
def world(store: Store, tmp_path: Path) -> Iterator[World]:
    made = World(store, tmp_path)
    yield made
    for life in made.lives:
        life.catalog.close()


def test_the_receipt_of_a_song_that_is_written_down_goes_and_others_stay(world: World) -> None:
    life = world.born()
    life.write_down(life.fetch(world.one))
    life.fetch(world.three)
    assert world.receipts() == {world.one, world.three}
    later = world.born()
    assert world.receipts() == {world.three}
    filed = later.adopt(world.three)
    assert filed is not None
    later.settle(filed)
    assert world.staged() == []


def test_a_song_that_was_forced_and_became_another_keeps_its_receipt(world: World) -> None:
    life = world.born()
    life.settle(life.fetch(world.one))
    with Part.open(world.root, part_key(world.one)) as part:
        part.write_receipt(Receipt(sha256="0" * 64, size=3, path="new.wav", audio={}, modified_ns=0))
    world.born()
    assert world.receipts() == {world.one}


def test_notes_and_strangers_are_left_alone(world: World) -> None:
    staging = world.root / STAGING
    with Part.open(world.root, part_key(world.one)) as part:
        part.write_note(Note(origin="http://host/one.wav", etag='"a"'))
    (staging / "song-x.json").write_text("?")
    (staging / f"song-{world.two}.json").write_text("not json")
    before = world.staged()
    world.born()
    assert world.staged() == before


def test_what_was_left_of_a_song_of_another_database_is_nobodys_song_of_that_number(world: World) -> None:
    """A database that was thrown away after a crash, and begun anew, counts from one again."""
    left = world.born().fetch(world.one)
    other, three = sa.select(songs).where(songs.c.id == world.three), songs.c.id == world.three
    (row,) = every(world.store, other)

    def renumber(tx: Tx) -> None:
        tx.conn.execute(sa.delete(songs).where(three))
        values = {name: row[name] for name in ("remote_id", "title", "snapshot")}
        tx.conn.execute(sa.update(songs).where(songs.c.id == world.one).values(**values))

    world.store.write("test", renumber)
    life = world.born()
    assert life.adopt(world.one) is None
    assert world.receipts() == set()
    filed = life.fetch(world.one)
    assert filed.sha256 != left.sha256
    life.settle(filed)
    assert world.files() == ["one.wav", "three.wav"]
    assert world.staged() == []


def test_a_twin_of_a_song_that_landed_before_a_crash_is_linked_to_it(world: World) -> None:
    world.born().fetch(world.one)
    life = world.born()
    second = life.fetch(world.two)
    first = life.adopt(world.one)
    assert first is not None
    assert (first.backend_id, first.path) == (second.backend_id, second.path)
    life.settle(second)
    life.settle(first)
    assert len(world.files()) == 1
    assert world.staged() == []


def test_a_twin_fetched_while_the_adopted_one_is_not_settled_is_linked_to_it(world: World) -> None:
    world.born().fetch(world.one)
    life = world.born()
    first = life.adopt(world.one)
    assert first is not None
    assert life.fetch(world.two).path == first.path
    assert len(world.files()) == 1


def test_a_song_that_had_not_moved_yet_is_linked_to_a_twin_that_was_faster(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PowerCut(BaseException):
        pass

    def cut(point: str) -> None:
        if point == "land.receipt":
            raise PowerCut

    life = world.born()
    with monkeypatch.context() as patch:
        patch.setattr("dalsegno.faults.point", cut)
        with pytest.raises(PowerCut):
            life.fetch(world.one)
    assert world.files() == []
    life = world.born()
    second = life.fetch(world.two)
    first = life.adopt(world.one)
    assert first is not None
    assert first.path == second.path
    life.settle(first)
    life.settle(second)
    assert len(world.files()) == 1
    assert world.staged() == []


def test_a_song_that_landed_before_a_crash_is_adopted_by_a_job_that_goes_on_in_another_library(
    world: World, tmp_path: Path
) -> None:
    landed = world.born().fetch(world.one)
    world.born().settle(world.born().fetch(world.three))
    settings = world.settings.model_copy(update={"library_root": tmp_path / "new"})
    world.store.write("sync", lambda tx: _listed(tx, world.one, world.three))

    job = run(world.store, settings, "download")

    assert statuses_of(world.store, job, "download") == {"succeeded": 1, "skipped": 1}
    assert {place.path for place in places(world.store) if place.song_id == world.one} == {landed.path}
    assert world.files() == ["one.wav", "three.wav"]
    assert world.staged() == []
    assert list((tmp_path / "new").rglob("*.wav")) == []


def test_a_library_that_cannot_be_read_any_more_is_nobodys_trouble(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.born().fetch(world.one)
    settings = world.settings.model_copy(update={"library_root": tmp_path / "new"})
    plain = landing.in_place

    def in_place(root: Path, receipt: Receipt) -> bool:
        if root == world.root:
            raise OSError(5, "Input/output error")
        return plain(root, receipt)

    monkeypatch.setattr(leftovers, "in_place", in_place)
    monkeypatch.setattr(landing, "in_place", in_place)
    world.store.write("sync", lambda tx: _listed(tx, world.one))

    job = run(world.store, settings, "download")

    assert statuses_of(world.store, job, "download") == {"succeeded": 1}
    assert len(list((tmp_path / "new").rglob("one.wav"))) == 1


def _listed(tx: Tx, *numbers: int) -> None:
    seen = {"created_at": tx.now, "updated_at": tx.now}
    tx.conn.execute(sa.insert(playlists).values(id=1, platform="folder", remote_id="m", name="Mine", **seen))
    for position, number in enumerate(numbers):
        row = {"playlist_id": 1, "song_id": number, "position": position, "added_at": tx.now}
        tx.conn.execute(sa.insert(playlist_songs).values(**row))


def test_a_file_somebody_took_away_is_nobodys_twin(world: World) -> None:
    landed = world.born().fetch(world.one)
    life = world.born()
    (world.root / landed.path).unlink()
    second = life.fetch(world.two)
    assert (world.root / second.path).exists()
    first = life.adopt(world.one)
    assert first is not None
    assert first.path == second.path


def test_lyrics_and_cover_of_an_adopted_song_are_put_beside_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class PowerCut(BaseException):
        pass

    def cut(point: str) -> None:
        if point == "land.removed":
            raise PowerCut

    cover = world.root.parent / "cover.png"
    cover.write_bytes(b"\x89PNG\r\n\x1a\n stripes")
    life = world.born()
    resolved = life.resolve(world.one)
    media = replace(resolved.media, lyrics="la la la", cover=Media(path=cover))
    resolved.resolution = replace(resolved.resolution, media=media)
    with monkeypatch.context() as patch:
        patch.setattr("dalsegno.faults.point", cut)
        with pytest.raises(PowerCut):
            life.downloader.fetch(resolved, Watch())
    cover_bytes = cover.read_bytes()
    cover.unlink()  # nobody is asked again
    life = world.born()
    filed = life.adopt(world.one)
    assert filed is not None
    life.settle(filed)
    place = world.root / filed.path
    assert place.with_suffix(".txt").read_text() == "la la la"
    assert place.with_suffix(".png").read_bytes() == cover_bytes
    assert world.staged() == []


def test_a_playlist_that_was_not_exported_before_a_crash_is_found_by_the_next_life(world: World) -> None:
    def playlist(tx: object) -> None:
        seen = {"created_at": tx.now, "updated_at": tx.now}  # type: ignore[attr-defined]
        tx.conn.execute(sa.insert(playlists).values(id=1, platform="folder", remote_id="m", name="Mine", **seen))  # type: ignore[attr-defined]
        tx.conn.execute(  # type: ignore[attr-defined]
            sa.insert(playlist_songs).values(playlist_id=1, song_id=world.one, position=0, added_at=tx.now)  # type: ignore[attr-defined]
        )

    world.store.write("sync", playlist)
    life = world.born()
    life.settle(life.fetch(world.one))
    later = world.born()
    later.catalog.close()  # writes what is left
    wait_until(lambda: every(world.store, sa.select(playlists.c.exported_at))[0]["exported_at"], "the export")
    (sheet,) = (world.root / FOLDER).iterdir()
    title = every(world.store, sa.select(songs.c.title).where(songs.c.id == world.one))[0]["title"]
    assert title in sheet.read_text()
