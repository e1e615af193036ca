"""Audio files of this machine, read from real folders."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dalsegno.model.signal import ProviderError
from dalsegno.sources.folder import open_source
from dalsegno.sources.model import Gone, Playlist, Pool, Source, Track, Unusable
from dalsegno.sources.registry import Config
from tests.servers import wav


@contextmanager
def folders(*roots: Path) -> Iterator[Source]:
    source = open_source(Config({"FOLDER_ROOTS": [str(root) for root in roots]}))
    try:
        yield source
    finally:
        source.close()


def lists(source: Source) -> dict[str, Playlist]:
    return {each.id: each for pool in source.pools() for each in source.playlists(pool)}


def songs(source: Source) -> list[Track]:
    return [track for playlist in lists(source).values() for track in source.tracks(playlist)]


def test_each_folder_with_audio_is_a_playlist(library: Path) -> None:
    label = library.name
    with folders(library) as source:
        found = lists(source)
        assert list(found) == [f"{label}/björk/ünder", f"{label}/untagged", f"{label}/周杰倫/七里香"]
        album = found[f"{label}/björk/ünder"]
        assert (album.name, album.count) == ("ünder", 2)
        first, second = source.tracks(album)
        assert (first.id, first.title, first.artists) == (f"{label}/björk/ünder/01 夜曲.wav", "夜曲", ("Björk",))
        assert (first.album, first.track_no, first.year, first.duration) == ("Ünder", 1, 2001, 1.0)
        assert second.title == "a & b=c?"


def test_the_file_itself_is_what_is_resolved(library: Path) -> None:
    with folders(library) as source:
        for track in songs(source):
            media = source.resolve(track)
            assert media.path is not None
            assert (media.path.stat().st_size, media.suffix, media.lossless) == (media.size, ".wav", True)


def test_a_broken_file_is_named_after_itself(tmp_path: Path) -> None:
    for name, body in {
        "03 - Broken.mp3": b"ID3\x04\0\0\x7f\x7f\x7f\x7f",
        "x.flac": b"fLaC\xff" * 9,
        "y.m4a": b"",
    }.items():
        (tmp_path / name).write_bytes(body)
    with folders(tmp_path) as source:
        assert [(track.title, track.track_no) for track in songs(source)] == [("Broken", 3), ("x", None), ("y", None)]


def test_links_do_not_lead_out(tmp_path: Path) -> None:
    outside = wav(tmp_path / "outside" / "secret.wav")
    root = tmp_path / "root"
    inside = wav(root / "a" / "one.wav")
    (root / "a" / "two.wav").symlink_to(inside)
    (root / "a" / "three.wav").symlink_to(outside)
    (root / "a" / "four.wav").symlink_to(root / "nowhere")
    (root / "b").symlink_to(tmp_path / "outside")
    (root / "a" / "loop").symlink_to(root)
    with folders(root) as source:
        assert [track.id for track in songs(source)] == ["root/a/one.wav", "root/a/two.wav"]
        for id in ("root/a/three.wav", "root/b/secret.wav"):
            with pytest.raises(Gone):
                source.resolve(Track(id=id, title="x"))
        for id in ("root/../outside/secret.wav", f"root/{outside}", "root/a\0"):
            with pytest.raises(Unusable):
                source.resolve(Track(id=id, title="x"))


def test_names_that_are_no_utf_8(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/al\xe9"
    os.mkdir(folder)  # noqa: PTH102
    for name in (b"\xff.wav", b"\xfe.wav"):
        wav(tmp_path / "x.wav", tone=float(name[0])).rename(os.fsdecode(folder + b"/" + name))
    with folders(tmp_path) as source:
        found = songs(source)
        assert [track.title for track in found] == ["�", "�"]
        assert len({track.id for track in found}) == 2
        for track in found:
            json.dumps([track.id, track.title, dict(track.snapshot)]).encode()
            track.id.encode()
            path = source.resolve(track).path
            assert path is not None
            assert os.fsencode(path).startswith(folder)


def test_hidden_and_foreign_things_are_passed_over(tmp_path: Path) -> None:
    for name in (".hidden/a.wav", "@eaDir/b.wav", "c/.d.wav"):
        wav(tmp_path / name)
    (tmp_path / "c" / "notes.txt").write_text("x")
    (tmp_path / "c" / "folder.wav").mkdir()
    with folders(tmp_path) as source:
        assert lists(source) == {}


def test_our_own_library_and_store_below_a_root_are_no_sources(tmp_path: Path) -> None:
    for name in ("mine/a.wav", "library/A/b.wav", "archive/A/c.wav"):
        wav(tmp_path / name)
    (tmp_path / "library" / ".dalsegno").mkdir()
    (tmp_path / "archive" / ".dalsegno-store-id").write_text("x")
    with folders(tmp_path) as source:
        assert [each.name for each in lists(source).values()] == ["mine"]
    with folders(tmp_path / "library") as source:
        assert [each.name for each in lists(source).values()] == ["A"]


def test_songs_are_found_by_tag_and_by_name(library: Path) -> None:
    with folders(library) as source:
        assert source.can("search")
        for title, expected in {"夜曲": "夜曲", "A & B = C": "a & b=c?", "NOISE": "noise 🎧"}.items():
            assert [track.title for track in source.search(Track(id="x", title=title))] == [expected]
        assert list(source.search(Track(id="x", title="???"))) == []


def test_two_roots_of_one_name(tmp_path: Path) -> None:
    for parent in ("a", "b"):
        wav(tmp_path / parent / "Music" / "1.wav")
    with folders(tmp_path / "a" / "Music", tmp_path / "b" / "Music") as source:
        assert [track.id for track in songs(source)] == ["Music/1.wav", "Music~2/1.wav"]
        assert source.resolve(Track(id="Music~2/1.wav", title="")).path == tmp_path / "b" / "Music" / "1.wav"


def test_a_disk_that_is_not_mounted_has_not_lost_its_songs(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    song = wav(root / "1.wav")
    with folders(root) as source:
        (track,) = songs(source)
        song.rename(tmp_path / "1.wav")
        for _ in range(2):
            with pytest.raises(ProviderError, match="mounted"):
                source.resolve(track)
            with pytest.raises(ProviderError, match="mounted"):
                list(source.playlists(Pool(id="disk", name="")))
            if root.exists():
                root.rmdir()
        (tmp_path / "1.wav").unlink()
        wav(root / "2.wav")
        with pytest.raises(Gone):
            source.resolve(track)
