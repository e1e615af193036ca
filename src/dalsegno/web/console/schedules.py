"""Schedules: the list, one of them with its next and its past runs, and what can be done with it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from babel.dates import format_datetime
from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import FormData

from dalsegno.engine import schedules as engine
from dalsegno.errors import QueryInvalid
from dalsegno.insight.query import Query, parse
from dalsegno.insight.schedules import (
    SCHEDULES,
    RunLine,
    ScheduleLine,
    find_schedules,
    get_run,
    get_schedule,
    list_runs,
)
from dalsegno.insight.walk import Page
from dalsegno.store.store import Tx
from dalsegno.web.api.parameters import Number
from dalsegno.web.console.acting import LOOK_EVERY, PATIENCE, Form, acted, field, go
from dalsegno.web.console.frame import render, words_of
from dalsegno.web.console.i18n import N_, language_of
from dalsegno.web.console.pages import pages
from dalsegno.web.room import Here, Room, Who

router = pages()

PAGE = 50
RUNS = 25
LIVE = ("schedules", "jobs")
OUTCOMES = {
    "started": ("succeeded", N_("started a job")),
    "waiting": ("queued", N_("waits")),
    "skipped": ("skipped", N_("skipped")),
    "failed": ("failed", N_("could not start")),
}
"""The state that a run looks like, and the word for it."""
REASONS = {
    "missed": N_("No engine was at work when it was due."),
    "overlap": N_("The job before it was not over."),
    "full": N_("As many of its runs as may wait were waiting already."),
    "paused": N_("The schedule was paused."),
    "changed": N_("It was changed before an engine had taken it up."),
    "asked": N_("An engine takes it up."),
}
CATCH_UP = {
    "skip": N_("skip them"),
    "one": N_("start one run for all of them"),
    "all": N_("start all of them, up to a number"),
}
OVERLAP = {
    "skip": N_("skip this run"),
    "queue": N_("start it when that job is over"),
    "allow": N_("start it all the same"),
}


@router.get("/schedules")
def schedules(request: Request, here: Here, q: str = "", cursor: str | None = None) -> HTMLResponse:
    error, query = None, Query()
    found: Page[ScheduleLine] = Page([], None)
    try:
        query = parse(q, SCHEDULES)
        found = here.store.read(lambda tx: find_schedules(tx, query, cursor=cursor, limit=PAGE))
    except QueryInvalid as wrong:
        error = wrong
    return render(
        request, here, "schedules.html", page="schedules", live=LIVE, q=q, error=error, found=found, cursor=cursor,
        **_told(request, here),
    )  # fmt: skip


@router.get("/schedules/{schedule_id:int}")
def schedule(request: Request, here: Here, schedule_id: Number, cursor: str | None = None) -> HTMLResponse:
    def read(tx: Tx) -> dict[str, Any]:
        line = get_schedule(tx, schedule_id)
        return {"line": line, "it": line.schedule, "runs": list_runs(tx, schedule_id, cursor=cursor, limit=RUNS)}

    values = here.store.read(read)
    told = _told(request, here)
    return render(
        request, here, "schedule.html", page="schedules", live=() if cursor else LIVE, cursor=cursor,
        upcoming=values["line"].upcoming(told["now"]), catch_up=CATCH_UP, overlap=OVERLAP,
        written=partial(json.dumps, ensure_ascii=False), **values, **told,
    )  # fmt: skip


def _told(request: Request, here: Room) -> dict[str, Any]:
    """What both pages say of schedules and runs."""
    return {
        "now": here.store.clock.now(), "outcomes": OUTCOMES, "reasons": REASONS,
        "there": there(language_of(request, here.settings)),
    }  # fmt: skip


def there(language: str) -> Callable[[datetime, str], str]:
    """A moment on the clock of a zone, with the day of the week."""

    def said(at: datetime, zone: str) -> str:
        try:
            own = ZoneInfo(zone)
        except (OSError, ValueError, KeyError):
            own = ZoneInfo("UTC")
        return format_datetime(at, "EEE y-MM-dd HH:mm", tzinfo=own, locale=language.replace("-", "_"))

    return said


# --- what can be done -------------------------------------------------------------------------------


@router.post("/schedules/{schedule_id:int}/run")
def run(request: Request, here: Here, who: Who, schedule_id: Number, form: Form) -> Response:
    words = words_of(request, here)

    def work() -> str | Response:
        number = here.store.write("schedule", lambda tx: engine.run_now(tx, schedule_id, who))
        began = _followed(here, number)
        if began.run.job_id is not None:
            return words.text("Job %(id)s is started.", id=began.run.job_id)
        if began.run.outcome == "waiting":
            return words.text("It will be started as soon as an engine takes it up.")
        return go(request, here, f"/schedules/{schedule_id}", bad=began.run.message or began.run.reason or "")

    return acted(request, here, form, work, f"/schedules/{schedule_id}")


def _followed(here: Room, number: int) -> RunLine:
    """A run, a little after it was asked for."""
    give_up = time.monotonic() + PATIENCE
    while True:
        found = here.store.read(lambda tx: get_run(tx, number))
        if found.run.outcome != "waiting" or time.monotonic() > give_up:
            return found
        time.sleep(LOOK_EVERY)


@router.post("/schedules/{schedule_id:int}/pause")
def pause(request: Request, here: Here, who: Who, schedule_id: Number, form: Form) -> Response:
    said = N_("It is paused: nothing is started until it is resumed.")
    reason = field(form, "reason")[:2000] or None
    return _acted(request, here, form, schedule_id, said, lambda tx: engine.pause(tx, schedule_id, who, reason))


@router.post("/schedules/{schedule_id:int}/resume")
def resume(request: Request, here: Here, who: Who, schedule_id: Number, form: Form) -> Response:
    said = N_("It goes on from now; what came meanwhile is not made up for.")
    return _acted(request, here, form, schedule_id, said, lambda tx: engine.resume(tx, schedule_id, who))


@router.post("/schedules/{schedule_id:int}/remove")
def remove(request: Request, here: Here, who: Who, schedule_id: Number, form: Form) -> Response:
    words = words_of(request, here)

    def work() -> Response:
        here.store.write("schedule", lambda tx: engine.remove(tx, schedule_id, who))
        return go(request, here, "/schedules", good=words.text("It is removed. The jobs that it started stay."))

    return acted(request, here, form, work, "/schedules")


def _acted(
    request: Request, here: Room, form: FormData, schedule_id: int, said: str, change: Callable[[Tx], None]
) -> Response:
    def work() -> str:
        here.store.write("schedule", change)
        return words_of(request, here).text(said)

    return acted(request, here, form, work, f"/schedules/{schedule_id}")
