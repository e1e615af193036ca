"""Playlist files of every kind, and what they may and may not name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dalsegno.sources.model import Gone, Pool, Source, Track, Unusable
from dalsegno.sources.playlist_file import open_source
from dalsegno.sources.playlist_formats import Entry, parse
from dalsegno.sources.registry import Config
from tests.growth import growth
from tests.servers import wav
from tests.sources.hostile import hostile, ok

POOL = Pool(id="files", name="")


@contextmanager
def files(*names: Path | str, roots: tuple[Path, ...] = (), **more: str) -> Iterator[Source]:
    values = {"PLAYLIST_FILES": [str(name) for name in names], "FOLDER_ROOTS": [str(root) for root in roots], **more}
    source = open_source(Config(values))
    try:
        yield source
    finally:
        source.close()


def read(file: Path, body: str | bytes) -> list[Track]:
    file.write_bytes(body if isinstance(body, bytes) else body.encode())
    with files(file) as source:
        return [track for playlist in source.playlists(POOL) for track in source.tracks(playlist)]


def test_m3u_with_everything_in_it(tmp_path: Path) -> None:
    tracks = read(
        tmp_path / "a.m3u8",
        "\ufeff#EXTM3U\r\n#PLAYLIST:Mine\r\n#EXTALB:Album\r\n"
        '#EXTINF:123.5 tvg-id="x,y",Björk - Hyper-ballad\r\nmusic/one.wav\r\n\r\n'
        "#EXTINF:-1,Alone\r\nhttp://h.example/x.mp3\r\n"
        "#EXTINF:7,A - B - C\r\n#EXTART:A - B\r\nc.mp3\r\n"
        "https://h.example/some%20thing.flac",
    )
    assert [(track.title, track.artists, track.duration) for track in tracks] == [
        ("Hyper-ballad", ("Björk",), 123.5),
        ("Alone", (), None),
        ("C", ("A - B",), 7),
        ("some thing", (), None),
    ]
    assert tracks[0].album == "Album"


def test_an_old_m3u_is_latin_1(tmp_path: Path) -> None:
    assert read(tmp_path / "a.m3u", "#EXTINF:1,Café\nx.mp3\n".encode("latin-1"))[0].title == "Café"
    assert read(tmp_path / "b.m3u", "#EXTINF:1,Café 夜\nx.mp3\n")[0].title == "Café 夜"
    assert read(tmp_path / "c.m3u", "#EXTINF:1,夜\nx.mp3\n".encode("utf-16"))[0].title == "夜"


def _of(line: str) -> list[Entry]:
    return list(parse(line.encode(), "a.m3u8").entries)


@pytest.mark.parametrize("piece", [' a="1"', " a=1", '"', ",", " ", "\n", "9", ' a="', "#EXTINF:1 "])
def test_no_line_of_a_playlist_takes_more_work_than_it_is_long(piece: str) -> None:
    assert growth(lambda size: _of("#EXTINF:1" + piece * size + "!\nx.mp3\n"), 2000) < 24


@pytest.mark.parametrize("piece", [" ", ";", "a; ", "  ,  "])
def test_no_cell_of_a_table_takes_more_work_than_it_is_long(piece: str) -> None:
    table = 'title,artists\nx,"a{}b"\n'
    assert growth(lambda size: list(parse(table.format(piece * size).encode(), "a.csv").entries), 2000) < 24


def test_what_follows_the_duration_may_be_anything() -> None:
    for text, title in (
        (' a="1" b=2,T', "T"), (",T, U", "T, U"), ('1 a="x,y" b="",T "q, r"', 'T "q, r"'), (' a="1,T', "T"),
        (" no attribute,T", "T"), ('-1 a="1"!', "x"), ("", "x"), ("99999999999999999999,T", "T"),
    ):  # fmt: skip
        (entry,) = _of(f"#EXTINF:{text}\nx.mp3\n")
        assert entry.title == title


def test_xspf(tmp_path: Path) -> None:
    (track,) = read(
        tmp_path / "a.xspf",
        '<?xml version="1.0"?><playlist version="1" xmlns="http://xspf.org/ns/0/"><title>T</title><trackList><track>'
        "<location>http://h.example/1.mp3</location><title>夜曲</title><creator>周杰倫</creator><album>十一月</album>"
        "<trackNum>2</trackNum><duration>226000</duration></track></trackList></playlist>",
    )
    assert (track.title, track.artists, track.album) == ("夜曲", ("周杰倫",), "十一月")
    assert (track.track_no, track.duration) == (2, 226)


@pytest.mark.parametrize(
    "body",
    ["<playlist", '<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><playlist>&c;</playlist>', "<rss/>",
     '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><playlist><title>&a;</title></playlist>'],
)  # fmt: skip
def test_xml_that_is_broken_or_means_harm(tmp_path: Path, body: str) -> None:
    with pytest.raises(Unusable):
        read(tmp_path / "a.xspf", body)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_with_any_delimiter(tmp_path: Path, delimiter: str) -> None:
    rows = [
        ["Title", "Artist", "Album", "URL", "Duration"],
        ['"a ""b"", c; d | e"', "X", "Y", "http://h.example/1.mp3", "4:05"],
        ["z", "", "", "", ""],
    ]
    first, second = read(tmp_path / "a.csv", "\r\n".join(delimiter.join(row) for row in rows))
    assert (first.title, first.artists, first.duration) == ('a "b", c; d | e', ("X",), 245)
    assert second.title == "z"


def test_csv_as_exportify_writes_it(tmp_path: Path) -> None:
    head = '"Track URI","Track Name","Artist URI(s)","Artist Name(s)","Album Name","Disc Number","Track Number",'
    (track,) = read(
        tmp_path / "a.csv",
        f'\ufeff{head}"Track Duration (ms)","ISRC","Album Release Date"\n'
        '"spotify:track:1","Song, with comma","u","One, Two","Al","1","3","201500","USX123","2010-05-01"\n',
    )
    assert (track.id, track.title, track.artists) == ("spotify:track:1", "Song, with comma", ("One", "Two"))
    assert (track.track_no, track.disc_no, track.year, track.isrc, track.duration) == (3, 1, 2010, "USX123", 201.5)


def test_an_id_that_says_whose_it_is_names_one_song_in_every_list(tmp_path: Path) -> None:
    for name, head in (("a.csv", "id"), ("b.csv", "Track ID"), ("c.csv", "Spotify ID")):
        (track,) = read(tmp_path / name, f"title,{head}\nA,spotify:track:1\n")
        assert track.id == "spotify:track:1"
    for name in ("a.csv", "b.csv"):
        (track,) = read(tmp_path / name, "id,title,Spotify ID\n1,A,4iV9\n")
        assert track.id == "4iV9"


def test_a_plain_id_names_a_song_in_its_own_list_alone(tmp_path: Path) -> None:
    rows = "id,title,url\n1,A,http://h.example/a.mp3\n2,B,\n"
    first = [track.id for track in read(tmp_path / "a.csv", rows)]
    second = [track.id for track in read(tmp_path / "b.csv", rows)]
    assert len({*first, *second}) == 4
    assert [id.partition(":")[2] for id in first] == ["1", "2"]
    again = rows.replace("A", "A (live)").replace("h.example", "new.example")
    assert [track.id for track in read(tmp_path / "a.csv", again)] == first, "however it is corrected"


def test_a_plain_list(tmp_path: Path) -> None:
    tracks = read(tmp_path / "a.txt", "# mine\nhttp://h.example/a%20b.mp3\n\n  https://h.example/c?x=1  \n")
    assert [track.title for track in tracks] == ["a b", "c"]


@pytest.mark.parametrize(
    ("name", "body"),
    [("a.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nseg.ts\n"), ("a.csv", "one,two\n1,2\n"),
     ("a.m3u", "<!DOCTYPE html><html></html>"), ("cover.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF\0\n"),
     ("a.m3u", "#EXTM3U\nx.mp3\n".encode("utf-16-le"))],
)  # fmt: skip
def test_what_is_no_playlist(tmp_path: Path, name: str, body: str | bytes) -> None:
    with pytest.raises(Unusable) as caught:
        read(tmp_path / name, body)
    assert caught.value.code == "not_a_playlist"


@pytest.mark.parametrize(
    ("name", "body"),
    [("a.m3u", "{bad}\n{good}\n"), ("a.txt", "{bad}\n{good}\n"), ("a.csv", "title,url\nx,{bad}\ny,{good}\n")],
)
@pytest.mark.parametrize("bad", ["http://[::1", "https://h:99999/x.mp3", "file://[/x.mp3", "x" * 5000])
def test_a_line_that_leads_nowhere_fails_alone(tmp_path: Path, name: str, body: str, bad: str) -> None:
    lost, good = read(tmp_path / name, body.format(bad=bad, good="https://h.example/y.mp3"))
    with files(tmp_path / name) as source:
        assert source.resolve(good).url == "https://h.example/y.mp3"
        with pytest.raises((Gone, Unusable)):
            source.resolve(lost)


@pytest.mark.parametrize("name", ["a.m3u", "a.txt", "a.csv"])
def test_lines_may_end_as_they_did_on_old_macs(tmp_path: Path, name: str) -> None:
    first = "title,url\r" if name == "a.csv" else ""
    comma = "x," if name == "a.csv" else ""
    assert len(read(tmp_path / name, f"{first}{comma}http://h/x.mp3\r{comma}http://h/y.mp3\r")) == 2


def test_many_files_by_one_pattern(tmp_path: Path) -> None:
    for name in ("b ü.m3u", "a.m3u", "c.txt"):
        (tmp_path / name).write_text("http://h.example/1.mp3")
    (tmp_path / "a.m3u").write_text("#PLAYLIST: Named\nhttp://h.example/1.mp3")
    with files(tmp_path / "*.m3u", tmp_path / "none*") as source:
        assert [playlist.name for playlist in source.playlists(POOL)] == ["Named", "b ü"]


# ---- what a line may name ----


def test_files_beside_the_playlist(tmp_path: Path) -> None:
    song = wav(tmp_path / "music" / "ü 1.wav")
    tracks = read(tmp_path / "a.m3u", f"music/ü 1.wav\nmusic\\ü 1.wav\n{song}\n{song.as_uri()}\nmusic/%C3%BC%201.wav\n")
    with files(tmp_path / "a.m3u") as source:
        assert {source.resolve(track).path for track in tracks} == {song}
        media = source.resolve(tracks[0])
        assert (media.size, media.suffix) == (song.stat().st_size, ".wav")
        song.unlink()
        with pytest.raises(Gone):
            source.resolve(tracks[0])
    assert len({track.id for track in tracks}) == 1


def test_a_colon_in_a_folder_or_a_name_makes_no_address(tmp_path: Path) -> None:
    songs = [wav(tmp_path / "Re:Zero.wav"), wav(tmp_path / "Disc 1: Rain" / "01.wav")]
    tracks = read(tmp_path / "a.m3u", "Re:Zero.wav\nDisc 1: Rain/01.wav\nspotify:track:1\nsmb://nas/x.wav\n")
    with files(tmp_path / "a.m3u") as source:
        assert [source.resolve(track).path for track in tracks[:2]] == songs
        for track in tracks[2:]:
            with pytest.raises(Unusable, match="does not say where"):
                source.resolve(track)


def test_files_elsewhere_only_under_folder_roots(tmp_path: Path) -> None:
    song = wav(tmp_path / "music" / "1.wav")
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "link.wav").symlink_to(song)
    list_file = tmp_path / "lists" / "a.m3u"
    tracks = read(list_file, f"../music/1.wav\n{song}\nlink.wav\n/etc/passwd\nfile:///etc/passwd\n")
    with files(list_file) as source:
        for track in tracks:
            with pytest.raises(Unusable) as caught:
                source.resolve(track)
            assert caught.value.code == "path_refused"
    with files(list_file, roots=(tmp_path / "music",)) as source:
        assert [source.resolve(track).path for track in tracks[:3]] == [song] * 3
        with pytest.raises(Unusable):
            source.resolve(tracks[3])


def test_a_song_without_a_place_is_for_others_to_find(tmp_path: Path) -> None:
    (track,) = read(tmp_path / "a.csv", "title,artist\n夜曲,周杰倫\n")
    assert track.id.startswith("song:")
    with files(tmp_path / "a.csv") as source, pytest.raises(Unusable, match="does not say where"):
        source.resolve(track)


def test_a_playlist_over_http_names_what_lies_beside_it(caddy: tuple[str, Path]) -> None:
    url, root = caddy
    (root / "lists").mkdir(exist_ok=True)
    (root / "lists" / "far.m3u").write_text("../songs/ü 1.wav\n/top.mp3\nhttp://other.example/x.mp3\n")
    with files(f"{url}/lists/far.m3u") as source:
        (playlist,) = source.playlists(POOL)
        medias = [source.resolve(track) for track in source.tracks(playlist)]
    assert playlist.name == "far"
    assert [media.url for media in medias] == [f"{url}/songs/ü 1.wav", f"{url}/top.mp3", "http://other.example/x.mp3"]
    assert [media.trusted for media in medias] == [True, True, False]


def test_a_playlist_over_http_never_names_a_file_here(caddy: tuple[str, Path]) -> None:
    url, root = caddy
    (root / "evil.m3u").write_text("file:///etc/passwd\nC:\\Windows\\system.ini\nftp://h/x.mp3\nRe:Zero.wav\n")
    wav(root / "Re:Zero.wav")
    with files(f"{url}/evil.m3u") as source:
        for track in source.tracks(next(iter(source.playlists(POOL)))):
            with pytest.raises(Unusable, match="does not say where"):
                source.resolve(track)
        forged = Track(id="x", title="x", snapshot={"playlist": f"{url}/evil.m3u", "place": "/etc/passwd"})
        with pytest.raises(Unusable, match="may not name a file"):
            source.resolve(forged)


def test_credentials_are_not_kept() -> None:
    with hostile() as server:
        server.answers["/l.m3u"] = ok(b"http://u:pa55@h.example/a.mp3\nhttp://h.example/b.mp3?token=hush\n")
        with files(server.url.replace("//", "//me:pw1@") + "/l.m3u?key=pw2") as source:
            (playlist,) = source.playlists(POOL)
            tracks = list(source.tracks(playlist))
            for kept in (playlist, *tracks):
                assert not any(secret in repr(kept) for secret in ("pa55", "hush", "pw1", "pw2"))
            first, second = (source.resolve(track) for track in tracks)
    assert first.url == "http://h.example/a.mp3"
    assert first.headers["Authorization"].startswith("Basic ")
    assert second.url == "http://h.example/b.mp3?token=hush"
    assert second.secrets == ("hush",)


def test_songs_that_only_a_parameter_tells_apart_are_several(tmp_path: Path) -> None:
    at = "http://h.example/rest/stream"
    lines = [f"{at}?id=1&token=abc", f"{at}?id=2&token=abc", f"{at}?author=b", "HTTP://h.example/x?author=c&key=k"]
    file = tmp_path / "a.m3u"
    tracks = read(file, "".join(f"#EXTINF:1,Song {number}\n{line}\n" for number, line in enumerate(lines, 1)))
    assert [track.id for track in tracks] == [
        f"{at}?id=1", f"{at}?id=2", f"{at}?author=b", "http://h.example/x?author=c"
    ]  # fmt: skip
    with files(file) as source:
        assert [source.resolve(track).url for track in tracks] == [*lines[:3], lines[3].replace("HTTP", "http")]
        file.write_text(file.read_text().replace("abc", "new"))
        assert [track.id for track in source.tracks(next(iter(source.playlists(POOL))))] == [t.id for t in tracks]
        assert source.resolve(tracks[1]).url == lines[1].replace("abc", "new")


def test_songs_that_only_a_token_tells_apart_are_known_by_title_then_by_order(tmp_path: Path) -> None:
    at = "http://h.example/stream?token="
    lines = [("Rain", "a"), ("Snow", "b"), ("Snow", "c"), ("Rain", "a")]
    file = tmp_path / "a.m3u"
    tracks = read(file, "".join(f"#EXTINF:1,{title}\n{at}{token}\n" for title, token in lines))
    assert len({track.id for track in tracks}) == 3
    assert tracks[0].id == tracks[3].id
    with files(file) as source:
        assert [source.resolve(track).url for track in tracks] == [at + token for _, token in lines]


def test_a_signed_song_that_its_path_names_is_called_as_ever(tmp_path: Path) -> None:
    lines = [
        "http://h.example/a.mp3?Expires=1&Signature=x&Key-Pair-Id=K",
        "http://u:pw@h.example/b.mp3",
        "http://h/s?token=1",
    ]
    assert [track.id for track in read(tmp_path / "a.m3u", "\n".join(lines))] == [
        "http://h.example/a.mp3", "http://h.example/b.mp3", "http://h/s"
    ]  # fmt: skip


def test_a_playlist_that_is_gone(caddy: tuple[str, Path], tmp_path: Path) -> None:
    with files(f"{caddy[0]}/never.m3u") as source, pytest.raises(Gone):
        source.tracks(next(iter(source.playlists(POOL))))
    (tmp_path / "a.m3u").write_text("x.mp3")
    with files(tmp_path / "a.m3u") as source:
        (playlist,) = source.playlists(POOL)
        (tmp_path / "a.m3u").unlink()
        with pytest.raises(Gone, match="is not there"):
            source.tracks(playlist)


def test_a_playlist_that_was_never_there_is_listed_so_that_it_can_say_so(tmp_path: Path) -> None:
    (tmp_path / "b [1].m3u").write_text("http://h.example/1.mp3")
    with files(tmp_path / "a.m3u", tmp_path / "b [1].m3u", tmp_path) as source:
        missing, there, folder = source.playlists(POOL)
        assert (missing.name, there.name) == ("a", "b [1]")
        assert [track.title for track in source.tracks(there)] == ["1"]
        with pytest.raises(Gone, match=r"a\.m3u is not there"):
            source.tracks(missing)
        with pytest.raises(Unusable, match="cannot be read: Is a directory"):
            source.tracks(folder)
