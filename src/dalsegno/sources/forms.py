"""Pools, playlists, tracks and media as JSON, the way external sources write them. docs/sources.md lists the fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from dalsegno.sources.hosts import Hosts
from dalsegno.sources.model import Media, Playlist, Pool, Track, Unusable
from dalsegno.sources.urls import secrets_of, target

SNAPSHOT_MAX = 64 * 1024
T = TypeVar("T", str, int, float)


def written(thing: Pool | Playlist | Track) -> dict[str, Any]:
    return {name: value for name, value in asdict(thing).items() if value not in (None, "", (), {})}


def pool(form: Mapping[str, Any]) -> Pool:
    return Pool(
        id=_needed(form, "id"),
        name=_needed(form, "name"),
        kind=_text(form, "kind") or "playlists",
        url=_text(form, "url") or None,
        snapshot=_snapshot(form),
    )


def playlist(form: Mapping[str, Any]) -> Playlist:
    return Playlist(
        id=_needed(form, "id"),
        name=_needed(form, "name"),
        kind=_text(form, "kind") or "playlist",
        description=_text(form, "description"),
        owner=_text(form, "owner"),
        url=_text(form, "url") or None,
        count=_int(form, "count"),
        snapshot=_snapshot(form),
    )


def track(form: Mapping[str, Any]) -> Track:
    artists = form.get("artists") or ()
    if isinstance(artists, str):
        artists = (artists,)
    if not isinstance(artists, list | tuple) or not all(isinstance(each, str) for each in artists):
        raise _bad("artists")
    return Track(
        id=_needed(form, "id"),
        title=_needed(form, "title"),
        artists=tuple(_clean(each) for each in artists if each),
        album=_text(form, "album"),
        track_no=_int(form, "track_no"),
        disc_no=_int(form, "disc_no"),
        year=_int(form, "year"),
        duration=_number(form, "duration"),
        isrc=_text(form, "isrc") or None,
        snapshot=_snapshot(form),
    )


def media(form: Mapping[str, Any], hosts: Hosts, root: Path | None) -> Media:
    """A path only where the operator gave this source a folder, and only inside it."""
    url, path = _text(form, "url"), _text(form, "path")
    if url:
        target(url)
    elif path:
        _inside(path, root)
    else:
        raise _bad("url")
    headers = form.get("headers") or {}
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise _bad("headers")
    hidden = form.get("secrets") or ()
    if not isinstance(hidden, list | tuple):
        raise _bad("secrets")
    private = [value for name, value in headers.items() if name.lower() in ("authorization", "cookie")]
    cover, lossless, suffix = form.get("cover"), form.get("lossless"), _text(form, "suffix").lower()
    return Media(
        url=url or None,
        path=Path(path).resolve() if not url else None,
        headers=headers,
        size=_int(form, "size"),
        suffix=suffix if suffix.startswith(".") or not suffix else f".{suffix}",
        bitrate=_int(form, "bitrate"),
        lossless=lossless if isinstance(lossless, bool) else None,
        duration=_number(form, "duration"),
        expires_at=time_of(form.get("expires_at")),
        trusted=bool(url) and hosts.trust(url),
        secrets=(*secrets_of(url), *private, *(str(each) for each in hidden if each)),
        cover=media(cover, hosts, root) if isinstance(cover, dict) else None,
        lyrics=_text(form, "lyrics") or None,
    )


def _inside(path: str, root: Path | None) -> None:
    if root is None or "\0" in path or not Path(path).resolve().is_relative_to(root.resolve()):
        raise Unusable("It names a file outside the folder it was given.", code="path_refused")


def _needed(form: Mapping[str, Any], name: str) -> str:
    value = form.get(name)
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(form, name)
    if not text:
        raise _bad(name)
    return text


def _text(form: Mapping[str, Any], name: str) -> str:
    value = form.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _bad(name)
    return _clean(value)


def _clean(text: str) -> str:
    """Halves of surrogate pairs and zeros, which JSON allows, are nothing a database takes."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def _int(form: Mapping[str, Any], name: str) -> int | None:
    value = _number(form, name)
    return None if value is None else int(value)


def _number(form: Mapping[str, Any], name: str) -> float | None:
    value = form.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise _bad(name)
    return value


def _snapshot(form: Mapping[str, Any]) -> dict[str, Any]:
    value = form.get("snapshot") or {}
    if not isinstance(value, dict) or len(json.dumps(value)) > SNAPSHOT_MAX:
        raise _bad("snapshot")
    return value


def time_of(value: Any) -> datetime | None:
    if value is None:
        return None
    try:
        when = datetime.fromisoformat(value) if isinstance(value, str) else datetime.fromtimestamp(value, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise _bad("expires_at") from None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _bad(name: str) -> Unusable:
    return Unusable(f'What it answers for "{name}" is missing or of the wrong kind.', code="bad_answer")
