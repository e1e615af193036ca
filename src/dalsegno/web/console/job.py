"""One job: how far it is, its workflow, items, workers, events, logs, settings and commands; a tab each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse

from dalsegno.catalog.find import ITEMS
from dalsegno.catalog.overrides import CHANGEABLE
from dalsegno.catalog.subjects import keys_of
from dalsegno.config.jobs import job_config
from dalsegno.errors import QueryInvalid
from dalsegno.insight.commands import COMMANDS, find_commands
from dalsegno.insight.dashboard import ActiveJob, active_job
from dalsegno.insight.events import EVENTS, find_events
from dalsegno.insight.finding import find_items
from dalsegno.insight.grammar import Grammar
from dalsegno.insight.logs import LOGS, find_logs
from dalsegno.insight.query import Query, parse
from dalsegno.insight.schedules import schedule_of_job
from dalsegno.insight.waiting import why_waiting
from dalsegno.insight.walk import Page
from dalsegno.insight.workers import list_processes
from dalsegno.model.states import ItemStatus
from dalsegno.requests.subjects import names_of
from dalsegno.store.store import Tx
from dalsegno.web.api.parameters import Number
from dalsegno.web.console.audit import ACTS
from dalsegno.web.console.frame import render, wanted, words_of
from dalsegno.web.console.gates import gating
from dalsegno.web.console.graph import laid_out, time_line
from dalsegno.web.console.i18n import N_, language_of
from dalsegno.web.console.logs import LEVELS, brief
from dalsegno.web.console.pages import pages
from dalsegno.web.console.told import telling
from dalsegno.web.console.words import Words
from dalsegno.web.room import Here

router = pages()

PAGE = 50
TABS = {
    "overview": N_("Overview"),
    "workflow": N_("Workflow"),
    "items": N_("Items"),
    "workers": N_("Workers"),
    "events": N_("Events"),
    "logs": N_("Logs"),
    "config": N_("Settings"),
    "commands": N_("Commands"),
}
GRAMMARS: dict[str, Grammar] = {"items": ITEMS, "events": EVENTS, "logs": LOGS, "commands": COMMANDS}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a list tab was asked: the query as typed, and as it is about this job."""

    q: str
    typed: Query = field(default_factory=Query)
    query: Query = field(default_factory=Query)
    error: QueryInvalid | None = None


@router.get("/jobs/{job_id}")
def job(
    request: Request, here: Here, job_id: Number, tab: str = "overview", q: str = "", cursor: str | None = None
) -> HTMLResponse:
    tab = tab if tab in TABS else "overview"
    words = words_of(request, here)
    asked = _asked(q, job_id, GRAMMARS[tab]) if tab in GRAMMARS else Asked(q)

    def read(tx: Tx) -> dict[str, Any]:
        found = active_job(tx, job_id, list_processes(tx))
        shown = tab in READS and asked.error is None and wanted(request, "job_tab")
        more = READS[tab](tx, found, asked, cursor) if shown else {}
        by_clock = "schedule" in (found.detail.job.requested_by or "")
        schedule = schedule_of_job(tx, job_id) if by_clock else None
        return {"found": found, "schedule": schedule, "now": tx.now, **NOTHING.get(tab, {}), **more}

    values = here.store.read(read)
    if tab == "workflow":
        values |= _workflow(words, values["found"], values["now"])
    if tab == "config":
        values["config"] = job_config(here.store, here.config, job_id)
    return render(
        request, here, "job.html", page="jobs", live=_topics(job_id, tab), told=telling(words),
        gates=gating(words, language_of(request, here.settings)), tab=tab, tabs=TABS, asked=asked,
        cursor=cursor, stakes=stakes(values["found"]), changeable=CHANGEABLE, levels=LEVELS, **values,
    )  # fmt: skip


def _topics(job_id: int, tab: str) -> tuple[str, ...]:
    more = {"logs": ("logs",), "events": ("events",), "items": ("holds", "breakers", "limits")}
    return (f"job:{job_id}", "workers", "commands", *more.get(tab, ()))


def _asked(q: str, job_id: int, grammar: Grammar) -> Asked:
    try:
        typed = parse(q, grammar)
    except QueryInvalid as wrong:
        return Asked(q, error=wrong)
    return Asked(q, typed, typed.with_("job", str(job_id)))


def stakes(found: ActiveJob) -> dict[str, int]:
    """What a cancel would stop and what it would leave, and what a retry would bring back."""
    stages = found.detail.stages
    return {
        "waiting": sum(stage.pending + stage.claimed + stage.interrupted for stage in stages),
        "running": sum(stage.running for stage in stages),
        "done": sum(stage.succeeded + stage.skipped for stage in stages),
        "failed": sum(stage.failed for stage in stages),
    }


# --- tabs ---------------------------------------------------------------------------------------------


def _items(tx: Tx, found: ActiveJob, asked: Asked, cursor: str | None) -> dict[str, Any]:
    page = find_items(tx, asked.query, among=ITEMS, cursor=cursor, limit=PAGE, forward=True)
    states = {str(state): sum(getattr(stage, state) for stage in found.detail.stages) for state in ItemStatus}
    return {
        "listed": page,
        "names": names_of(tx, (line.item.key for line in page.lines)),
        "states": states,
        "reasons": why_waiting(tx, (line.item for line in page.lines)),
    }


def _workers(tx: Tx, found: ActiveJob, _asked: Asked, _cursor: str | None) -> dict[str, Any]:
    alive = [line for line in list_processes(tx) if line.alive]
    busy = [worker for line in alive for worker in line.workers if worker.job_id == found.detail.job.id]
    keys = keys_of(tx, (worker.item_id for worker in busy if worker.item_id is not None))
    return {"workers": busy, "keys": keys, "names": names_of(tx, keys.values())}


def _events(tx: Tx, _found: ActiveJob, asked: Asked, cursor: str | None) -> dict[str, Any]:
    return {"listed": find_events(tx, asked.query, cursor=cursor, limit=PAGE), "brief": brief}


def _logs(tx: Tx, _found: ActiveJob, asked: Asked, cursor: str | None) -> dict[str, Any]:
    return {"listed": find_logs(tx, asked.query, cursor=cursor, limit=2 * PAGE)}


def _commands(tx: Tx, _found: ActiveJob, asked: Asked, cursor: str | None) -> dict[str, Any]:
    return {"listed": find_commands(tx, asked.query, cursor=cursor, limit=PAGE), "brief": brief, "acts": ACTS}


READS: dict[str, Callable[[Tx, ActiveJob, Asked, str | None], dict[str, Any]]] = {
    "items": _items,
    "workers": _workers,
    "events": _events,
    "logs": _logs,
    "commands": _commands,
}
EMPTY: Page[Any] = Page([], None)
NOTHING: dict[str, dict[str, Any]] = {
    "items": {"listed": EMPTY, "names": {}, "states": {}, "reasons": {}},
    "events": {"listed": EMPTY},
    "logs": {"listed": EMPTY},
    "commands": {"listed": EMPTY},
}
"""What is shown of a list whose query makes no sense."""


def _workflow(words: Words, found: ActiveJob, now: Any) -> dict[str, Any]:
    stages = found.detail.stages
    says = {
        stage.key: (
            str(stage.status),
            words.text("%(done)s of %(n)s", done=stage.succeeded + stage.skipped, n=stage.total)
            + (" · " + words.text("%(n)s failed", n=stage.failed) if stage.failed else ""),
        )
        for stage in stages
    }
    return {"graph": laid_out(stages), "says": says, "spans": time_line(stages, now)}
