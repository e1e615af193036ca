"""What a source is, and what it speaks of: pools of playlists, playlists of tracks, tracks that can be fetched.

Every verb is optional: a source overrides those it knows. What it yields is plain data. `snapshot` is the source's own
note about a thing, kept with it and handed back later; it is JSON without credentials and without URLs that expire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

Verb = Literal["pools", "playlists", "tracks", "search", "resolve"]


class Gone(Exception):
    """What was asked for is not there (any more): trying again will not help."""


class Unusable(Exception):
    """An answer came, but nothing can be done with it: an HTML page instead of audio, a feed that is no feed."""

    def __init__(self, message: str, code: str = "unusable_answer") -> None:
        super().__init__(message)
        self.code = code


class NotOffered(Exception):
    """This source has no such verb."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A set of playlists that is collected in one go: a user's playlists, a chart, one feed."""

    id: str
    name: str
    kind: str = "playlists"
    url: str | None = None
    snapshot: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Playlist:
    id: str
    name: str
    kind: str = "playlist"
    description: str = ""
    owner: str = ""
    url: str | None = None
    count: int | None = None
    """How many tracks the source says it has."""
    snapshot: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    id: str
    """Stable, and unique within its source."""
    title: str
    artists: tuple[str, ...] = ()
    album: str = ""
    track_no: int | None = None
    disc_no: int | None = None
    year: int | None = None
    duration: float | None = None
    """Seconds."""
    isrc: str | None = None
    snapshot: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """Where the bytes of a track are right now. Never stored: URLs expire and may carry credentials."""

    url: str | None = None
    """http or https; or else `path`."""
    path: Path | None = None
    """A local file, of sources that read folders the operator named."""
    headers: Mapping[str, str] = field(default_factory=dict)
    size: int | None = None
    """Bytes, where the source is sure of them."""
    suffix: str = ""
    """Of the file name, with its dot: `.flac`. Empty where the source cannot tell."""
    bitrate: int | None = None
    """kbit/s, where known."""
    lossless: bool | None = None
    duration: float | None = None
    expires_at: datetime | None = None
    trusted: bool = False
    """Its host was configured by the operator, so it may be in a private network."""
    secrets: tuple[str, ...] = ()
    """Texts in `url` and `headers` that may not be shown."""
    cover: Media | None = None
    lyrics: str | None = None
    """LRC or plain text."""


class Source:
    """Base of every source."""

    name: str = ""
    """What operators call it; the `platform` of its songs. Small letters, digits and dashes."""
    one_host: bool = False
    """All it knows is on one host: while that does not answer, its songs wait, and it costs them nothing. Of other
    sources an address that does not answer is its song's own trouble."""

    def pools(self) -> Iterable[Pool]:
        """The pools there are."""
        raise NotOffered

    def playlists(self, pool: Pool) -> Iterable[Playlist]:
        """The playlists of a pool, in order. May be long: yield them as they arrive."""
        raise NotOffered

    def tracks(self, playlist: Playlist) -> Iterable[Track]:
        """The tracks of a playlist, in order. May be long: yield them as they arrive."""
        raise NotOffered

    def search(self, track: Track) -> Iterable[Track]:
        """The few tracks here that may be the same song, best first."""
        raise NotOffered

    def resolve(self, track: Track) -> Media:
        """Where the bytes of one of its own tracks are now. Raises Gone when it has been taken away."""
        raise NotOffered

    def close(self) -> None:
        """Let go of connections and child processes."""

    def can(self, verb: Verb) -> bool:
        return getattr(type(self), verb) is not getattr(Source, verb)
