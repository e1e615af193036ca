"""How values look on a page, in the reader's language."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from gettext import NullTranslations
from typing import Any

from dalsegno.web.console.i18n import N_

MARKS = {
    "queued": "○",
    "pending": "○",
    "incomplete": "○",
    "claimed": "◔",
    "running": "▶",
    "active": "▶",
    "pause_requested": "‖",
    "paused": "‖",
    "held": "‖",
    "interrupted": "↯",
    "completed": "✓",
    "succeeded": "✓",
    "complete": "✓",
    "applied": "✓",
    "closed": "✓",
    "completed_with_errors": "!",
    "failed": "✕",
    "error": "✕",
    "rejected": "✕",
    "open": "✕",
    "half_open": "◐",
    "skipped": "»",
    "canceled": "–",
}
"""A state is a shape and a word before it is a colour."""
WORDS = {
    "unknown": N_("unknown"),
    "queued": N_("queued"),
    "pending": N_("pending"),
    "claimed": N_("claimed"),
    "running": N_("running"),
    "pause_requested": N_("pausing"),
    "paused": N_("paused"),
    "held": N_("held"),
    "interrupted": N_("interrupted"),
    "completed": N_("completed"),
    "succeeded": N_("succeeded"),
    "applied": N_("applied"),
    "completed_with_errors": N_("completed, with errors"),
    "failed": N_("failed"),
    "rejected": N_("rejected"),
    "skipped": N_("skipped"),
    "canceled": N_("canceled"),
    "retried": N_("retried"),
    # phases of parse requests
    "searching": N_("searching"),
    "decoding": N_("decoding"),
    # of playlists
    "incomplete": N_("incomplete"),
    "active": N_("in progress"),
    "complete": N_("complete"),
    "error": N_("with errors"),
    # what breakers are
    "open": N_("open"),
    "half_open": N_("probing"),
    "closed": N_("closed"),
    # parts of a bar
    "done": N_("done"),
    "left": N_("left"),
    # of workers
    "busy": N_("busy"),
    "idle": N_("idle"),
    # kinds of pools and playlists
    "playlist": N_("playlist"),
    "playlists": N_("playlists"),
    "feed": N_("feed"),
    "feeds": N_("feeds"),
    "folder": N_("folder"),
    "file": N_("file"),
    "files": N_("files"),
    "album": N_("album"),
    "page": N_("page"),
    "pages": N_("pages"),
    # qualities of files
    "hi-res": N_("hi-res"),
    "lossless": N_("lossless"),
    "high": N_("high"),
    "standard": N_("standard"),
    "low": N_("low"),
}
STAGES = {
    "collect": N_("collect"),
    "sync": N_("sync"),
    "download": N_("download"),
    "upload": N_("upload"),
    "resolve": N_("resolve"),
    "search": N_("search"),
    "decode": N_("decode"),
}
TEMPLATES = {
    "full": N_("Everything"),
    "collect": N_("Collect only"),
    "sync": N_("Sync only"),
    "sync-download": N_("Sync + download"),
    "download": N_("Download only"),
    "upload": N_("Upload only"),
    "download-upload": N_("Download + upload"),
    "parse": N_("Parse request"),
}
"""The templates as English readers call them; in Chinese the seven of the catalog have the names of spec 000."""
BAR = 1000
THINNEST = 8
"""Of 1000: one failure among a million items is still seen."""
SEGMENTS = (
    ("done", ("succeeded",)),
    ("skipped", ("skipped",)),
    ("failed", ("failed",)),
    ("interrupted", ("interrupted",)),
    ("canceled", ("canceled",)),
    ("running", ("running",)),
)
STATE_OF = {"done": "succeeded", "left": "pending,claimed"}
"""What a part of a bar leads to, where it is called otherwise in a query."""


class Words:
    """The filters of one language."""

    def __init__(self, texts: NullTranslations) -> None:
        self._texts = texts
        self.english = type(texts) is NullTranslations
        """Then whatever is said anywhere is in the reader's language."""

    def text(self, text: str, /, **values: Any) -> str:
        found = self._texts.gettext(text)
        return found % values if values else found

    def plural(self, one: str, many: str, n: int, /, **values: Any) -> str:
        return self._texts.ngettext(one, many, n) % {"n": number(n), **values}

    def word(self, status: str) -> str:
        return self.text(WORDS[status]) if status in WORDS else status.replace("_", " ")

    def stage(self, key: str) -> str:
        return self.text(STAGES[key]) if key in STAGES else key

    def template(self, name: str) -> str:
        return self.text(TEMPLATES[name]) if name in TEMPLATES else name

    def rate(self, per_second: float | None) -> str:
        if not per_second:
            return ""
        if per_second >= 0.95:
            return self.text("%(count)s/s", count=f"{per_second:.1f}")
        return self.text("%(count)s/min", count=f"{per_second * 60:.1f}")

    def span(self, seconds: float | None) -> str:
        if seconds is None:
            return ""
        if 0 < seconds < 0.9995:
            return self.text("%(ms)s ms", ms=f"{seconds * 1000:.0f}")
        if seconds < 60:
            return self.text("%(s)s s", s=f"{max(0, seconds):.0f}")
        minutes, rest = divmod(round(seconds), 60)
        if minutes < 60:
            return self.text("%(min)s min %(s)s s", min=minutes, s=f"{rest:02}")
        hours, minutes = divmod(minutes, 60)
        if hours < 48:
            return self.text("%(h)s h %(min)s min", h=hours, min=f"{minutes:02}")
        if hours < 240:
            return self.text("%(d)s d %(h)s h", d=hours // 24, h=hours % 24)
        return self.text("%(d)s d", d=number(hours / 24))

    def share(self, done: int | None, whole: int | None) -> str:
        """Bytes of bytes, the unit said once where it is the same: `5.5 of 5.8 MB`."""
        if not done:
            return ""
        if not whole:
            return size(done)
        first, last = size(done), size(whole)
        count, _, unit = first.partition(" ")
        return self.text("%(done)s of %(whole)s", done=count if last.endswith(f" {unit}") else first, whole=last)

    def filters(self) -> dict[str, Any]:
        own = (self.word, self.stage, self.template, self.rate, self.span, self.share)
        return {each.__name__: each for each in (*own, mark, bare, size, utc, iso, number, percent, segments, tally)}


def mark(status: str) -> str:
    return MARKS.get(status, "○")


def bare(message: str | None, name: str) -> str:
    """An error without what it was about, where that stands beside it."""
    said, about = message or "", f"{name.replace(' – ', ' - ')}: "
    before, found, rest = said.partition(about)
    return rest if found and before in ("", "downloading ", "uploading ") else said


def size(count: float | None) -> str:
    if count is None:
        return ""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")


def number(count: float) -> str:
    return f"{count:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def percent(fraction: float | None) -> str:
    """Not 100 before it is all of it."""
    return "" if fraction is None else f"{min(int(fraction * 100), 100)} %"


def segments(counts: Mapping[str, int], expected: int | None = None) -> list[tuple[str, int, int]]:
    """Counts by status as a bar's (class, x, width), 1000 wide; what is left is the ground it lies on."""
    parts = [(name, sum(counts.get(key, 0) for key in keys)) for name, keys in SEGMENTS]
    whole = max(expected or 0, counts.get("total", 0), sum(count for _, count in parts), 1)
    widths = {name: max(THINNEST, round(BAR * count / whole)) for name, count in parts if count}
    excess = sum(widths.values()) - BAR
    if excess > 0:
        widths[max(widths, key=lambda name: widths[name])] -= excess
    found, x = [], 0
    for name, width in widths.items():
        found.append((name, x, width))
        x += width
    return found


def tally(counts: Mapping[str, int], expected: int | None = None) -> list[tuple[str, int, str]]:
    """The numbers under a bar that are worth saying, each with the states it stands for."""
    said = [(name, sum(counts.get(key, 0) for key in keys)) for name, keys in SEGMENTS]
    left = max(expected or 0, counts.get("total", 0)) - sum(count for _, count in said)
    return [(name, count, STATE_OF.get(name, name)) for name, count in (*said, ("left", left)) if count > 0]
