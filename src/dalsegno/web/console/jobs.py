"""The job center: the list of jobs, and the form that starts one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import FormData, ImmutableMultiDict

from dalsegno.catalog.offered import offered_playlists, offered_pools
from dalsegno.catalog.templates import TEMPLATES
from dalsegno.errors import DalSegnoError, InputInvalid, QueryInvalid
from dalsegno.insight.explain import Gate
from dalsegno.insight.jobs import JOBS, JobLine, find_jobs, find_queued
from dalsegno.insight.query import Query, parse
from dalsegno.insight.waiting import why_queued
from dalsegno.insight.walk import Page
from dalsegno.insight.workflows import list_workflows
from dalsegno.model.states import JOB_FINISHED, JOB_UNFINISHED, JobStatus
from dalsegno.requests.workflow import PARSE
from dalsegno.sources.registry import Config, Sources
from dalsegno.store.store import Tx
from dalsegno.web.api.jobs import start
from dalsegno.web.api.models import NewJob
from dalsegno.web.api.plan import Plan, plan
from dalsegno.web.console.acting import Form, field, go
from dalsegno.web.console.frame import render, words_of
from dalsegno.web.console.gates import gating
from dalsegno.web.console.i18n import N_, language_of
from dalsegno.web.console.numbers import numbers
from dalsegno.web.console.pages import pages
from dalsegno.web.console.planning import basis, stops
from dalsegno.web.room import Here, Room, Who

router = pages()

PAGE = 30
WORKFLOW = "workflow:"
"""What a choice begins with that is no template."""
ASKED = WORKFLOW + PARSE.name
"""Its jobs are requests, which have a form of their own."""
VIEWS = {
    "all": (),
    "queued": (JobStatus.QUEUED,),
    "running": (JobStatus.RUNNING, JobStatus.PAUSE_REQUESTED),
    "paused": (JobStatus.PAUSED,),
    "finished": tuple(sorted(JOB_FINISHED)),
}


@router.get("/jobs")
def jobs(request: Request, here: Here, q: str = "", cursor: str | None = None) -> HTMLResponse:
    """Newest first; where only those that wait are asked for, in the order in which they will run."""
    error, query = None, Query()
    page: Page[JobLine] = Page([], None)
    reasons: dict[int, Gate] = {}
    try:
        query = parse(q, JOBS)
    except QueryInvalid as wrong:
        error = wrong
    states = query.values("state")
    view = next((name for name, wanted in VIEWS.items() if set(states) == set(wanted)), "")

    def read(tx: Tx) -> tuple[Page[JobLine], dict[int, Gate]]:
        page = (find_queued if view == "queued" else find_jobs)(tx, query, cursor=cursor, limit=PAGE)
        return page, why_queued(tx, (line.job for line in page.lines))

    if error is None:
        page, reasons = here.store.read(read)
    gates = gating(words_of(request, here), language_of(request, here.settings))
    return render(
        request, here, "jobs.html", page="jobs", live=("jobs", "commands", "holds"), query=query, q=q, error=error,
        view=view, views={name: str(query.with_("state", *wanted)) for name, wanted in VIEWS.items()}, found=page,
        reasons=reasons, gates=gates, cursor=cursor, unfinished=JOB_UNFINISHED, templates=list(TEMPLATES),
        now=here.store.clock.now(),
    )  # fmt: skip


# --- a new one --------------------------------------------------------------------------------------


@router.get("/jobs/new")
def new_job(request: Request, here: Here) -> Response:
    """The form. With a template chosen it shows the plan: what the job would do, and what would stop it."""
    if request.query_params.get("template") == ASKED:
        return RedirectResponse("/requests/new", status_code=303)
    return _form(request, here, request.query_params)


@router.post("/jobs")
def create_job(request: Request, here: Here, who: Who, form: Form) -> Response:
    try:
        if field(form, "template") == ASKED:
            return RedirectResponse("/requests/new", status_code=303)
        job_id = start(here, asked(form), who)
    except DalSegnoError as error:
        return _form(request, here, form, error)
    return go(request, here, f"/jobs/{job_id}", good=words_of(request, here).text("Job %(id)s is queued.", id=job_id))


def asked(form: ImmutableMultiDict[str, Any]) -> NewJob:
    """What the form says. Several names stand on lines of their own, or have commas between them."""
    scope: dict[str, Any] = {
        "sources": [str(name) for name in form.getlist("sources") if name],
        "pools": numbers(form, "pool"),
        "playlists": _names(form, "playlists"),
        "songs": _names(form, "songs"),
        "query": field(FormData(form), "query"),
    }
    return NewJob(
        template=field(FormData(form), "template").removeprefix(WORKFLOW),
        scope={key: value for key, value in scope.items() if value},
        priority=_priority(form),
        download_sources=[str(each) for each in _names(form, "download_sources")],
    )


def _names(form: ImmutableMultiDict[str, Any], name: str) -> list[int | str]:
    lines = str(form.get(name) or "").replace(",", "\n").splitlines()
    return [int(line) if line.isdecimal() and len(line) < 19 else line for each in lines if (line := each.strip())]


def _priority(form: ImmutableMultiDict[str, Any]) -> int:
    text = str(form.get("priority") or "100").strip()
    try:
        return int(text)
    except ValueError:
        raise InputInvalid(problem=N_("A priority is a whole number.")) from None


def _form(
    request: Request, here: Room, form: ImmutableMultiDict[str, Any], error: DalSegnoError | None = None
) -> HTMLResponse:
    words = words_of(request, here)
    chosen = str(form.get("template") or "")
    found, wrong = None, None if error is None else str(error)
    if chosen and error is None:
        found, wrong = _plan(here, form)

    def read(tx: Tx) -> dict[str, Any]:
        return {
            "pools": offered_pools(tx),
            "playlists": offered_playlists(tx),
            "workflows": [
                each for each in list_workflows(tx) if each.is_active and each.name not in (*TEMPLATES, PARSE.name)
            ],
        }

    return render(
        request, here, "new_job.html", page="jobs", status=200 if error is None else error.status, form=form,
        chosen=chosen, plan=found, wrong=wrong, sources=sources_of(here), prefix=WORKFLOW,
        says_stop=partial(stops, words), says_basis=partial(basis, words),
        templates={key: [step.key for step in made.steps] for key, made in TEMPLATES.items()}, **here.store.read(read),
    )  # fmt: skip


def _plan(here: Room, form: ImmutableMultiDict[str, Any]) -> tuple[Plan | None, str | None]:
    try:
        return plan(here, asked(form)), None
    except DalSegnoError as error:
        return None, str(error)


def sources_of(here: Room) -> list[str]:
    snapshot: Mapping[str, Any] = here.settings.snapshot()
    found = Sources(Config(here.settings.thawed(snapshot)))
    try:
        return list(found.names())
    finally:
        found.close()
