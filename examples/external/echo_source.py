#!/usr/bin/env python3
"""A complete external source: the files listed in a setting, fetched from a web server.

    EXTERNAL_SOURCES = echo=python3 examples/external/echo_source.py
    SOURCE_ECHO_BASE = http://nas:8080/music
    SOURCE_ECHO_SONGS = Artist - Title.mp3, Other - Song.flac
    SOURCE_ECHO_HOSTS = nas

It needs nothing but Python, and knows nothing of Dal Segno but the protocol in docs/sources.md: a question a line on
standard input, answers a line each on standard output, everything else on standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

settings: dict[str, str] = {}


class Trouble(Exception):
    """An answer that is an error: one of the protocol's codes, and words for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def hello(params: dict[str, Any]) -> Iterator[dict[str, Any]]:
    settings.update(params.get("settings") or {})
    yield {"protocol": 1, "version": "1.0", "verbs": ["pools", "playlists", "tracks", "search", "resolve"]}


def pools(_: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"id": "all", "name": "Everything"}


def playlists(params: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if params["pool"]["id"] != "all":
        raise Trouble("gone", f"There is no pool {params['pool']['id']}.")
    yield {"id": "songs", "name": "Songs", "count": len(names())}


def tracks(params: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if params["playlist"]["id"] != "songs":
        raise Trouble("gone", f"There is no playlist {params['playlist']['id']}.")
    yield from map(track, names())


def search(params: dict[str, Any]) -> Iterator[dict[str, Any]]:
    wanted = params["track"]["title"].casefold()
    yield from (found for found in map(track, names()) if found["title"].casefold() == wanted)


def resolve(params: dict[str, Any]) -> Iterator[dict[str, Any]]:
    name = params["track"]["id"]
    if name not in names():
        raise Trouble("gone", f"{name} is no longer listed.")
    yield {"url": f"{settings['BASE']}/{quote(name)}", "suffix": "." + name.rpartition(".")[2]}


def names() -> list[str]:
    return [name.strip() for name in settings.get("SONGS", "").split(",") if name.strip()]


def track(name: str) -> dict[str, Any]:
    artist, _, title = name.rpartition(".")[0].rpartition(" - ")
    return {"id": name, "title": title, "artists": [artist] if artist else []}


VERBS = {verb.__name__: verb for verb in (hello, pools, playlists, tracks, search, resolve)}


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    for text in sys.stdin:
        question = json.loads(text)
        if question["method"] == "cancel":  # each answer is whole before the next question is read
            continue
        number = question["id"]
        try:
            verb = VERBS.get(question["method"])
            if verb is None:
                raise Trouble("not_offered", f"There is no {question['method']}.")
            for item in verb(question.get("params") or {}):
                say({"id": number, "item": item})
            say({"id": number, "done": True})
        except Trouble as trouble:
            say({"id": number, "error": {"code": trouble.code, "message": str(trouble)}})
        except Exception as error:
            say({"id": number, "error": {"code": "failed", "message": f"{type(error).__name__}: {error}"}})


if __name__ == "__main__":
    main()
