"""From the numbers of a playlist to its status and its because. Pure: the numbers come from `status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class PlaylistStatus(StrEnum):
    """Worst first: the first that holds is the status."""

    ERROR = "error"
    ACTIVE = "active"
    INCOMPLETE = "incomplete"
    COMPLETE = "complete"


TITLES = {
    PlaylistStatus.ERROR: "异常",
    PlaylistStatus.ACTIVE: "进行中",
    PlaylistStatus.INCOMPLETE: "未完成",
    PlaylistStatus.COMPLETE: "已完成",
}

SHOWN = 3
"""Error codes told in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    songs: int = 0
    downloaded: int = 0
    uploaded: int = 0
    uploads: bool = False
    """Whether a song must be uploaded to be done."""
    gone: int = 0
    """Songs missing upstream of which there is no file."""
    synced: bool = True
    missing: bool = False
    """The playlist itself is gone upstream."""
    failed: int = 0
    codes: Sequence[str] = ()
    sync_error: str | None = None
    syncing: bool = False
    downloading: int = 0
    uploading: int = 0
    waiting: int = 0
    """Songs that are an unfinished item of some job, `pausing` those of a job that is being paused."""
    pausing: int = 0
    sync_waiting: bool = False
    sync_pausing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNumbers:
    counts: Mapping[PlaylistStatus, int]
    """Its playlists by status."""
    collected: bool
    missing: bool
    collecting: bool
    error: str | None


def judge(numbers: Numbers) -> tuple[PlaylistStatus, str]:
    if reasons := _errors(numbers):
        return PlaylistStatus.ERROR, "; ".join(reasons)
    if reasons := _work(numbers):
        return PlaylistStatus.ACTIVE, "; ".join(reasons)
    if reasons := _lacks(numbers):
        return PlaylistStatus.INCOMPLETE, "; ".join(reasons + _gone(numbers))
    return PlaylistStatus.COMPLETE, "; ".join([_done(numbers), *_gone(numbers)])


def judge_pool(numbers: PoolNumbers) -> tuple[PlaylistStatus, str]:
    """The worst of its own and its playlists' statuses."""
    own = {
        PlaylistStatus.ERROR: numbers.error and f"collecting failed: {numbers.error}",
        PlaylistStatus.ACTIVE: numbers.collecting and "collecting",
        PlaylistStatus.INCOMPLETE: not (numbers.collected or numbers.missing) and "never collected",
    }
    gone = ["the pool is gone upstream"] if numbers.missing else []
    total = sum(numbers.counts.values())
    for status, reason in own.items():
        count = numbers.counts[status]
        some = f"{count:,} of {_plural(total, 'playlist')} {_IS[status]}" if count else None
        if reasons := [each for each in (reason, some) if each]:
            return status, "; ".join(reasons + gone)
    done = f"all {_plural(total, 'playlist')} complete" if total > 1 else "its playlist is complete"
    return PlaylistStatus.COMPLETE, "; ".join([done if total else "no playlists", *gone])


_IS = {
    PlaylistStatus.ERROR: "with errors",
    PlaylistStatus.ACTIVE: "at work",
    PlaylistStatus.INCOMPLETE: "not complete",
}


def _errors(numbers: Numbers) -> list[str]:
    reasons = [f"the sync failed: {numbers.sync_error}"] if numbers.sync_error else []
    if numbers.failed:
        codes = sorted(numbers.codes)
        more = ", …" if len(codes) > SHOWN else ""
        reasons.append(f"{_songs(numbers.failed)} failed: {', '.join(codes[:SHOWN])}{more}")
    return reasons


def _work(numbers: Numbers) -> list[str]:
    reasons = ["syncing"] if numbers.syncing else []
    if numbers.downloading:
        reasons.append(f"downloading {_songs(numbers.downloading)}")
    if numbers.uploading:
        reasons.append(f"uploading {_songs(numbers.uploading)}")
    if numbers.pausing:
        reasons.append(f"pausing with {_songs(numbers.pausing)} unfinished")
    elif numbers.sync_pausing:
        reasons.append("pausing before its sync")
    return reasons


def _lacks(numbers: Numbers) -> list[str]:
    reasons = [] if numbers.synced or numbers.missing else ["never synced"]
    if lacking := numbers.songs - numbers.downloaded - numbers.gone:
        reasons.append(f"{lacking} of {_songs(numbers.songs)} not downloaded yet")
    if numbers.uploads and (local := numbers.downloaded - numbers.uploaded):
        reasons.append(f"{local} of {_songs(numbers.songs)} not uploaded yet")
    if not reasons and numbers.waiting:
        reasons.append(f"{_songs(numbers.waiting)} unfinished in a job")
    if not reasons and numbers.sync_waiting:
        reasons.append("its sync is unfinished in a job")
    return reasons


def _done(numbers: Numbers) -> str:
    if not numbers.songs:
        return "no songs"
    done = "downloaded and uploaded" if numbers.uploads else "downloaded"
    if numbers.gone:
        return f"{numbers.downloaded} of {_songs(numbers.songs)} {done}"
    return f"all {_songs(numbers.songs)} {done}" if numbers.songs > 1 else f"its song is {done}"


def _gone(numbers: Numbers) -> list[str]:
    reasons = []
    if numbers.gone:
        reasons.append(f"{_songs(numbers.gone)} {'is' if numbers.gone == 1 else 'are'} gone upstream")
    if numbers.missing:
        reasons.append("the playlist is gone upstream")
    return reasons


def _songs(count: int) -> str:
    return _plural(count, "song")


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
