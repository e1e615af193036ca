"""Playlists as M3U files: read back by a parser of another make, every path followed to the file it names."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import sqlalchemy as sa

from dalsegno import Store
from dalsegno.catalog import exporter
from dalsegno.catalog.export import Exported, export_playlist
from dalsegno.catalog.schema import playlist_songs, playlists, songs
from dalsegno.clock import ManualClock
from dalsegno.errors import NotFound
from tests.catalog.shelves import Shelves
from tests.helpers import wait_until

HOSTILE = [
    "../../etc/passwd",
    "CON",
    "trailing dots...",
    "a/b\\c:d*e?f",
    "🎧 夜の雨 – été",
    "x" * 300,
    "雨" * 200,
    "line\nbreak\r\nand\u2028more",
    "",
    "#hash",
    "50% off",
    ".",
    "..",
    "nul.m3u8",
]


class Track(NamedTuple):
    seconds: int
    text: str
    line: str


def parse(path: Path) -> list[Track]:
    """Line by line, as players do: # is a comment unless it is EXTINF, anything else is a path."""
    content = path.read_bytes()
    assert not content.startswith(b"\xef\xbb\xbf")
    assert b"\r" not in content
    lines = content.decode("utf-8").split("\n")
    assert lines[0] == "#EXTM3U"
    assert lines[-1] == ""
    found, info = [], ""
    for line in lines[1:-1]:
        if line.startswith("#EXTINF:"):
            info = line.removeprefix("#EXTINF:")
        elif not line.startswith("#"):
            seconds, _, text = info.partition(",")
            found.append(Track(int(seconds), text, line))
    return found


def resolve(playlist: Path, track: Track) -> Path:
    return Path(os.path.normpath(playlist.parent / track.line))


class Library:
    """A folder of songs, and their rows."""

    def __init__(self, shelves: Shelves, root: Path) -> None:
        self.root = root
        self.shelves = shelves
        self.backend = self.shelves.backend("library", str(root))

    def song(self, path: str, content: bytes = b"abc", **fields: object) -> int:
        """A song with its file."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        number = self.shelves.song(**{"title": Path(path).stem, **fields})
        self.shelves.download(number, self.backend, path)
        return number


@pytest.fixture
def library(still: Store, tmp_path: Path) -> Library:
    return Library(Shelves(still), tmp_path / "library")


def export(library: Library, playlist: int) -> Exported:
    return export_playlist(library.shelves.store, playlist, library.root)


def test_every_line_leads_to_the_bytes_of_its_song_in_order(library: Library) -> None:
    paths = ["Artist/Album/02 Zwei.flac", "夜/雨 🎧.mp3", "B/50% # of it.ogg", "C/été, [live].m4a", "#Top/#1.mp3"]
    numbers = [library.song(path, path.encode(), artist="The Band", duration=61.6) for path in paths]
    done = export(library, library.shelves.playlist("Rain Songs", *numbers))
    assert done == (library.root / "Playlists" / "Rain Songs.m3u8", 5, 0)
    tracks = parse(done.path)
    assert [resolve(done.path, track).read_bytes().decode() for track in tracks] == paths
    assert [track.line for track in tracks] == [f"../{path}" for path in paths]
    assert tracks[0][:2] == (62, "The Band - 02 Zwei")


def test_the_whole_library_can_be_moved(library: Library, tmp_path: Path) -> None:
    done = export(library, library.shelves.playlist("P", library.song("A/1.mp3", b"one")))
    library.root.rename(tmp_path / "elsewhere")
    moved = tmp_path / "elsewhere" / "Playlists" / done.path.name
    assert resolve(moved, parse(moved)[0]).read_bytes() == b"one"


def test_songs_without_a_local_file_are_left_out_and_counted(library: Library, tmp_path: Path) -> None:
    shelves = library.shelves
    here, vanished, never = library.song("1.mp3"), library.song("2.mp3"), shelves.song("Never downloaded")
    (library.root / "2.mp3").unlink()
    remote = shelves.song("Only in the store")
    shelves.download(remote, shelves.backend("s3", "s3://music"), "3.mp3")
    done = export(library, shelves.playlist("P", never, here, vanished, remote))
    assert done[1:] == (1, 3)
    assert [track.line for track in parse(done.path)] == ["../1.mp3"]


def test_a_song_that_left_the_playlist_is_not_in_its_file(library: Library) -> None:
    one, two = library.song("1.mp3"), library.song("2.mp3")
    number = library.shelves.playlist("P", one, two)
    left = sa.update(playlist_songs).where(playlist_songs.c.song_id == one)
    left = left.values(removed_at=library.shelves.now)
    library.shelves.store.write("test", lambda tx: tx.conn.execute(left).rowcount)
    assert [track.line for track in parse(export(library, number).path)] == ["../2.mp3"]


def test_files_in_a_former_library_are_reached_by_their_whole_path(library: Library, tmp_path: Path) -> None:
    """After a full disk the library goes on elsewhere, and what is finished stays where it is."""
    old, new = library.song("A/1.mp3", b"old"), Library(library.shelves, tmp_path / "new disk")
    number = library.shelves.playlist("P", old, new.song("A/2.mp3", b"new"))
    done = export(new, number)
    first, second = parse(done.path)
    assert first.line == (library.root / "A/1.mp3").as_posix()
    assert second.line == "../A/2.mp3"
    assert [resolve(done.path, track).read_bytes() for track in (first, second)] == [b"old", b"new"]


def test_of_two_copies_the_one_in_this_library_is_named_once(library: Library, still: Store, tmp_path: Path) -> None:
    song = library.song("1.mp3")
    new = Library(library.shelves, tmp_path / "new")
    new.root.mkdir()
    asset = still.read(lambda tx: tx.conn.execute(sa.select(songs.c.asset_id)).scalar_one())
    new.shelves.place(asset, new.backend, "copy.mp3")
    number = library.shelves.playlist("P", song)
    assert parse(export(new, number).path)[0].line == (library.root / "1.mp3").as_posix(), "the copy is not there"
    (new.root / "copy.mp3").write_bytes(b"abc")
    assert [track.line for track in parse(export(new, number).path)] == ["../copy.mp3"]


def test_a_file_beside_the_playlists_whose_name_begins_with_a_hash_is_no_comment(library: Library) -> None:
    done = export(library, library.shelves.playlist("P", library.song("Playlists/#1.mp3", b"hash")))
    (track,) = parse(done.path)
    assert track.line == "../Playlists/#1.mp3"
    assert resolve(done.path, track).read_bytes() == b"hash"


def test_texts_of_several_lines_stay_on_one(library: Library) -> None:
    song = library.song("1.mp3", title="A\nB\r\n#EXTINF:1,x\u2028C\x07D", artist="E\tF")
    bare = library.song("2.mp3", title="Alone", artist="")
    one, two = parse(export(library, library.shelves.playlist("P", song, bare)).path)
    assert one[:2] == (-1, "E F - A B #EXTINF:1,x C D")
    assert two.text == "Alone"


@pytest.mark.parametrize("name", HOSTILE, ids=[ascii(name)[:24] for name in HOSTILE])
def test_any_name_makes_a_file_in_the_folder(library: Library, name: str) -> None:
    done = export(library, library.shelves.playlist(name, library.song("1.mp3")))
    assert done.path.parent == library.root / "Playlists"
    assert done.path.suffix == ".m3u8"
    assert len(done.path.name.encode()) <= 255
    assert [entry.name for entry in done.path.parent.iterdir()] == [done.path.name]
    assert len(parse(done.path)) == 1


def test_playlists_of_one_name_stay_apart_whatever_is_exported_first(library: Library) -> None:
    songs_of = [library.song(f"{number}.mp3", str(number).encode()) for number in range(3)]
    numbers = [library.shelves.playlist("Rain", song) for song in songs_of]
    paths = [export(library, number).path for number in numbers]
    assert [path.name for path in paths] == ["Rain.m3u8", f"Rain ({numbers[1]}).m3u8", f"Rain ({numbers[2]}).m3u8"]
    assert [export(library, number).path for number in reversed(numbers)] == paths[::-1]
    assert [resolve(path, parse(path)[0]).read_bytes() for path in paths] == [b"0", b"1", b"2"]


def test_long_names_that_begin_alike_stay_apart(library: Library) -> None:
    numbers = [library.shelves.playlist("雨" * 200 + end) for end in "abb"]
    assert len({export(library, number).path for number in numbers}) == 3


def test_a_file_of_somebody_else_is_never_written_over(library: Library) -> None:
    folder = library.root / "Playlists"
    (folder / "Folder.m3u8").mkdir(parents=True)
    (folder / "Mine.m3u8").write_text("#EXTM3U\nmine.mp3\n")
    number = library.shelves.playlist("Mine", library.song("1.mp3"))
    assert export(library, number).path.name == f"Mine ({number}).m3u8"
    assert (folder / "Mine.m3u8").read_text() == "#EXTM3U\nmine.mp3\n"
    other = library.shelves.playlist("Folder")
    assert export(library, other).path.name == f"Folder ({other}).m3u8"


def test_a_renamed_playlist_gets_a_new_file_and_keeps_the_old_one(library: Library) -> None:
    number = library.shelves.playlist("Before", library.song("1.mp3"))
    before = export(library, number).path
    library.shelves.change(playlists, number, name="After")
    assert export(library, number).path.name == "After.m3u8"
    assert before.exists()


def test_a_file_that_is_right_is_not_written_again(library: Library, clock: ManualClock) -> None:
    number = library.shelves.playlist("P", library.song("1.mp3"))
    path = export(library, number).path
    first = path.stat()
    clock.advance(60)
    export(library, number)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    row = library.shelves.store.read(lambda tx: tx.row(sa.select(playlists.c.exported_at)))
    assert row is not None
    assert row["exported_at"] == clock.now()
    library.shelves.change(playlists, number, name="P", owner="x")
    (library.root / "1.mp3").unlink()
    assert export(library, number).songs == 0
    assert path.stat().st_ino != first.st_ino, "a new file took the old one's place"
    assert [entry.name for entry in path.parent.iterdir()] == ["P.m3u8"]


def test_a_playlist_that_is_not_there_says_so(library: Library) -> None:
    with pytest.raises(NotFound, match="no playlist 7"):
        export(library, 7)


def test_a_file_that_cannot_be_written_stops_no_other_playlist(
    library: Library, still: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exporter, "EVERY", 0.02)
    number = library.song("a.mp3")
    lists = [library.shelves.playlist(name, number) for name in ("First", "Second")]
    folder = library.root / "Playlists"
    folder.mkdir()
    (folder / "First.m3u8").symlink_to("First.m3u8")
    at_work = exporter.Exporter(still)
    for each in lists:
        at_work.nudge_playlist(each, library.root)
    try:
        wait_until((folder / "Second.m3u8").is_file, "the second playlist")
        time.sleep(0.1)
        told = [record.getMessage() for record in caplog.records if "playlist" in record.getMessage()]
        assert len(told) == 1
        assert f"playlist {lists[0]}: " in told[0]
        (folder / "First.m3u8").unlink()
        wait_until((folder / "First.m3u8").is_file, "the first playlist")
    finally:
        at_work.close()
