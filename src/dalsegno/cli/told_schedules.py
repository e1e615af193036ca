"""How schedules and their runs look to a person."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from dalsegno.insight.schedules import RunLine, ScheduleLine

UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
CATCH_UP = {
    "skip": "skipped",
    "one": "made up for by one run",
    "all": "made up for one by one, up to {most:,}",
}
OVERLAP = {
    "skip": "skipped while the job before it is unfinished",
    "queue": "started when the job before it has ended",
    "allow": "started, whatever the job before it does",
}


def there(at: datetime, zone: str) -> str:
    """On the schedule's own clock."""
    try:
        return at.astimezone(ZoneInfo(zone)).strftime("%a %Y-%m-%d %H:%M %Z")
    except (OSError, ValueError, KeyError):
        return at.strftime("%a %Y-%m-%d %H:%M UTC")


def left(at: datetime, now: datetime) -> str:
    """`in 3 hours`, `2 days ago`, `now`."""
    seconds = (at - now).total_seconds()
    for size, unit in UNITS:
        if abs(seconds) >= size:
            count = round(abs(seconds) / size)
            said = f"{count} {unit}{'s' if count != 1 else ''}"
            return f"in {said}" if seconds > 0 else f"{said} ago"
    return "now"


def line_of(line: ScheduleLine, now: datetime) -> Sequence[str]:
    from dalsegno.cli.words import escaped

    it = line.schedule
    return (
        escaped(it.name), escaped(it.workflow), escaped(f"{it.cron} ({it.time_zone})"), escaped(next_run(line, now)),
        last_run(line.last, now),
    )  # fmt: skip


def next_run(line: ScheduleLine, now: datetime) -> str:
    it = line.schedule
    if it.paused_at is not None:
        return f"paused by {it.paused_by}: {it.pause_reason}"
    if it.next_at is None:
        return "never again"
    if it.next_at <= now:
        return "due now"
    return f"{left(it.next_at, now)}, {there(it.next_at, it.time_zone)}"


def last_run(last: RunLine | None, now: datetime) -> str:
    from dalsegno.cli.words import coloured, escaped

    if last is None:
        return "none yet"
    told = f"{coloured(last.run.outcome)} {left(last.run.due_at, now)}"
    if last.run.job_id is not None:
        return f"{told}, job {last.run.job_id}" + (f" {coloured(last.job_status)}" if last.job_status else "")
    return f"{told}: {escaped(last.run.message or last.run.reason)}"


def previewed(console: Console, line: ScheduleLine, now: datetime, done: str) -> None:
    """What was done, and when it will be due."""
    it = line.schedule
    console.print(done, markup=False)
    if it.paused_at is not None:
        console.print(f"It starts nothing until somebody resumes it: dalsegno schedule resume {it.name}", markup=False)
        return
    console.print(f"{line.says()} ({it.time_zone}):", markup=False)
    times(console, line.upcoming(now), it.time_zone, now)


def times(console: Console, runs: Iterable[datetime], zone: str, now: datetime) -> None:
    for at in runs:
        console.print(f"  {there(at, zone)}  {left(at, now)}", markup=False)


def facts(console: Console, line: ScheduleLine, now: datetime) -> None:
    from dalsegno.cli.words import moment

    it = line.schedule
    told = {
        "starts": it.workflow + "".join(f", {key} {json.dumps(value)}" for key, value in it.request.items()),
        "priority": str(it.priority),
        "when": f"{it.cron} ({it.time_zone}): {line.says()}",
        "missed": "runs that were missed are " + CATCH_UP[it.catch_up].format(most=it.catch_up_most),
        "overlap": f"a run is {OVERLAP[it.overlap]}",
        "changed": f"{moment(it.updated_at)} by {it.updated_by}",
        "next": next_run(line, now),
    }
    console.print(f"Schedule {it.name}", markup=False, style="bold")
    for name, value in told.items():
        console.print(f"  {name:<10} {value}", markup=False)
    for at in line.upcoming(now)[1:]:
        console.print(f"  {'then':<10} {left(at, now)}, {there(at, it.time_zone)}", markup=False)


def run_rows(line: ScheduleLine, runs: Iterable[RunLine]) -> list[Sequence[str]]:
    from dalsegno.cli.words import coloured, escaped

    zone = line.schedule.time_zone
    rows: list[Sequence[str]] = []
    for each in runs:
        run = each.run
        due = there(run.due_at, zone)
        if run.last_due_at is not None:
            due = f"{run.count:,} from {due} to {there(run.last_due_at, zone)}"
        became = coloured(run.outcome) + (f", {coloured(each.job_status)}" if each.job_status else "")
        asked = f"Asked for by {run.requested_by}." if run.requested_by else ""
        rows.append((due, became, str(run.job_id or ""), escaped(" ".join(filter(None, (asked, run.message))))))
    return rows
