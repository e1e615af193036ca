"""What the reads say in codes, said in the reader's language; where a code is unknown, in the read's own words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dalsegno.insight.attention import Attention
from dalsegno.insight.dashboard import Eta
from dalsegno.insight.pools import Verdict
from dalsegno.web.console.i18n import N_
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
FIXES = {
    "resume": N_("Resume"),
    "probe": N_("Try one call now"),
    "reset": N_("Close it"),
    "limit": N_("Change the limit"),
    "config": N_("Open the settings"),
}
BASES = {
    "last_5_minutes": N_("from the last 5 minutes"),
    "since_start": N_("from the average since the start"),
}


@dataclass(frozen=True, slots=True)
class Told:
    title: str
    text: str


def attention(words: Words, entry: Attention) -> Told:
    if entry.code not in ATTENTION:
        return Told(entry.says, "")
    title = words.text(ATTENTION[entry.code], **{**entry.data, "": ""})
    if entry.code == "config_invalid":
        return Told(title, f"{entry.says} {words.text(HINTS[entry.code])}")
    if entry.code == "disk_soon_full":
        free, keep = size(entry.data["free"]), size(entry.data["keep"])
        return Told(title, words.text("%(free)s are free, and %(keep)s must stay so.", free=free, keep=keep))
    if entry.code in HINTS:
        return Told(title, words.text(HINTS[entry.code]))
    reason, by = entry.data.get("reason"), entry.data.get("by")
    if not reason:
        return Told(title, "")
    code, colon, rest = str(reason).partition(": ")
    reason = rest if colon and code == entry.code else reason
    engine = by in (None, "service", "engine")
    return Told(title, str(reason) if engine else words.text("%(reason)s (by %(by)s)", reason=reason, by=by))


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
            return words.text("nothing to do")
        case _ if first["seconds"] and last["seconds"]:
            return words.text("%(first)s and %(last)s keep pace (%(slow)s vs %(quick)s)", **values)
        case _:
            return words.text("not measured yet")


def telling(words: Words) -> dict[str, Callable[..., Any]]:
    """For templates: `told.attention(entry)`."""
    return {
        "attention": lambda entry: attention(words, entry),
        "fix": lambda action, otherwise: fix(words, action, otherwise),
        "eta": lambda found: eta(words, found),
        "verdict": lambda found: verdict(words, found),
    }
