"""Is this the same song? What is known of both is compared: titles taken apart, artists, lengths.

A wrong song in somebody's library is worse than none: live, remix, cover and the like are kept apart, and in doubt the
answer is no. What cannot be known here: transliterated names of artists, and traditional against simplified characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dalsegno.catalog.letters import folded
from dalsegno.catalog.performers import TEXT_MAX, aliases, people, same_artist, shared, split_artists
from dalsegno.catalog.titles import name_of, same_title, version
from dalsegno.sources.model import Track

USABLE = 0.75
TITLE_MIN = 0.85
"""Below this it is another title, whoever sings it and however long it is."""


@dataclass(frozen=True, slots=True)
class Match:
    score: float
    """From 0 (another song) to 1 (nothing that is known speaks against it)."""
    usable: bool
    reason: str


def _without_artist(title: str, known: list[frozenset[str]]) -> tuple[str, str]:
    """ "Artist - Title", as videos are named: the title and the artist, if it is one of those."""
    head, dash, tail = title[:TEXT_MAX].partition(" - ")
    if dash and tail.strip() and any(same_artist(aliases(who), each) for who in split_artists(head) for each in known):
        return tail, head
    return title, ""


def _album_version(album: str) -> frozenset[str]:
    """Live albums seldom repeat it with each song."""
    found = version(album) & {"live", "karaoke", "instrumental", "cover"}
    return found | {"live"} if re.match(r"live (?:at|in|from|on)\b", folded(album)) else found


def _length(seconds: float | None) -> float | None:
    return seconds if seconds is not None and 0 < seconds < float("inf") else None


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def off_by(wanted: float | None, found: float | None) -> float | None:
    """How far two lengths are apart: 0 is near enough, above 1 is another recording. None: not both are known."""
    one, other = _length(wanted), _length(found)
    if one is None or other is None:
        return None
    apart, longer = abs(one - other), max(one, other)
    near, far = max(3.0, longer * 0.03), max(10.0, longer * 0.10)
    return 0.0 if apart <= near else 1.0 + (apart - far) / far if apart > far else (apart - near) / (far - near)


def _isrc(track: Track) -> str:
    return re.sub(r"[^A-Z0-9]", "", (track.isrc or "").upper())


def _kind(version: frozenset[str]) -> str:
    return " + ".join(sorted(version)) or "studio"


def _who(track: Track) -> str:
    return ", ".join(track.artists)[:80]


def score(wanted: Track, found: Track) -> Match:
    """How sure we are that `found` is the song `wanted`."""
    apart = off_by(wanted.duration, found.duration)
    lengths = f"runs {clock(found.duration or 0)}, wanted {clock(wanted.duration or 0)}"
    if _isrc(wanted) and _isrc(wanted) == _isrc(found):
        if apart is not None and apart > 2.5:
            return Match(0.0, False, f"same ISRC, but {lengths}")
        return Match(1.0, True, "same ISRC")
    theirs, ours = people(found.artists), people(wanted.artists)
    wanted_title, wanted_head = _without_artist(wanted.title, theirs)
    found_title, found_head = _without_artist(found.title, ours)
    if wanted_head and found_head:  # both name the artist in front: nothing to take away
        wanted_title, wanted_head, found_title, found_head = wanted.title, "", found.title, ""
    want, have = name_of(wanted_title), name_of(found_title)
    if not want.core or not have.core:
        return Match(0.0, False, "no title to compare")
    title = 1.0 if wanted.title == found.title else same_title(want, have)
    if title < TITLE_MIN:
        return Match(round(title * 0.6, 3), False, f'other title: "{found.title[:80]}"')
    kind, wanted_kind = have.version | _album_version(found.album), want.version | _album_version(wanted.album)
    if kind != wanted_kind:
        return Match(round(title * 0.5, 3), False, f"{_kind(kind)} version, wanted {_kind(wanted_kind)}")
    ours = people((*wanted.artists, *([wanted_head] if wanted_head else [])), want.guests)
    theirs = people((*found.artists, *([found_head] if found_head else [])), have.guests)
    artists = shared(ours, theirs) if ours and theirs else None
    if artists == 0.0:
        return Match(round(title * 0.4, 3), False, _other_artist(wanted, found))
    if apart is not None and apart > 1:
        return Match(round(title * 0.5, 3), False, lengths)
    total = title if artists is None else title * 0.65 + artists * 0.35
    reason = "same title and artist" if artists else "same title"
    if bool(ours) != bool(theirs):
        total *= 0.85 if apart is not None else 0.7
        reason = "same title, artist unknown"
    if apart:
        total *= 1 - 0.3 * apart
        reason = f"{reason}, but {lengths}"
    total = round(total, 3)
    if total < USABLE:
        return Match(total, False, f"too unsure: {reason}")
    return Match(total, True, reason)


def _other_artist(wanted: Track, found: Track) -> str:
    said = f"other artist: {_who(found)}, wanted {_who(wanted)}"
    scripts = {any(c.isalpha() and ord(c) > 0x2FF for c in _who(track)) for track in (wanted, found)}
    return f"{said} (one may be the other in another script; that cannot be known)" if len(scripts) > 1 else said
