"""A Subsonic library, read from a server nobody here wrote and from scripted ones that have its siblings' habits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import pytest

from dalsegno.model.signal import ProviderError, Signal
from dalsegno.sources.http import Http
from dalsegno.sources.model import Gone, Playlist, Pool, Source, Track, Unusable
from dalsegno.sources.registry import Config, Sources
from dalsegno.sources.subsonic import open_source
from tests.sources.hostile import Hostile, hostile, ok

on_supysonic = pytest.mark.xdist_group("subsonic")
Server = tuple[str, str, str]


def opened(url: str, user: str = "", password: str = "", key: str = "") -> Source:
    values = {"SUBSONIC_URL": url, "SUBSONIC_USER": user, "SUBSONIC_PASSWORD": password, "SUBSONIC_API_KEY": key}
    return open_source(Config(values))


@pytest.fixture
def source(supysonic: Server) -> Iterator[Source]:
    source = opened(*supysonic)
    yield source
    source.close()


def playlists(source: Source, pool: str) -> list[Any]:
    return list(source.playlists(Pool(id=pool, name=pool)))


def everything(source: Source) -> list[Track]:
    return list(source.tracks(playlists(source, "library")[0]))


# ---- supysonic ----


@on_supysonic
def test_the_whole_library_with_its_tags(source: Source) -> None:
    tracks = {track.title: track for track in everything(source)}
    assert set(tracks) == {"夜曲", "a & b=c?", "七里香", "noise 🎧.wav"}
    song = tracks["夜曲"]
    assert (song.artists, song.album, song.track_no, song.year) == (("Björk",), "Ünder", 1, 2001)
    assert song.duration == 1
    assert (tracks["noise 🎧.wav"].artists, tracks["noise 🎧.wav"].album) == ((), "")


@on_supysonic
def test_albums_are_playlists(source: Source) -> None:
    albums = {album.name: album for album in playlists(source, "albums")}
    assert albums["Ünder"].owner == "Björk"
    assert albums["Ünder"].count == 2
    assert [track.title for track in source.tracks(albums["Ünder"])] == ["夜曲", "a & b=c?"]


@on_supysonic
def test_playlists_and_stars_keep_their_order(source: Source) -> None:
    ids = {track.title: track.id for track in everything(source)}
    api = source.api  # type: ignore[attr-defined]
    api.call("createPlaylist", name="Mix ü", songId=ids["七里香"])
    for title in ("夜曲", "七里香"):
        made = playlists(source, "playlists")[0]
        api.call("updatePlaylist", playlistId=made.id.partition(":")[2], songIdToAdd=ids[title])
    api.call("star", id=ids["a & b=c?"])
    (mix,) = playlists(source, "playlists")
    assert (mix.name, mix.owner, mix.count) == ("Mix ü", "admin", 3)
    assert [track.title for track in source.tracks(mix)] == ["七里香", "夜曲", "七里香"]
    (starred,) = playlists(source, "starred")
    assert [track.title for track in source.tracks(starred)] == ["a & b=c?"]
    api.call("deletePlaylist", id=mix.id.partition(":")[2])
    with pytest.raises(Gone):
        list(source.tracks(mix))


@on_supysonic
def test_a_song_is_found_by_title_and_artist(source: Source) -> None:
    for title in ("夜曲", "夜曲 (Live)", "a & b=c?"):
        found = list(source.search(Track(id="elsewhere", title=title, artists=("Björk",))))
        assert found[0].title == title.removesuffix(" (Live)")
    assert list(source.search(Track(id="x", title="never heard of"))) == []


@on_supysonic
def test_the_original_bytes_come_down(source: Source, library: Path) -> None:
    with Http() as http:
        for track in everything(source):
            media = source.resolve(track)
            assert media.url is not None
            with http.open(media.url, headers=media.headers, trusted=media.trusted) as answer:
                body = answer.read()
            assert (len(body), media.suffix, media.lossless) == (media.size, ".wav", True)
            assert any(file.read_bytes() == body for file in library.rglob("*.wav"))
            with http.open(media.url, headers={"Range": "bytes=100-"}, trusted=True) as answer:
                assert (answer.status, answer.read()) == (206, body[100:])


@on_supysonic
def test_what_is_kept_holds_no_credentials(source: Source, supysonic: Server) -> None:
    password = supysonic[2]
    track = everything(source)[0]
    assert password not in repr(track)
    assert password.encode().hex() not in repr(track)
    media = source.resolve(track)
    shown = media.url or ""
    for secret in media.secrets:
        shown = shown.replace(secret, "***")
    assert password.encode().hex() not in shown
    assert quote(password) not in shown


@on_supysonic
def test_it_falls_back_to_the_old_way_in_and_remembers_it(source: Source) -> None:
    everything(source)
    assert source.api._way == "password"  # type: ignore[attr-defined]


@on_supysonic
def test_an_api_key_the_server_never_heard_of_does_not_hurt(supysonic: Server) -> None:
    source = opened(*supysonic, key="some-key")
    assert len(everything(source)) == 4
    source.close()


@on_supysonic
def test_a_wrong_password_says_so_and_does_not_show_it(supysonic: Server) -> None:
    source = opened(supysonic[0], supysonic[1], "not the password")
    with pytest.raises(ProviderError, match="does not accept user and password") as caught:
        everything(source)
    assert Signal.of(caught.value).status == 401
    assert "not the password" not in str(caught.value)
    source.close()


@on_supysonic
def test_a_song_that_is_not_there_is_gone(source: Source) -> None:
    with pytest.raises(Gone):
        source.resolve(Track(id="00000000-0000-0000-0000-000000000000", title="lost"))


@on_supysonic
def test_it_is_found_by_its_setting(supysonic: Server) -> None:
    url, user, password = supysonic
    sources = Sources(Config({"SUBSONIC_URL": url, "SUBSONIC_USER": user, "SUBSONIC_PASSWORD": password}))
    assert sources.names() == ["subsonic"]
    assert [pool.id for pool in sources.get("subsonic").pools()] == ["playlists", "starred", "albums", "library"]
    sources.close()


# ---- its siblings ----

Answer = Callable[[dict[str, str]], dict[str, Any]]


class Sibling:
    """A Subsonic server made of answers by method."""

    def __init__(self, server: Hostile, check: Callable[[dict[str, str]], int | None] = lambda _: None) -> None:
        self.server, self.check, self.asked = server, check, []

    def on(self, method: str, answer: Answer | dict[str, Any] | int) -> None:
        def said(path: str, headers: dict[str, str]) -> bytes:
            query = {
                name: values[0] for name, values in parse_qs(path.partition("?")[2], keep_blank_values=True).items()
            }
            self.asked.append((method, query))
            code = self.check(query) or (answer if isinstance(answer, int) else None)
            body: dict[str, Any] = {"status": "ok", "version": "1.16.1"}
            if code is not None:
                body |= {"status": "failed", "error": {"code": code, "message": f"code {code}"}}
            elif not isinstance(answer, int):
                body |= answer(query) if callable(answer) else answer
            return ok(json.dumps({"subsonic-response": body}).encode(), keep=True)

        self.server.answers[f"/rest/{method}.view"] = said


@pytest.fixture
def server() -> Iterator[Hostile]:
    with hostile() as running:
        yield running


def test_an_api_key_goes_alone(server: Hostile) -> None:
    def check(query: dict[str, str]) -> int | None:
        return None if query.get("apiKey") == "k" and "u" not in query else 44

    sibling = Sibling(server, check)
    sibling.on("getPlaylists", {"playlists": {"playlist": [{"id": "1", "name": "one"}]}})
    source = opened(server.url, "me", "pw", key="k")
    assert [each.id for each in playlists(source, "playlists")] == ["playlist:1"]
    assert len(sibling.asked) == 1
    source.close()


@pytest.mark.parametrize("code", [41, 42, 44])
def test_a_salted_token_where_a_key_is_not_accepted(server: Hostile, code: int) -> None:
    def check(query: dict[str, str]) -> int | None:
        if "t" not in query:
            return code
        return None if query["t"] == hashlib.md5(f"pässword{query['s']}".encode()).hexdigest() else 40

    sibling = Sibling(server, check)
    sibling.on("getPlaylists", {"playlists": {}})
    source = opened(server.url, "me", "pässword", key="k")
    assert playlists(source, "playlists") == []
    assert playlists(source, "playlists") == []
    assert len(sibling.asked) == 3
    salts = {query["s"] for _, query in sibling.asked if "s" in query}
    assert len(salts) == 2
    source.close()


def test_a_server_of_one_song_that_makes_no_list_of_it_and_says_it_in_xml(server: Hostile) -> None:
    server.answers["/rest/getStarred2.view"] = ok(
        b'<subsonic-response xmlns="http://subsonic.org/restapi" status="ok" version="1.8.0"><starred2>'
        b'<song id="7" title="One &amp; only" artist="A" duration="61" isDir="false"/></starred2></subsonic-response>'
    )
    server.answers["/rest/getPlaylist.view"] = ok(
        json.dumps({"subsonic-response": {"status": "ok", "playlist": {"entry": {"id": 8, "title": "x"}}}}).encode()
    )
    source = opened(server.url, "me", "pw")
    (starred,) = playlists(source, "starred")
    (song,) = source.tracks(starred)
    assert (song.id, song.title, song.artists, song.duration) == ("7", "One & only", ("A",), 61)
    assert [track.id for track in source.tracks(Playlist(id="playlist:1", name=""))] == ["8"]
    source.close()


@pytest.mark.parametrize(("id", "method"), [("playlist:1", "getPlaylist"), ("album:1", "getAlbum")])
def test_an_answer_without_the_list_is_no_empty_list(server: Hostile, id: str, method: str) -> None:
    sibling = Sibling(server)
    sibling.on(method, {})
    source = opened(server.url, "me", "pw")
    with pytest.raises(Unusable, match="says nothing of it"):
        list(source.tracks(Playlist(id=id, name="")))
    sibling.on(method, {method[3:].lower(): {"id": "1", "name": "Nothing in it"}})
    assert list(source.tracks(Playlist(id=id, name=""))) == []
    source.close()


def test_a_library_that_an_empty_query_does_not_find_is_walked_by_album(server: Hostile) -> None:
    sibling = Sibling(server)
    sibling.on("search3", {"searchResult3": {}})
    pages = {"0": [{"id": "a"}, {"id": "b"}], "2": [{"id": "c"}]}
    sibling.on("getAlbumList2", lambda query: {"albumList2": {"album": pages.get(query["offset"], [])}})
    sibling.on("getAlbum", lambda query: {"album": {"song": [{"id": query["id"] + "1", "title": query["id"]}]}})
    source = opened(server.url, "me", "pw")
    assert [track.id for track in everything(source)] == ["a1", "b1", "c1"]
    source.close()


def test_a_server_that_knows_no_offset_does_not_go_on_for_ever(server: Hostile) -> None:
    sibling = Sibling(server)
    sibling.on("search3", {"searchResult3": {"song": [{"id": "1", "title": "a"}, {"id": "2", "title": "b"}]}})
    source = opened(server.url, "me", "pw")
    assert [track.id for track in everything(source)] == ["1", "2"]
    source.close()


def test_lyrics_and_cover_of_an_open_server(server: Hostile) -> None:
    sibling = Sibling(server)
    sibling.on("getSong", {"song": {"id": "1", "title": "a", "suffix": "mp3", "coverArt": "al-1", "bitRate": 320}})
    sibling.on("getUser", {"user": {"downloadRole": False}})
    sibling.on("getOpenSubsonicExtensions", {"openSubsonicExtensions": [{"name": "songLyrics", "versions": [1]}]})
    plain = {"synced": False, "line": [{"value": "plain"}]}
    timed = {
        "synced": True,
        "offset": -500,
        "line": [{"start": 61_000, "value": "one"}, {"start": 62_340, "value": ""}],
    }
    sibling.on("getLyricsBySongId", {"lyricsList": {"structuredLyrics": [plain, timed]}})
    source = opened(server.url + "/rest/", "me", "pw")
    media = source.resolve(Track(id="1", title="a"))
    assert media.lyrics == "[01:01.50]one\n[01:02.84]"
    assert media.cover is not None
    assert "getCoverArt.view?id=al-1" in (media.cover.url or "")
    assert (media.lossless, media.bitrate) == (False, 320)
    assert "/stream.view" in (media.url or "")  # this user may not download
    source.close()


@pytest.mark.parametrize(("code", "status"), [(50, 403), (0, None), (40, 401)])
def test_refusals_have_a_status(server: Hostile, code: int, status: int | None) -> None:
    Sibling(server).on("getPlaylists", code)
    source = opened(server.url, "me", "pw")
    with pytest.raises(ProviderError) as caught:
        playlists(source, "playlists")
    assert caught.value.status == status
    source.close()


def test_a_busy_server_is_not_a_bad_one(server: Hostile) -> None:
    server.answers["/rest/getPlaylists.view"] = ok(b"later", "Retry-After: 3", status="503 Busy")
    source = opened(server.url, "me", "pw")
    with pytest.raises(ProviderError) as caught:
        playlists(source, "playlists")
    signal = Signal.of(caught.value)
    assert (signal.status, signal.headers["retry-after"]) == (503, "3")
    source.close()


def test_something_else_at_the_address(server: Hostile) -> None:
    server.answers["/rest/getPlaylists.view"] = ok(b"<html>Welcome to your router</html>")
    source = opened(server.url, "me", "pw")
    with pytest.raises(Unusable, match="did not answer as a Subsonic server"):
        playlists(source, "playlists")
    server.answers.clear()
    with pytest.raises(ProviderError, match="no Subsonic API at SUBSONIC_URL"):
        playlists(source, "playlists")
    source.close()


def test_nobody_named(server: Hostile) -> None:
    source = opened(server.url)
    with pytest.raises(ProviderError, match="Set SUBSONIC_USER"):
        playlists(source, "playlists")
    source.close()
