"""What the reads say in codes, said in the reader's language; where a code is unknown, in the read's own words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dalsegno.insight.attention import Attention
from dalsegno.insight.dashboard import ActiveJob, Eta
from dalsegno.insight.health.kinds import GROUPS, KINDS
from dalsegno.insight.holds import HoldLine
from dalsegno.insight.pools import Verdict
from dalsegno.insight.progress import held
from dalsegno.web.console.health import alarm
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.meanings import reason, refusal, stopped
from dalsegno.web.console.words import Words, size

ATTENTION = {
    "disk_full": N_("The disk is full; job %(job_id)s is paused"),
    "library_missing": N_("The library is not there; job %(job_id)s is paused"),
    "library_unwritable": N_("The library cannot be written to; job %(job_id)s is paused"),
    "job_recovered": N_("Job %(job_id)s was interrupted and waits for you"),
    "job_paused": N_("Job %(job_id)s is paused"),
    "everything_held": N_("Everything is held"),
    "service_held": N_("Service %(name)s is held"),
    "lane_held": N_("Lane %(name)s is held"),
    "stage_held": N_("Stage %(name)s of job %(job_id)s is paused"),
    "breaker_open": N_("Calls to %(name)s are stopped"),
    "limit_zero": N_("The limit of %(name)s is 0: nothing begins"),
    "process_stale": N_("Process %(pid)s on %(node)s gives no sign"),
    "no_engine": N_("No engine is at work"),
    "config_invalid": N_("The settings file on disk is not valid"),
    "disk_soon_full": N_("The disk of the library is almost full"),
}
HINTS = {
    "process_stale": N_("What it held is about to be taken back."),
    "no_engine": N_("Jobs wait until one runs: dalsegno serve, or dalsegno agent."),
    "config_invalid": N_("The last valid settings stay in force."),
}
HELD = {
    "everything": N_("everything is held: %(why)s (by %(by)s)"),
    "service": N_("service %(name)s is held: %(why)s (by %(by)s)"),
    "lane": N_("lane %(name)s is held: %(why)s (by %(by)s)"),
    "job": N_("%(why)s (by %(by)s)"),
    "stage": N_("stage %(name)s is paused: %(why)s (by %(by)s)"),
}
FIXES = {
    "resume": N_("Resume"),
    "probe": N_("Try one call now"),
    "reset": N_("Close it"),
    "limit": N_("Change the limit"),
    "config": N_("Open the settings"),
    "system": N_("Look at the system"),
}
BASES = {
    "last_5_minutes": N_("from the last 5 minutes"),
    "since_start": N_("from the average since the start"),
}


@dataclass(frozen=True, slots=True)
class Told:
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Because:
    """A reason; `at` follows its text, which is a page's to say: in the reader's zone."""

    text: str
    at: datetime | None = None


def attention(words: Words, entry: Attention) -> Told:
    if entry.code in KINDS and entry.code not in ATTENTION:
        return Told(words.text(GROUPS[KINDS[entry.code].group]), " → ".join(alarm(words, entry.code, entry.data)))
    if entry.code not in ATTENTION:
        return Told(entry.says, "")
    title = words.text(ATTENTION[entry.code], **{**entry.data, "": ""})
    if entry.code == "config_invalid":
        return Told(title, f"{refusal(words, entry.code, entry.says)} {words.text(HINTS[entry.code])}")
    if entry.code == "disk_soon_full":
        free, keep = size(entry.data["free"]), size(entry.data["keep"])
        return Told(title, words.text("%(free)s are free, and %(keep)s must stay so.", free=free, keep=keep))
    if entry.code in HINTS:
        return Told(title, words.text(HINTS[entry.code]))
    said, by = str(entry.data.get("reason") or ""), entry.data.get("by")
    if entry.code == "breaker_open":
        return Told(title, stopped(words, said, entry.data["kind"], entry.data["tripped_by"]))
    code, colon, rest = said.partition(": ")
    said = rest if colon and code == entry.code else reason(words, said, by)
    plain = not said or by in (None, "service", "engine")
    return Told(title, said if plain else words.text("%(reason)s (by %(by)s)", reason=said, by=by))


def why(words: Words, job: ActiveJob) -> list[Because]:
    """Why a job does not run."""
    row, cause = job.detail.job, job.progress.cause
    match cause:
        case "paused":
            return [_held(words, hold) for hold in job.detail.holds if hold.level == "job"]
        case "scheduled":
            return [Because(words.text("scheduled for"), row.scheduled_at)]
        case "held":
            return [_held(words, hold) for hold in held(job.detail)]
        case _ if words.english:
            return [Because(job.progress.reason or "")]
        case "canceling":
            return [Because(words.text("its job is being canceled"))]
        case "turn":
            return [Because(words.text("waits for its turn in lane %(lane)s", lane=row.lane))]
        case "error":
            return [Because(refusal(words, row.error_code, row.error_message))]
    return []


def _held(words: Words, hold: HoldLine) -> Because:
    values = {"name": hold.name, "job_id": hold.job_id, "why": reason(words, hold.reason, hold.by), "by": hold.by}
    told = words.text(HELD[hold.level], **values)
    return Because(told if hold.until is None else words.text("%(what)s, until", what=told), hold.until)


def fix(words: Words, action: str, otherwise: str) -> str:
    return words.text(FIXES[action]) if action in FIXES else otherwise


def eta(words: Words, found: Eta | None) -> str:
    if found is None or found.seconds < 1:
        return ""
    left, basis = words.span(found.seconds), words.text(BASES[found.basis])
    return words.text(
        "about %(span)s left in %(stage)s, %(basis)s", span=left, stage=words.stage(found.stage), basis=basis
    )


def verdict(words: Words, found: Verdict) -> str:
    phases: Any = found.data.get("phases") or []
    if len(phases) < 2:
        return found.says
    *before, last = phases
    first = max(before, key=lambda phase: phase["seconds"])
    values = {
        "first": words.stage(first["name"]),
        "last": words.stage(last["name"]),
        "slow": words.span(first["seconds"]),
        "quick": words.span(last["seconds"]),
    }
    match found.code:
        case "resolve_bound":
            return words.text("%(last)s starved: %(first)s is the bottleneck (%(slow)s vs %(quick)s)", **values)
        case "transfer_bound":
            return words.text("%(first)s waits: %(last)s is the bottleneck (%(slow)s vs %(quick)s)", **values)
        case "idle":
            return words.text("nothing in hand")
        case _ if first["seconds"] and last["seconds"]:
            return words.text("%(first)s and %(last)s keep pace (%(slow)s vs %(quick)s)", **values)
        case _:
            return words.text("not measured yet")


def telling(words: Words) -> dict[str, Callable[..., Any]]:
    """For templates: `told.attention(entry)`."""
    return {
        "attention": lambda entry: attention(words, entry),
        "why": lambda job: why(words, job),
        "fix": lambda action, otherwise: fix(words, action, otherwise),
        "eta": lambda found: eta(words, found),
        "verdict": lambda found: verdict(words, found),
    }
