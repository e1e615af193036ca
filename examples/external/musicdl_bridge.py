#!/usr/bin/env python3
"""A bridge to musicdl's clients for QQ, Kuwo, Netease, Kugou and Migu: an example, to be read before it is used.

- musicdl is not part of Dal Segno and not installed with it. Its licence forbids commercial use; read it, and the terms
  of the services behind it, before you install it.
- This file was written from musicdl's published interface (MusicClient.search and SongInfo, version 2). It has not been
  run against musicdl here: no network, and not ours to install. Expect to adjust `found` when musicdl changes.

    python3 -m venv musicdl-venv && musicdl-venv/bin/pip install musicdl
    EXTERNAL_SOURCES = musicdl=musicdl-venv/bin/python examples/external/musicdl_bridge.py
    SOURCE_MUSICDL_CLIENTS = QQMusicClient, NeteaseMusicClient

It offers `search` and `resolve`: songs of other sources' playlists are looked for here. Downloads go through Dal Segno,
so that they are resumed, checked and written safely; musicdl's own downloader is not used. musicdl finds a song's
address while it searches, so the answers of the last minutes are remembered for `resolve`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import OrderedDict
from importlib import import_module
from typing import Any, TextIO

CLIENTS = ["QQMusicClient", "KuwoMusicClient", "NeteaseMusicClient", "KugouMusicClient", "MiguMusicClient"]
REMEMBERED = 500
FRESH_SEC = 300.0


class Trouble(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Bridge:
    def __init__(self) -> None:
        self.client: Any = None
        self.remembered: OrderedDict[str, tuple[float, Any]] = OrderedDict()

    def hello(self, params: dict[str, Any]) -> list[dict[str, Any]]:
        wanted = (params.get("settings") or {}).get("CLIENTS", "")
        names = [name.strip() for name in wanted.split(",") if name.strip()] or CLIENTS
        try:
            module = import_module("musicdl.musicdl")
        except ImportError as error:
            raise Trouble("unusable", f"musicdl is not installed for this Python ({error})") from None
        each = {"search_size_per_source": 5, "disable_print": True}
        self.client = module.MusicClient(
            music_sources=names, init_music_clients_cfg={name: dict(each) for name in names}
        )
        return [{"protocol": 1, "version": "musicdl", "verbs": ["search", "resolve"]}]

    def search(self, params: dict[str, Any]) -> list[dict[str, Any]]:
        track = params["track"]
        keyword = " ".join([track["title"], *track.get("artists", [])[:1]])
        return [self.form(id, song, keyword) for id, song in self.found(keyword).items()]

    def resolve(self, params: dict[str, Any]) -> list[dict[str, Any]]:
        track = params["track"]
        when, song = self.remembered.get(track["id"], (0.0, None))
        if song is None or time.monotonic() - when > FRESH_SEC:
            keyword = (track.get("snapshot") or {}).get("keyword") or track["title"]
            song = self.found(keyword).get(track["id"])
        if song is None:
            raise Trouble("gone", "it is not found any more")
        if not isinstance(song.download_url, str) or not song.download_url.startswith("http"):
            raise Trouble("unusable", "it has no address that can be fetched")
        media = {
            "url": song.download_url,
            "headers": {str(name): str(value) for name, value in (song.default_download_headers or {}).items()},
            "suffix": f".{song.ext.lstrip('.')}" if song.ext else "",
            "size": song.file_size_bytes or None,
            "duration": song.duration_s or None,
            "lyrics": song.lyric if song.lyric not in (None, "NULL") else None,
            "cover": {"url": song.cover_url} if str(song.cover_url).startswith("http") else None,
        }
        return [{name: value for name, value in media.items() if value}]

    def found(self, keyword: str) -> dict[str, Any]:
        """musicdl's answers by an id of our own, those with an address first asked for."""
        songs = {}
        for client, results in self.client.search(keyword=keyword).items():
            for song in results:
                id = f"{client}:{song.identifier}"
                songs[id] = song
                self.remembered[id] = (time.monotonic(), song)
                self.remembered.move_to_end(id)
        while len(self.remembered) > REMEMBERED:
            self.remembered.popitem(last=False)
        return songs

    def form(self, id: str, song: Any, keyword: str) -> dict[str, Any]:
        singers = [name.strip() for name in str(song.singers or "").replace("/", ",").split(",")]
        form = {
            "id": id,
            "title": song.song_name,
            "artists": [name for name in singers if name and name != "NULL"],
            "album": song.album if song.album not in (None, "NULL") else "",
            "duration": song.duration_s or None,
            "snapshot": {"keyword": keyword},
        }
        return {name: value for name, value in form.items() if value}


def answer(bridge: Bridge, question: dict[str, Any], out: TextIO) -> None:
    def say(**line: Any) -> None:
        out.write(json.dumps({"id": question["id"], **line}) + "\n")
        out.flush()

    verbs = {"hello": bridge.hello, "search": bridge.search, "resolve": bridge.resolve}
    try:
        if question["method"] not in verbs:
            raise Trouble("not_offered", "")
        for item in verbs[question["method"]](question.get("params") or {}):
            say(item=item)
        say(done=True)
    except Trouble as trouble:
        say(error={"code": trouble.code, "message": str(trouble)})
    except Exception as error:  # whatever a client of a changing service raises
        say(error={"code": "failed", "message": f"{type(error).__name__}: {error}"})


def main() -> None:
    # musicdl and its progress bars print: what they print goes to the log, and the answers to a stream of their own.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    bridge = Bridge()
    for text in sys.stdin:
        question = json.loads(text)
        if "id" in question:
            answer(bridge, question, out)


if __name__ == "__main__":
    main()
