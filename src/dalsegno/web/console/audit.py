"""The audit: who did what, when, and to how many."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse

from dalsegno.insight.audit import AUDIT, Act, find_acts
from dalsegno.insight.query import Query
from dalsegno.insight.walk import Page
from dalsegno.web.console.frame import render
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.logs import asked, brief
from dalsegno.web.console.pages import pages
from dalsegno.web.room import Here

router = pages()

PAGE = 50
ACTS = {
    "pause": N_("paused the job"),
    "resume": N_("resumed the job"),
    "cancel": N_("canceled the job"),
    "set_priority": N_("changed the priority"),
    "pause_stage": N_("paused a stage"),
    "resume_stage": N_("resumed a stage"),
    "retry_item": N_("retried an item"),
    "force_retry_item": N_("force-retried an item"),
    "bulk_retry": N_("retried many items"),
    "bulk_force_retry": N_("force-retried many items"),
    "bulk_cancel": N_("canceled many items"),
    "bulk_skip": N_("skipped many items"),
    "bulk_priority": N_("changed the priority of many jobs"),
    "job_submitted": N_("started a job"),
    "limit_set": N_("set a limit"),
    "limit_cleared": N_("removed a limit"),
    "setting_changed": N_("changed a system setting"),
    "breaker_opened": N_("stopped calls"),
    "breaker_half_open": N_("let one call try"),
    "breaker_closed": N_("let calls through again"),
    "schedule_added": N_("added a schedule"),
    "schedule_changed": N_("changed a schedule"),
    "schedule_paused": N_("paused a schedule"),
    "schedule_resumed": N_("resumed a schedule"),
    "schedule_removed": N_("removed a schedule"),
    "schedule_asked": N_("ran a schedule"),
    "hold_set": N_("held everything or a service"),
    "hold_released": N_("released a hold"),
    "lane_held": N_("held a lane"),
    "lane_released": N_("released a lane"),
    "config_saved": N_("saved the settings"),
    "config_adopted": N_("adopted the settings on disk"),
    "config_applied": N_("applied an old revision"),
    "console_signed_in": N_("signed in"),
    "console_signed_out": N_("signed out"),
}
"""What was done, in words; what is not here is called by its own name."""
LIVE = ("commands", "jobs", "limits", "breakers", "holds", "config", "schedules")


@router.get("/logs/audit")
def audit(request: Request, here: Here, q: str = "", cursor: str | None = None) -> HTMLResponse:
    query, wrong = asked(q, AUDIT)
    found: Page[Any] = Page([], None)
    if query is not None:
        found = here.store.read(lambda tx: find_acts(tx, query, cursor=cursor, limit=PAGE))
        found = replace(found, lines=[_told(act) for act in found.lines])
    return render(
        request, here, "audit.html", page="logs", live=() if cursor else LIVE, topics=" ".join(LIVE), q=q, acts=ACTS,
        query=query or Query(), wrong=wrong, cursor=cursor, found=found,
    )  # fmt: skip


def _told(act: Act) -> Act:
    return replace(act, data=brief(act.data))
