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


@dataclass(frozen=True, slots=True)
class Reason:
    """A part of a because, for whoever says it in another language."""

    code: str
    says: str
    n: int = 0
    of: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    songs: int = 0
    downloaded: int = 0
    lost: int = 0
    """Songs that were downloaded and whose file is not in its library any more."""
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


def judge(numbers: Numbers) -> tuple[PlaylistStatus, list[Reason]]:
    if reasons := _errors(numbers):
        return PlaylistStatus.ERROR, reasons
    if reasons := _work(numbers):
        return PlaylistStatus.ACTIVE, reasons
    if reasons := _lacks(numbers):
        return PlaylistStatus.INCOMPLETE, reasons + _gone(numbers)
    return PlaylistStatus.COMPLETE, [_done(numbers), *_gone(numbers)]


def judge_pool(numbers: PoolNumbers) -> tuple[PlaylistStatus, list[Reason]]:
    """The worst of its own and its playlists' statuses."""
    own = {
        PlaylistStatus.ERROR: numbers.error
        and Reason("collect_failed", f"collecting failed: {numbers.error}", names=(numbers.error,)),
        PlaylistStatus.ACTIVE: numbers.collecting and Reason("collecting", "collecting"),
        PlaylistStatus.INCOMPLETE: not (numbers.collected or numbers.missing)
        and Reason("never_collected", "never collected"),
    }
    gone = [Reason("pool_gone", "the pool is gone upstream")] if numbers.missing else []
    total = sum(numbers.counts.values())
    for status, reason in own.items():
        count = numbers.counts[status]
        says = f"{count:,} of {_plural(total, 'playlist')} {_IS[status]}"
        some = Reason(f"some_{status}", says, count, total) if count else None
        if reasons := [each for each in (reason, some) if each]:
            return status, reasons + gone
    if not total:
        return PlaylistStatus.COMPLETE, [Reason("no_playlists", "no playlists"), *gone]
    says = f"all {_plural(total, 'playlist')} complete" if total > 1 else "its playlist is complete"
    return PlaylistStatus.COMPLETE, [Reason("all_complete", says, total, total), *gone]


def spoken(reasons: Sequence[Reason]) -> str:
    return "; ".join(reason.says for reason in reasons)


_IS = {
    PlaylistStatus.ERROR: "with errors",
    PlaylistStatus.ACTIVE: "at work",
    PlaylistStatus.INCOMPLETE: "not complete",
}


def _errors(numbers: Numbers) -> list[Reason]:
    reasons = []
    if numbers.sync_error:
        reasons.append(Reason("sync_failed", f"the sync failed: {numbers.sync_error}", names=(numbers.sync_error,)))
    if numbers.failed:
        codes = sorted(numbers.codes)
        shown = (*codes[:SHOWN], "…") if len(codes) > SHOWN else tuple(codes)
        reasons.append(
            Reason("failed", f"{_songs(numbers.failed)} failed: {', '.join(shown)}", numbers.failed, names=shown)
        )
    return reasons


def _work(numbers: Numbers) -> list[Reason]:
    reasons = [Reason("syncing", "syncing")] if numbers.syncing else []
    if count := numbers.downloading:
        reasons.append(Reason("downloading", f"downloading {_songs(count)}", count))
    if count := numbers.uploading:
        reasons.append(Reason("uploading", f"uploading {_songs(count)}", count))
    if count := numbers.pausing:
        reasons.append(Reason("pausing", f"pausing with {_songs(count)} unfinished", count))
    elif numbers.sync_pausing:
        reasons.append(Reason("sync_pausing", "pausing before its sync"))
    return reasons


def _lacks(numbers: Numbers) -> list[Reason]:
    reasons = [] if numbers.synced or numbers.missing else [Reason("never_synced", "never synced")]
    songs = numbers.songs
    if lacking := songs - numbers.downloaded - numbers.lost - numbers.gone:
        reasons.append(Reason("not_downloaded", f"{lacking} of {_songs(songs)} not downloaded yet", lacking, songs))
    if count := numbers.lost:
        says = f"the files of {count} of {_songs(songs)} are not in the library any more"
        reasons.append(Reason("files_missing", says, count, songs))
    if numbers.uploads and (local := numbers.downloaded + numbers.lost - numbers.uploaded):
        reasons.append(Reason("not_uploaded", f"{local} of {_songs(songs)} not uploaded yet", local, songs))
    if not reasons and (count := numbers.waiting):
        reasons.append(Reason("unfinished", f"{_songs(count)} unfinished in a job", count))
    if not reasons and numbers.sync_waiting:
        reasons.append(Reason("sync_unfinished", "its sync is unfinished in a job"))
    return reasons


def _done(numbers: Numbers) -> Reason:
    songs = numbers.songs
    if not songs:
        return Reason("no_songs", "no songs")
    code, done = ("stored", "downloaded and uploaded") if numbers.uploads else ("here", "downloaded")
    if numbers.gone:
        says = f"{numbers.downloaded} of {_songs(songs)} {done}"
    else:
        says = f"all {_songs(songs)} {done}" if songs > 1 else f"its song is {done}"
    return Reason(code, says, numbers.downloaded, songs)


def _gone(numbers: Numbers) -> list[Reason]:
    reasons = []
    if count := numbers.gone:
        reasons.append(Reason("gone", f"{_songs(count)} {'is' if count == 1 else 'are'} gone upstream", count))
    if numbers.missing:
        reasons.append(Reason("playlist_gone", "the playlist is gone upstream"))
    return reasons


def _songs(count: int) -> str:
    return _plural(count, "song")


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
