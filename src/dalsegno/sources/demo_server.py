"""The demo catalog over HTTP: `with DemoServer() as server: server.url`, or `python -m dalsegno.sources.demo_server`.

    /pools                              /pools/{id}/playlists?offset=&limit=
    /playlists/{id}/tracks?offset=&limit=     /search?q=
    /tracks/{id}/link                   where the audio is, for a while
    /audio/{id}?token=                  /covers/{id}.png
    /stats                              how often each audio was asked for

What is the matter with some songs is said in `demo_catalog.Fault`.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import itertools
import math
import signal
import struct
import sys
import threading
import zlib
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Self
from urllib.parse import quote

from dalsegno.clock import Clock, SystemClock
from dalsegno.sources.demo_audio import flac, wav
from dalsegno.sources.demo_catalog import FAULTS, MIRRORED, POOLS, Catalog, Fault, Listing, Song
from dalsegno.sources.demo_http import Request, Response, Web, ranged

PAGE_MAX = 500
FOUND_MAX = 20
CACHE_BYTES = 32 * 1024 * 1024
TRICKLE = 40_000
"""Bytes a second of a slow song."""
TRICKLE_MAX = 8.0
"""Seconds a slow song takes at most."""
BURST = 2
WINDOW = 2.0
"""Seconds in which BURST of the rate-limited songs may be resolved."""
KINDS = {".flac": "audio/flac", ".wav": "audio/wav"}
PAGE = b"<!doctype html><title>Sign in</title><p>This song is for members. Please sign in to go on.</p>" * 20


class DemoServer:
    """`pace` scales every delay, 0 means none. `faults` may be switched off, or say which song (by number) has which.

    Songs in `mirrored` exist a second time, sound, where only a search finds them. Links are good for `link_seconds`.
    """

    def __init__(
        self,
        *,
        songs: int = 120,
        playlists: int = 12,
        seed: int = 1,
        pace: float = 1.0,
        faults: bool | Mapping[int, Fault] = True,
        mirrored: Iterable[int] = MIRRORED,
        link_seconds: float = 300.0,
        port: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self.catalog = Catalog(seed, songs, playlists, frozenset(mirrored))
        self.faults: Mapping[int, Fault] = (FAULTS if faults else {}) if isinstance(faults, bool) else dict(faults)
        self.pace = pace
        self._link_seconds = link_seconds
        self._clock = clock or SystemClock()
        self._key = hashlib.sha256(f"demo {seed}".encode()).digest()
        self._nonces = itertools.count(1)
        self._lock = threading.Lock()
        self._asked: Counter[str] = Counter()
        self._resolved: Counter[str] = Counter()
        self._sent: Counter[str] = Counter()
        self._used: OrderedDict[str, None] = OrderedDict()
        self._limited: deque[float] = deque()
        self._limited_count = 0
        self._files: OrderedDict[str, tuple[bytes, str]] = OrderedDict()
        self._files_bytes = 0
        self._web = Web(self._answer, port)

    @property
    def url(self) -> str:
        return self._web.url

    @property
    def requests(self) -> Counter[str]:
        """How often the audio of each track was asked for, by id. HEAD does not count."""
        with self._lock:
            return self._asked.copy()

    @property
    def resolves(self) -> Counter[str]:
        """How often a link to each track was asked for."""
        with self._lock:
            return self._resolved.copy()

    @property
    def bytes_sent(self) -> Counter[str]:
        """How much of the audio of each track went out."""
        with self._lock:
            return self._sent.copy()

    def audio(self, id: str) -> bytes:
        """The bytes a track has when nothing goes wrong on the way. (A corrupt one has its wrong checksum.)"""
        song = self.catalog.song(id)
        if song is None:
            raise KeyError(id)
        return self._file(song)[0]

    def start(self) -> Self:
        self._web.start()
        return self

    def close(self) -> None:
        self._web.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, request: Request) -> Response:
        match request.path.strip("/").split("/"):
            case ["pools"]:
                return Response.json({"pools": [{"id": id, "name": name} for id, name in POOLS]})
            case ["pools", id, "playlists"]:
                return self._playlists(request, id)
            case ["playlists", id, "tracks"]:
                return self._tracks(request, id)
            case ["search"]:
                found = self.catalog.search(request.query.get("q", ""), FOUND_MAX)
                return Response.json({"tracks": [_track(song) for song in found]})
            case ["tracks", id, "link"] if song := self.catalog.song(id):
                return self._link(song)
            case ["audio", id] if song := self.catalog.song(id):
                return self._audio(request, song)
            case ["covers", name] if name.endswith(".png") and (song := self.catalog.song(name[:-4])):
                return Response(200, {"Content-Type": "image/png"}, cover(song.number))
            case ["stats"]:
                return self._stats()
        return Response.error(404, "There is nothing here.")

    def _playlists(self, request: Request, id: str) -> Response:
        number = {pool: number for number, (pool, _) in enumerate(POOLS)}.get(id)
        if number is None:
            return Response.error(404, "There is no such pool.")
        total, read = self.catalog.pool_size(number), partial(self.catalog.pool, number)
        return _page(request, total, "playlists", lambda *part: map(_listing, read(*part)))

    def _tracks(self, request: Request, id: str) -> Response:
        listing = self.catalog.listing(id)
        if listing is None:
            return Response.error(404, "There is no such playlist.")
        read = partial(self.catalog.tracks, listing)
        return _page(request, listing.count, "tracks", lambda *part: map(_track, read(*part)))

    def _stats(self) -> Response:
        return Response.json({"requests": self.requests, "resolves": self.resolves, "bytes_sent": self.bytes_sent})

    def _fault(self, song: Song) -> Fault | None:
        return None if song.mirror else self.faults.get(song.number)

    def _link(self, song: Song) -> Response:
        with self._lock:
            self._resolved[song.id] += 1
        match self._fault(song):
            case Fault.GONE:
                return Response.error(404, "This song was taken away.")
            case Fault.SLOW_LINK:
                self._web.closing.wait((2 + song.number % 3) * self.pace)
            case Fault.RATE_LIMITED if not self._admit():
                after = {"Retry-After": str(math.ceil(WINDOW * self.pace))}
                return Response.error(429, "Too many requests.", after)
        data, _ = self._file(song)
        expires = self._clock.now().timestamp() + self._link_seconds
        return Response.json(
            {
                "url": f"{self.url}/audio/{song.id}?token={quote(self._token(song.id, expires))}",
                "expires_at": expires,
                "size": len(data),
                "suffix": song.suffix,
                "bitrate": round(len(data) * 8 / song.melody.duration / 1000),
                "duration": song.melody.duration,
                "lyrics": song.lyrics,
                "cover": f"{self.url}/covers/{song.id}.png",
            }
        )

    def _admit(self) -> bool:
        window = WINDOW * self.pace
        now = self._clock.monotonic()
        with self._lock:
            if not window:  # without time there is only counting: every third is one too many
                self._limited_count += 1
                return self._limited_count % (BURST + 1) != 0
            while self._limited and now - self._limited[0] >= window:
                self._limited.popleft()
            if len(self._limited) >= BURST:
                return False
            self._limited.append(now)
            return True

    def _audio(self, request: Request, song: Song) -> Response:
        turn = 0
        if request.method == "GET":
            with self._lock:
                self._asked[song.id] += 1
                turn = self._asked[song.id]
        fault, token = self._fault(song), request.query.get("token", "")
        if fault is Fault.GONE:
            return Response.error(404, "This song was taken away.")
        refused = self._refused(song.id, token)
        if refused or fault is Fault.FORBIDDEN:
            return Response.error(403, refused or "This song is not for you.")
        if fault is Fault.BUSY and turn == 1:
            return Response.error(503, "Busy, try again.", {"Retry-After": str(math.ceil(self.pace))})
        if fault is Fault.HTML:
            return Response(200, {"Content-Type": "text/html; charset=utf-8"}, PAGE)
        if fault is Fault.REDIRECT_LOOP:
            return Response(302, {"Location": f"/audio/{song.id}?token={quote(token)}"})
        if fault is Fault.ONE_USE and request.method == "GET":
            self._use(token)
        data, etag = self._file(song)
        if fault is Fault.LYING_LENGTH:
            data = data[: len(data) // 2]
        response, part = ranged(request, data, etag, KINDS[song.suffix])
        return self._sabotage(
            replace(response, sent=lambda count: self._count(song.id, count)), fault, part, len(data), turn
        )

    def _sabotage(self, response: Response, fault: Fault | None, part: range, size: int, turn: int) -> Response:
        whole = len(response.body)
        match fault:
            case Fault.SLOW if self.pace:
                return replace(response, rate=max(TRICKLE, size / TRICKLE_MAX) / self.pace)
            case Fault.FLAKY | Fault.ONE_USE if turn == 1:
                return replace(response, body=response.body[: whole // 2], length=whole)
            case Fault.TRUNCATED if part.stop > size // 2:
                return replace(response, body=response.body[: max(0, size // 2 - part.start)], length=whole)
        return response

    def _count(self, id: str, count: int) -> None:
        with self._lock:
            self._sent[id] += count

    def _token(self, id: str, expires: float) -> str:
        claim = f"{int(expires * 1000)}.{next(self._nonces)}"
        return f"{claim}.{self._signature(id, claim)}"

    def _signature(self, id: str, claim: str) -> str:
        return hmac.new(self._key, f"{id} {claim}".encode(), hashlib.sha256).hexdigest()[:32]

    def _refused(self, id: str, token: str) -> str:
        claim, _, signature = token.rpartition(".")
        if not hmac.compare_digest(self._signature(id, claim).encode(), signature.encode()):
            return "This is no link of ours."
        if int(claim.partition(".")[0]) <= self._clock.now().timestamp() * 1000:
            return "This link has expired."
        with self._lock:
            return "This link has been used." if token in self._used else ""

    def _use(self, token: str) -> None:
        with self._lock:
            self._used[token] = None
            if len(self._used) > 10_000:
                self._used.popitem(last=False)

    def _file(self, song: Song) -> tuple[bytes, str]:
        """The audio and its ETag. The latest are kept: a resolve is mostly followed by a download."""
        with self._lock:
            if song.id in self._files:
                self._files.move_to_end(song.id)
                return self._files[song.id]
        if song.suffix == ".wav":
            data = wav(song.melody, song.tags)
        else:
            data = flac(song.melody, song.tags, honest=self._fault(song) is not Fault.CORRUPT)
        made = data, f'"{hashlib.sha256(data).hexdigest()[:32]}"'
        with self._lock:
            if song.id not in self._files:
                self._files[song.id] = made
                self._files_bytes += len(data)
            while self._files_bytes > CACHE_BYTES:
                _, (old, _) = self._files.popitem(last=False)
                self._files_bytes -= len(old)
        return made


def _page(request: Request, total: int, name: str, read: Callable[[int, int], Iterable[Any]]) -> Response:
    try:
        offset, limit = int(request.query.get("offset", 0)), int(request.query.get("limit", 100))
    except ValueError:
        return Response.error(400, "offset and limit are numbers.")
    if offset < 0 or limit < 1:
        return Response.error(400, "offset begins at 0, limit at 1.")
    return Response.json({"total": total, "offset": offset, name: [*read(offset, offset + min(limit, PAGE_MAX))]})


def _listing(listing: Listing) -> dict[str, Any]:
    return {"id": listing.id, "name": listing.name, "description": listing.description, "count": listing.count}


def _track(song: Song) -> dict[str, Any]:
    return {
        "id": song.id,
        "title": song.title,
        "artists": song.artists,
        "album": song.album,
        "track_no": song.track_no,
        "year": song.year,
        "duration": song.melody.duration,
        "isrc": song.isrc,
    }


@lru_cache(maxsize=512)
def cover(number: int, side: int = 96) -> bytes:
    """A picture of stripes, as PNG."""
    red, green, blue = hashlib.blake2b(str(number).encode(), digest_size=3).digest()
    width = 4 + number % 13
    rows = []
    for y in range(side):
        shades = (255 - ((x + y) // width % 3) * 60 - y for x in range(side))
        rows.append(b"\x00" + bytes(tone * shade // 255 for shade in shades for tone in (red, green, blue)))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Serve the demo catalog on a loopback address.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--songs", type=int, default=120)
    parser.add_argument("--playlists", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pace", type=float, default=1.0, help="scales every delay; 0 means none")
    parser.add_argument("--no-faults", action="store_true", help="every song is sound")
    given = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with DemoServer(
        songs=given.songs,
        playlists=given.playlists,
        seed=given.seed,
        pace=given.pace,
        faults=not given.no_faults,
        port=given.port,
    ) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        stop.wait()


if __name__ == "__main__":
    main()
