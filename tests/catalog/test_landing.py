"""Landing: checked, named, never over another file."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from dalsegno import durable
from dalsegno.catalog import landing
from dalsegno.catalog.audio import NotAudio
from dalsegno.catalog.companions import write_companions
from dalsegno.catalog.fetch import Fetched, fetch
from dalsegno.catalog.landing import Landed, adopt, land
from dalsegno.catalog.part import Part, clear, note_path, read_receipt
from dalsegno.catalog.receipts import Receipt
from dalsegno.catalog.shelf import Shelf
from dalsegno.sources.http import Http
from dalsegno.sources.model import Media
from tests.audio import flac, mp3, wav


def put(root: Path, body: bytes, name: str = "Band/Record/Song", key: str = "song-1", **options: Any) -> Landed:
    with Part.open(root, key) as part:
        os.write(part.descriptor, body)
        fetched = Fetched(len(body), hashlib.sha256(body).hexdigest())
        return land(part, fetched, name=lambda suffix: PurePosixPath(name + suffix), **options)


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".dalsegno" not in path.parts
    }


def test_a_song_lands_under_its_name_with_the_suffix_of_its_content(tmp_path: Path) -> None:
    song = flac()
    landed = put(tmp_path, song, extra={"song": 7})
    assert landed.path == PurePosixPath("Band/Record/Song.flac")
    assert files(tmp_path) == {"Band/Record/Song.flac": song}
    receipt = read_receipt(tmp_path, "song-1")
    assert receipt is not None
    assert (receipt.sha256, receipt.size, receipt.path) == (landed.sha256, len(song), "Band/Record/Song.flac")
    assert (receipt.audio["quality"], receipt.extra) == ("lossless", {"song": 7})
    clear(tmp_path, "song-1")
    assert not list((tmp_path / ".dalsegno").iterdir())


def test_what_is_no_audio_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotAudio):
        put(tmp_path, b"<html>")
    assert files(tmp_path) == {}
    assert not list((tmp_path / ".dalsegno").iterdir())


def test_another_song_of_the_same_name_gets_a_number(tmp_path: Path) -> None:
    songs = [wav(seed=number) for number in range(3)]
    places = [put(tmp_path, song, key=f"song-{number}").path.name for number, song in enumerate(songs)]
    assert places == ["Song.wav", "Song (2).wav", "Song (3).wav"]
    assert sorted(files(tmp_path).values()) == sorted(songs)


def test_the_same_bytes_are_not_stored_twice_under_one_name(tmp_path: Path) -> None:
    song = wav()
    put(tmp_path, song)
    again = put(tmp_path, song, key="song-2")
    assert (again.path.name, again.reused) == ("Song.wav", True)
    assert list(files(tmp_path)) == ["Band/Record/Song.wav"]
    assert adopt(tmp_path, "song-2") == read_receipt(tmp_path, "song-2")


def test_the_same_bytes_elsewhere_in_the_library_are_used(tmp_path: Path) -> None:
    song, other = wav(seed=1), wav(seed=2)
    first = put(tmp_path, song)
    landed = put(tmp_path, song, "Elsewhere/Song", key="song-2", twin={first.sha256: first.path}.get)
    assert (landed.path, landed.reused) == (first.path, True)
    (tmp_path / first.path).write_bytes(other)
    landed = put(tmp_path, song, "Elsewhere/Song", key="song-3", twin={first.sha256: first.path}.get)
    assert files(tmp_path) == {str(first.path): other, "Elsewhere/Song.wav": song}
    assert not landed.reused


def test_a_name_that_differs_in_case_is_the_same_name(tmp_path: Path) -> None:
    put(tmp_path, wav(seed=1), "ABBA/Gold/SOS")
    second = put(tmp_path, wav(seed=2), "Abba/gold/Sos", key="song-2")
    assert str(second.path) == "ABBA/Gold/Sos (2).wav"
    third = put(tmp_path, wav(seed=3), "Éa/x", key="song-3")
    fourth = put(tmp_path, wav(seed=4), "e\u0301A/X", key="song-4")
    assert (str(third.path), str(fourth.path)) == ("Éa/x.wav", "Éa/X (2).wav")


def test_a_file_where_a_folder_should_be_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "Band").write_text("mine")
    assert str(put(tmp_path, wav()).path) == "Band (2)/Record/Song.wav"
    assert (tmp_path / "Band").read_text() == "mine"


def test_what_others_put_there_meanwhile_is_seen(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    put(tmp_path, wav(seed=1), shelf=shelf)
    (tmp_path / "Band/Record/Other.wav").write_text("mine")
    os.utime(tmp_path / "Band/Record", (1, 1))
    assert put(tmp_path, wav(seed=2), "Band/Record/other", key="song-2", shelf=shelf).path.name == "other (2).wav"


def test_whoever_loses_a_name_to_the_same_bytes_uses_them(tmp_path: Path) -> None:
    class Late(Shelf):
        """It has not seen anything yet."""

        def _find(self, folder: str, name: str) -> str | None:
            return None

    song = wav()
    put(tmp_path, song)
    again = put(tmp_path, song, key="song-2", shelf=Late(tmp_path))
    assert (again.path.name, again.reused) == ("Song.wav", True)
    assert put(tmp_path, wav(seed=2), key="song-3", shelf=Late(tmp_path)).path.name == "Song (2).wav"
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize("links", [True, False])
def test_a_race_for_a_name_has_one_winner_and_no_loser(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:
        _forbid_links(monkeypatch)
    songs = [wav(0.02, seed=number) for number in range(16)]
    gate = threading.Barrier(len(songs))
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            gate.wait()
            put(tmp_path, songs[number], key=f"song-{number}", shelf=Shelf(tmp_path))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(songs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(files(tmp_path).values()) == sorted(songs)


def _forbid_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(landing.os, "link", refuse)


def test_a_forced_song_replaces_the_old_file_only_once_checked(tmp_path: Path) -> None:
    old, new = wav(seed=1), wav(seed=2)
    place = put(tmp_path, old).path
    clear(tmp_path, "song-1")
    with pytest.raises(NotAudio):
        put(tmp_path, new[:-100], replace=place)
    assert files(tmp_path) == {str(place): old}
    assert put(tmp_path, new, replace=place).path == place
    assert files(tmp_path) == {str(place): new}


def test_a_forced_song_in_another_format_stands_beside_the_old(tmp_path: Path) -> None:
    place = put(tmp_path, mp3()).path
    clear(tmp_path, "song-1")
    landed = put(tmp_path, flac(), replace=place)
    assert {str(place), str(landed.path)} == set(files(tmp_path)) == {"Band/Record/Song.mp3", "Band/Record/Song.flac"}


# --- adopting -----------------------------------------------------------------------------------------------------


def test_nothing_is_adopted_where_nothing_was_finished(tmp_path: Path) -> None:
    assert adopt(tmp_path, "song-1") is None
    Part.open(tmp_path, "song-1").close()
    assert adopt(tmp_path, "song-1") is None


def test_a_landed_song_is_adopted(tmp_path: Path) -> None:
    landed = put(tmp_path, wav())
    receipt = adopt(tmp_path, "song-1")
    assert receipt is not None
    assert receipt.place == landed.path


def test_a_file_that_was_changed_or_taken_away_is_not_adopted(tmp_path: Path) -> None:
    song = wav()
    final = tmp_path / put(tmp_path, song).path
    final.write_bytes(song[:-1] + b"?")
    assert adopt(tmp_path, "song-1") is None
    assert read_receipt(tmp_path, "song-1") is None


def test_a_file_that_was_only_touched_is_adopted(tmp_path: Path) -> None:
    final = tmp_path / put(tmp_path, wav()).path
    os.utime(final, (1, 1))
    assert adopt(tmp_path, "song-1") is not None


def test_a_receipt_without_its_move_is_finished(tmp_path: Path) -> None:
    song = wav()
    _receipt_only(tmp_path, song)
    receipt = adopt(tmp_path, "song-1")
    assert receipt is not None
    assert files(tmp_path) == {"Song.wav": song}


def test_a_name_that_was_claimed_but_not_filled_is_filled(tmp_path: Path) -> None:
    song = wav()
    _receipt_only(tmp_path, song)
    (tmp_path / "Song.wav").touch()
    assert adopt(tmp_path, "song-1") is not None
    assert files(tmp_path) == {"Song.wav": song}


def test_a_name_that_another_took_meanwhile_is_left_to_them(tmp_path: Path) -> None:
    song, other = wav(seed=1), wav(seed=2)
    _receipt_only(tmp_path, song)
    (tmp_path / "Song.wav").write_bytes(other)
    receipt = adopt(tmp_path, "song-1")
    assert receipt is not None
    assert receipt.path == "Song (2).wav"
    assert files(tmp_path) == {"Song.wav": other, "Song (2).wav": song}


def test_a_part_that_is_not_what_the_receipt_says_is_thrown_away(tmp_path: Path) -> None:
    song = wav()
    _receipt_only(tmp_path, song)
    (tmp_path / ".dalsegno/song-1.part").write_bytes(song[:-1] + b"?")
    assert adopt(tmp_path, "song-1") is None
    assert not list((tmp_path / ".dalsegno").iterdir())


def test_a_receipt_that_points_outside_is_ignored(tmp_path: Path) -> None:
    _receipt_only(tmp_path, wav(), path="../outside.wav")
    assert adopt(tmp_path, "song-1") is None
    assert not (tmp_path.parent / "outside.wav").exists()


def _receipt_only(root: Path, song: bytes, path: str = "Song.wav") -> None:
    with Part.open(root, "song-1") as part:
        os.write(part.descriptor, song)
        digest = hashlib.sha256(song).hexdigest()
        part.write_receipt(Receipt(sha256=digest, size=len(song), path=path, audio={}, modified_ns=1))


def test_fetching_again_does_not_write_into_the_landed_file(tmp_path: Path) -> None:
    """A crash between giving the file its name and taking away the part's leaves two names for one file."""
    song, other = wav(seed=1), wav(seed=2)
    final = tmp_path / put(tmp_path, song).path
    os.link(final, tmp_path / ".dalsegno/song-1.part")
    source = tmp_path / "source.wav"
    source.write_bytes(other)
    with Http() as http, Part.open(tmp_path, "song-1") as part:
        fetch(http, Media(path=source), part, moved=lambda *_: None, cancelled=lambda: False)
    assert final.read_bytes() == song


def test_an_unreadable_note_is_no_note(tmp_path: Path) -> None:
    for text in (b"", b"{", b"[]", b"{}", b'{"no": 1}', b"\xff\xfe"):
        Part.open(tmp_path, "song-1").close()
        note_path(tmp_path, "song-1").write_bytes(text)
        assert adopt(tmp_path, "song-1") is None
        with Part.open(tmp_path, "song-1") as part:
            assert part.read_note() is None


def test_a_key_never_leads_out_of_the_staging(tmp_path: Path) -> None:
    for key in ("../x", "a/b", "", ".hidden", "x" * 200):
        with pytest.raises(ValueError, match="no key"):
            Part.open(tmp_path, key)


def test_flushing_can_be_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "enabled", False)
    monkeypatch.setattr(durable.os, "fsync", lambda _: pytest.fail("flushed"))
    put(tmp_path, wav())


# --- companions -----------------------------------------------------------------------------------------------------


def test_words_and_cover_stand_beside_the_song(tmp_path: Path) -> None:
    song = PurePosixPath("Song.flac")
    cover = b"\xff\xd8\xff\xe0" + bytes(10)
    assert write_companions(tmp_path, song, lyrics="[00:12.00]la", cover=cover) == [
        PurePosixPath("Song.lrc"),
        PurePosixPath("Song.jpg"),
    ]
    assert write_companions(tmp_path, song, lyrics="la la", cover=b"\x89PNG\r\n\x1a\n") == [
        PurePosixPath("Song.txt"),
        PurePosixPath("Song.png"),
    ]
    assert (tmp_path / "Song.lrc").read_text() == "[00:12.00]la"


def test_nothing_that_is_there_is_overwritten_and_no_trouble_is_the_songs(tmp_path: Path) -> None:
    (tmp_path / "Song.txt").write_text("mine")
    assert write_companions(tmp_path, PurePosixPath("Song.flac"), lyrics="theirs", cover=b"<html>") == []
    assert (tmp_path / "Song.txt").read_text() == "mine"
    assert write_companions(tmp_path / "nowhere", PurePosixPath("Song.flac"), lyrics="theirs") == []


def test_a_dot_in_a_title_is_not_its_suffix(tmp_path: Path) -> None:
    assert str(put(tmp_path, wav(seed=1), "Vol. 2").path) == "Vol. 2.wav"
    assert str(put(tmp_path, wav(seed=2), "Vol. 2", key="song-2").path) == "Vol. 2 (2).wav"
    assert write_companions(tmp_path, PurePosixPath("Vol. 2.wav"), lyrics="la") == [PurePosixPath("Vol. 2.txt")]
