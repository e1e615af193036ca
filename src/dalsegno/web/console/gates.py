"""Gates in the reader's language, each closed one with the button that opens it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dalsegno.insight.explain.gate import Explanation, Gate
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.meanings import reason, refusal
from dalsegno.web.console.words import Words, number

OPEN = {
    "database": N_("The database does what it is asked."),
    "finished": N_("It is not finished."),
    "cancel": N_("Its job is not being canceled."),
    "all_held": N_("Not everything is held."),
    "lane_held": N_("Its lane is not held."),
    "scheduled": N_("It is not scheduled for later."),
    "lane_turn": N_("Its job was admitted to its lane."),
    "job_paused": N_("Its job is not paused."),
    "depends": N_("What its stage depends on has begun or is done."),
    "planned": N_("The items of its stage are listed."),
    "stage_paused": N_("Its stage is not paused by itself."),
    "stage_stopped": N_("No failure has closed its stage."),
    "alive": N_("A process is alive."),
    "service_held": N_("Its service is not held."),
    "offered": N_("A live process offers its service."),
    "breaker": N_("The breaker of its service lets calls through."),
    "limit": N_("The limit of its service has room."),
    "node_limit": N_("The limit of its node has room."),
    "interrupted": N_("It is not interrupted."),
    "due": N_("It is due."),
    "waits": N_("It waits for no limit or breaker."),
    "order": N_("It is next in line."),
    "empty": N_("There is something to do."),
    "claimed": N_("A process has taken it."),
    "running": N_("It runs now."),
    "work": N_("There is something to do."),
}
SHUT = {
    "database": N_("the database is away, full or read-only"),
    "cancel": N_("its job is being canceled"),
    "all_held": N_("everything is held"),
    "lane_held": N_("lane %(lane)s is held"),
    "scheduled": N_("its job is scheduled for later"),
    "stage_paused": N_("stage %(stage)s is paused: %(why)s"),
    "stage_stopped": N_("a failure stopped stage %(stage)s"),
    "planned": N_("its items are not listed yet"),
    "alive": N_("its node has no live process"),
    "service_held": N_("its service is held"),
    "offered": N_("no live process offers %(service)s"),
    "breaker": N_("calls to %(name)s are stopped"),
    "interrupted": N_("it was interrupted: %(error)s"),
    "empty": N_("nothing is left to do"),
    "work": N_("nothing is ready for it"),
}
TITLES = {
    "database": N_("Database"),
    "finished": N_("End"),
    "cancel": N_("Cancel"),
    "all_held": N_("Hold on everything"),
    "lane_held": N_("Hold on the lane"),
    "scheduled": N_("Schedule"),
    "lane_turn": N_("Turn in the lane"),
    "job_paused": N_("Pause of the job"),
    "depends": N_("Stages before it"),
    "planned": N_("List of items"),
    "stage_paused": N_("Pause of the stage"),
    "stage_stopped": N_("Stop at a failure"),
    "alive": N_("Live process"),
    "service_held": N_("Hold on the service"),
    "offered": N_("Workers"),
    "breaker": N_("Breaker"),
    "limit": N_("Limit"),
    "node_limit": N_("Limit of the node"),
    "interrupted": N_("Interruption"),
    "due": N_("Due time"),
    "waits": N_("Line"),
    "order": N_("Order"),
    "empty": N_("Work"),
    "claimed": N_("Claim"),
    "running": N_("Run"),
    "work": N_("Work"),
}
LATER = N_("itself, after a while")
BY_ITSELF = re.compile(r"^by itself( at [\d :-]+ UTC)?")
"""What pages put behind "opened by", the moment beside it in the reader's zone."""
OPENS = {
    ("database", "database_unavailable"): N_("the database, when it answers again"),
    ("database", "database_full"): N_("space on the disk that holds the database"),
    ("database", "database_read_only"): N_("a database that may be written"),
    ("finished", None): N_("a retry, or a new job"),
    ("cancel", None): N_("nothing: a canceled job does not come back"),
    ("all_held", None): N_("a resume of everything"),
    ("lane_held", None): N_("a resume of the lane"),
    ("lane_turn", "full"): N_("the end of a job before it"),
    ("lane_turn", "no_engine"): N_("an engine: dalsegno serve, or dalsegno agent"),
    ("job_paused", None): N_("a resume of the job"),
    ("depends", "stages"): N_("the end of the stages before it"),
    ("depends", "follows"): N_("the next item of the stage before it"),
    ("planned", "no_process"): N_("a process that offers the service"),
    ("stage_paused", None): N_("a resume of the stage"),
    ("stage_stopped", None): N_("a retry of what failed"),
    ("alive", None): N_("a process on that machine: dalsegno agent"),
    ("service_held", None): N_("a resume of the service"),
    ("offered", None): N_("a process that offers the service"),
    ("breaker", None): N_("a call that succeeds, or whoever closes it"),
    ("limit", "concurrent"): N_("the end of a call"),
    ("node_limit", "concurrent"): N_("the end of a call"),
    ("work", None): N_("an item that is ready for it"),
}
"""By gate and the reason for which it is closed. All others open by themselves."""


@dataclass(frozen=True, slots=True)
class Fix:
    """What opens a gate: a form (`post`) or a place to go."""

    says: str
    path: str
    post: bool = True
    fields: Mapping[str, str] = field(default_factory=dict)


def brief(words: Words, gate: Gate) -> str:
    """Why, in the few words that a row has room for."""
    data: dict[str, Any] = {"lane": "", "stage": "", "service": "", "name": "", "error": "", **gate.data}
    data["why"] = reason(words, data.get("why"), data.get("by"))
    data["error"] = refusal(words, data.get("error_code"), data["error"])
    stage = words.stage(str(data["stage"]))
    match gate.code:
        case "finished":
            return str(data["error"] or words.word(str(data.get("status", "completed"))))
        case "lane_turn" if data.get("reason") == "full":
            active = data.get("active") or []
            said = words.text("job %(id)s is before it", id=active[0]) if active else ""
            return said or words.text("other jobs are before it")
        case "lane_turn" if data.get("reason") == "no_engine":
            return words.text("no engine is at work")
        case "lane_turn":
            return words.text("its job is about to start")
        case "job_paused" if data.get("reason") == "draining":
            return words.text("job %(id)s is pausing: %(why)s", id=data["job"], why=data["why"] or "–")
        case "job_paused":
            return words.text("job %(id)s is paused: %(why)s", id=data.get("job", ""), why=data["why"] or "–")
        case "depends" if data.get("reason") == "stages":
            names = ", ".join(words.stage(each["key"]) for each in data["waits_for"])
            return words.text("waits for stage %(names)s", names=names)
        case "depends":
            return words.text("its stage is about to open")
        case "limit" | "node_limit":
            return _limit(words, data)
        case "waits" if data.get("cause") == "breaker":
            return words.text("calls to %(name)s are stopped", name=_subject(data["name"]))
        case "waits" if data.get("cause"):
            return _limit(words, {"name": data["name"], **(data.get("cause_data") or {})})
        case "waits":
            return words.text("in line for %(name)s; its turn has come", name=_subject(data["name"]))
        case "due" if data.get("reason") == "backoff":
            return words.text("waits after failed attempt %(n)s", n=data.get("attempt", ""))
        case "due":
            return words.text("was asked to wait")
        case "order" if data.get("before"):
            before = int(data["before"])
            return words.plural("%(n)s item comes first", "%(n)s items come first", before)
        case "order":
            return words.text("next in line")
        case "claimed":
            return words.text("taken by a process that has not begun it yet")
        case code if code in SHUT:
            data |= {"stage": stage, "service": words.stage(str(data["service"])), "name": _subject(data["name"])}
            return words.text(SHUT[code], **{**data, "error": data["error"] or "–", "why": data["why"] or "–"})
    return gate.says


def _limit(words: Words, data: Mapping[str, Any]) -> str:
    name = _subject(str(data["name"]))
    if data.get("reason") == "rate":
        return words.text("%(name)s rate limit", name=name)
    if data.get("concurrent") == 0:
        return words.text("the limit of %(name)s is 0", name=name)
    return words.text(
        "%(name)s: %(n)s calls at once are all it takes", name=name, n=number(data.get("concurrent") or 0)
    )


def _subject(name: str) -> str:
    """`qq` of `source:qq`."""
    return name.partition(":")[2] or name


def says(words: Words, gate: Gate, language: str) -> str:
    """In full. What the gate itself says is English and knows most."""
    if language == "en":
        return gate.says
    if gate.state == "open":
        return words.text(OPEN[gate.code]) if gate.code in OPEN else gate.says
    return words.text("%(why)s.", why=brief(words, gate))


def opens(words: Words, gate: Gate, language: str) -> str:
    """What opens a closed one."""
    if gate.state == "open" or not gate.opens:
        return ""
    if language == "en":
        return BY_ITSELF.sub(lambda found: "itself, at that time" if found[1] else "itself", gate.opens)
    return words.text(OPENS.get((gate.code, gate.data.get("reason")), OPENS.get((gate.code, None), LATER)))


def answer(words: Words, found: Explanation, language: str) -> str:
    """The headline without its times: pages say those in the reader's zone."""
    first, running = found.first_closed, next((each for each in found.gates if each.code == "running"), None)
    if language == "en" and first is not None and running is not None:
        return f"{running.says.rstrip('.')}; nothing new starts: {first.says}"
    return says(words, first or running or found.gates[-1], language)


def fixes(words: Words, gate: Gate, *, job_id: int | None = None, item_id: int | None = None) -> list[Fix]:
    """What an operator can press. Some gates open by themselves, or where no console reaches."""
    data = gate.data
    if gate.state == "open":
        return []
    resume = words.text("Resume")
    match gate.code:
        case "all_held":
            return [Fix(words.text("Resume all"), "/resume")]
        case "service_held":
            return [Fix(resume, "/resume", fields={"name": str(data["hold"])})]
        case "lane_held":
            return [Fix(resume, "/resume", fields={"name": f"lane:{data['lane']}"})]
        case "job_paused":
            return [Fix(resume, f"/jobs/{data['job']}/resume")]
        case "stage_paused" if job_id is not None:
            return [Fix(resume, f"/jobs/{job_id}/resume", fields={"stage": str(data["stage"])})]
        case "interrupted" if job_id is not None:
            return [Fix(words.text("Resume the job"), f"/jobs/{job_id}/resume"), *_retry(words, item_id)]
        case "stage_stopped" if data.get("failed_item"):
            return _retry(words, data["failed_item"])
        case "finished" if data.get("status") == "failed":
            return _retry(words, item_id)
        case "finished" if data.get("status") in ("succeeded", "skipped") and item_id is not None:
            return [Fix(words.text("Force-retry …"), f"/items/{item_id}/force", post=False)]
        case "finished" if data.get("failed_item"):
            return _retry(words, data["failed_item"])
        case "breaker":
            return _breaker(words, str(data["name"]))
        case "waits" if data.get("cause") == "breaker":
            return _breaker(words, str(data["name"]))
        case "limit" | "node_limit" | "waits":
            return [Fix(words.text("Change the limit"), "/limits", post=False)]
        case "lane_turn" if data.get("reason") == "full":
            return [Fix(words.text("Change the order of jobs"), "/jobs?q=state%3Aqueued", post=False)]
    return []


def _retry(words: Words, item_id: int | None) -> list[Fix]:
    return [] if item_id is None else [Fix(words.text("Retry"), f"/items/{item_id}/retry")]


def _breaker(words: Words, name: str) -> list[Fix]:
    return [
        Fix(words.text("Try one call now"), "/limits/breakers/probe", fields={"name": name}),
        Fix(words.text("Close it"), "/limits/breakers/reset", fields={"name": name}),
    ]


def gating(words: Words, language: str, **about: Any) -> dict[str, Callable[..., Any]]:
    """For templates: `gates.says(gate)`, `gates.fixes(gate)`."""
    return {
        "title": lambda gate: words.text(TITLES[gate.code]) if gate.code in TITLES else gate.code,
        "brief": lambda gate: brief(words, gate),
        "says": lambda gate: says(words, gate, language),
        "opens": lambda gate: opens(words, gate, language),
        "answer": lambda found: answer(words, found, language),
        "fixes": lambda gate, **more: fixes(words, gate, **{**about, **more}),
    }
