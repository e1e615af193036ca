"""How moments, numbers and lists are said."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from dalsegno.engine.submit import PRIORITIES

CAP = 1000
"""Lines are counted up to here: more are "more than 1,000"."""
SHOWN = 5
"""Most names in one sentence."""
LISTED = 10 * SHOWN
"""Most of them in a gate's data."""
SWEEP = "within 5 s"
"""How soon the engine looks for what was left half done."""


def clock_text(moment: datetime, now: datetime) -> str:
    """`14:05:20 UTC`, with the date where it is another day."""
    moment = moment.astimezone(UTC)
    return f"{moment:%H:%M:%S} UTC" if moment.date() == now.date() else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def when(moment: datetime, now: datetime) -> str:
    """`12 min ago (14:03:20 UTC)`, `in 3 h (17:15:00 UTC)`."""
    seconds = (moment - now).total_seconds()
    length = span(abs(seconds))
    relative = "now" if abs(seconds) < 1 else f"in {length}" if seconds > 0 else f"{length} ago"
    return f"{relative} ({clock_text(moment, now)})"


def span(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size or (seconds >= size and unit != "days"):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def by_itself(until: datetime | None, now: datetime, command: str) -> str:
    """A command, or the moment for which somebody has set it already."""
    if until is None:
        return command
    if until <= now:
        return f"by itself, any moment now; or: {command}"
    return f"by itself at {clock_text(until, now)}; or now: {command}"


def put_before(priority: int, job_id: int) -> str:
    """The command that puts a job before all of this priority."""
    return f"dalsegno priority {job_id} {max(priority - 1, PRIORITIES.start)}"


def count(number: int, noun: str, capped: bool = False) -> str:
    if capped and number > CAP:
        return f"more than {CAP:,} {noun}s"
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def are(number: int, noun: str, verb: str = "is", verbs: str = "are", capped: bool = False) -> str:
    return f"{count(number, noun, capped)} {verb if number == 1 else verbs}"


def listed(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def said(text: str | None, most: int = 200) -> str:
    """Somebody else's words, on one line and ready to be followed by ours."""
    line = " ".join((text or "no reason was given").split())
    return (line if len(line) <= most else line[: most - 1] + "…").rstrip(".")
