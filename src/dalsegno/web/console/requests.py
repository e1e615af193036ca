"""Parse requests: the list, one of them opened, what it found, and the form that submits one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from dalsegno.errors import DalSegnoError, QueryInvalid
from dalsegno.insight.jobs import job_detail
from dalsegno.insight.query import Query, parse
from dalsegno.insight.walk import Page
from dalsegno.model.records import StageRecord
from dalsegno.requests.ask import ask, twin_of
from dalsegno.requests.body import DECODE, IDS, TEXTS, ParseBody, body_of
from dalsegno.requests.find import REQUESTS, find_requests, newest_with
from dalsegno.requests.parts import content_card, contents_of, first_trouble, titles_of, variants_of
from dalsegno.requests.upstreams import Upstreams
from dalsegno.requests.view import RequestView, counts_of, one_request
from dalsegno.sources.http import Http
from dalsegno.sources.registry import Config, Sources
from dalsegno.store.store import Tx
from dalsegno.web.api.models import Command
from dalsegno.web.api.parameters import Number
from dalsegno.web.api.parse import cancel, retry
from dalsegno.web.console.acting import Form, acted, fate, field, followed, go
from dalsegno.web.console.frame import render, wanted, words_of
from dalsegno.web.console.graph import Span, time_line
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.meanings import refusal
from dalsegno.web.console.pages import pages
from dalsegno.web.room import Here, Room, Who

router = pages()

PAGE = 30
MANY = 50
"""Variants on a page."""
CREATED_BY = 200
LABELS = {"kinopoiskId": "Kinopoisk", "imdbId": "IMDb", "shikimoriId": "Shikimori"}
STATES = {"": N_("all"), "failed": N_("failed"), "running": N_("running"), "pending": N_("pending"),
          "succeeded": N_("decoded"), "skipped": N_("skipped"), "interrupted": N_("interrupted"),
          "canceled": N_("canceled")}  # fmt: skip
"""Of variants, in the order of interest."""


@router.get("/requests")
def requests(request: Request, here: Here, q: str = "", cursor: str | None = None) -> HTMLResponse:
    error, query = None, Query()
    page: Page[RequestView] = Page([], None)
    try:
        query = parse(q, REQUESTS)
    except QueryInvalid as wrong:
        error = wrong

    def read(tx: Tx) -> tuple[Page[RequestView], dict[int, str], dict[str, int]]:
        found = find_requests(tx, query, cursor=cursor, limit=PAGE) if error is None else page
        return found, titles_of(tx, found.lines), counts_of(tx)

    page, titles, counts = here.store.read(read)
    none = not sum(counts.values())
    return render(
        request, here, "requests.html", page="requests", live=("jobs", "commands"), query=query, q=q, error=error,
        found=page, counts={state.lower(): count for state, count in counts.items()}, cursor=cursor,
        now=here.store.clock.now(), title_of=title_of, ids_of=ids_of, titles=titles,
        sources=_sources(here) if none else None,
        curl=curl(request, here, {"title": "Naruto", DECODE: True}) if none else "",
    )  # fmt: skip


def title_of(body: Mapping[str, Any]) -> str:
    """What it asks for, in a word: the title, or an id where it has none."""
    return str(body.get("title") or _ids(body)[0])


def ids_of(body: Mapping[str, Any]) -> str:
    """Those that do not stand in the place of the title."""
    return " · ".join(_ids(body) if body.get("title") else _ids(body)[1:])


def _ids(body: Mapping[str, Any]) -> list[str]:
    return [f"{LABELS[name]} {body[name]}" for name in IDS if body.get(name)]


def curl(request: Request, here: Room, body: Mapping[str, Any]) -> str:
    """The same from another program."""
    words = ["curl", "-H", "Content-Type: application/json", "-H", "X-Created-By: my-service"]
    if here.settings.requests_api_key:
        words += ["-H", "X-API-KEY: …"]
    words += ["-d", json.dumps(body, ensure_ascii=False), f"{str(request.base_url).rstrip('/')}/api/v1/parse/requests"]
    lines = shlex.join(words).replace(" -H ", " \\\n  -H ").replace(" -d ", " \\\n  -d ", 1)
    head, _, address = lines.rpartition(" ")
    return f"{head} \\\n  {address}"


def _sources(here: Room) -> list[str] | None:
    """Where requests are searched; where there is nowhere, they would all fail. None: that cannot be told."""
    settings = here.settings
    values = settings.thawed(settings.snapshot())
    values |= {"KODIK_URL": settings.kodik_url, "REQUESTS_SOURCES": settings.requests_sources}
    sources = Sources(Config(values))
    http = Http()
    try:
        return Upstreams(Config(values), http, sources).names()
    except DalSegnoError:
        return None
    finally:
        sources.close()
        http.close()


# --- a new one --------------------------------------------------------------------------------------


@router.get("/requests/new")
def new_request(request: Request, here: Here) -> HTMLResponse:
    """The form. What is filled in is hashed and looked for, so that what would happen is known before."""
    return _form(request, here, request.query_params)


@router.post("/requests")
def submit_request(request: Request, here: Here, who: Who, form: Form) -> Response:
    words = words_of(request, here)
    try:
        created_by = " ".join(field(form, "createdBy").split())[:CREATED_BY] or who
        asked = ask(here.store, here.settings, _asked(form), created_by=created_by, requested_by=who)
    except DalSegnoError as error:
        return _form(request, here, form, error)
    said = (
        words.text("Request %(id)s is queued.", id=asked.id)
        if asked.created
        else words.text("The same was asked for before: this is request %(id)s, and nothing was added.", id=asked.id)
    )
    return go(request, here, f"/requests/{asked.id}", good=said)


def _asked(form: Mapping[str, Any]) -> ParseBody:
    return body_of({**{name: form.get(name) for name in TEXTS}, DECODE: form.get(DECODE) == "on"})


@dataclass(frozen=True, slots=True)
class Preview:
    """What submitting would lead to."""

    hash: str
    written: str
    curl: str
    twin: RequestView | None
    """It would be this one, with status 200; None: a new one, with 201."""
    last: RequestView | None
    """The last that asked for the same and is over."""


def _form(
    request: Request, here: Room, form: Mapping[str, Any], error: DalSegnoError | None = None
) -> HTMLResponse:  # fmt: skip
    words = words_of(request, here)
    wrong, preview = error, None
    if error is None and any(str(form.get(name) or "").strip() for name in TEXTS):
        try:
            preview = _preview(request, here, _asked(form))
        except DalSegnoError as found:
            wrong = found
    return render(
        request, here, "new_request.html", page="requests", status=200 if error is None else error.status, form=form,
        labels=LABELS, wrong=None if wrong is None else refusal(words, wrong.code, str(wrong)),
        preview=preview, sources=_sources(here) if wanted(request) else None, now=here.store.clock.now(),
    )  # fmt: skip


def _preview(request: Request, here: Room, body: ParseBody) -> Preview:
    def read(tx: Tx) -> tuple[RequestView | None, RequestView | None]:
        twin, last = twin_of(tx, body), newest_with(tx, body.hash)
        return None if twin is None else one_request(tx, twin), last

    twin, last = here.store.read(read)
    written = json.dumps(body.stored(), ensure_ascii=False)
    return Preview(body.hash, written, curl(request, here, body.stored()), twin, last if twin is None else None)


# --- one of them ------------------------------------------------------------------------------------


@router.get("/requests/{request_id}")
def one(
    request: Request,
    here: Here,
    request_id: Number,
    state: str = "",
    cursor: str | None = None,
    after: str | None = None,
) -> HTMLResponse:
    """`state` and `cursor` are of its variants, `after` of its contents."""
    state = state if state in STATES else ""

    def read(tx: Tx) -> dict[str, Any]:
        view, detail = one_request(tx, request_id), job_detail(tx, request_id)
        search, decode = detail.stages
        twin = twin_of(tx, body_of(view.body)) if view.finished_at else None
        found: dict[str, Any] = {"view": view, "decode": decode, "job": detail.job, "twin": twin, "now": tx.now}
        found["trouble"] = first_trouble(tx, request_id) if view.error else None
        found["phases"] = phases(view, search, decode, tx.now)
        found["title"] = next(iter(titles_of(tx, [view]).values()), "")
        if wanted(request, "request_contents"):
            found["contents"] = contents_of(tx, request_id, cursor=after)
        if wanted(request, "request_variants"):
            found["variants"] = variants_of(tx, request_id, state=state, cursor=cursor, limit=MANY)
        return found

    found = here.store.read(read)
    body = found["view"].body
    return render(
        request, here, "request.html", page="requests", live=(f"job:{request_id}", "commands"), state=state,
        states=STATES, cursor=cursor, after=after, title_of=title_of, ids_of=ids_of, again=again(body),
        written=json.dumps(body, ensure_ascii=False, indent=2), curl=curl(request, here, body), **found,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Phase:
    key: str
    status: str
    started_at: datetime | None
    finished_at: datetime | None


def phases(view: RequestView, search: StageRecord, decode: StageRecord, now: datetime) -> list[Span]:
    """From the moment it was asked for, each as long as it took."""
    waited = _Phase("queued", "paused", view.created_at, view.started_at or view.finished_at)
    worked = (_Phase(key, stage.status, stage.started_at, stage.finished_at)
              for key, stage in (("searching", search), ("decoding", decode)))  # fmt: skip
    return time_line((waited, *worked), now)


def again(body: Mapping[str, Any]) -> str:
    """The form, filled in with what was asked for."""
    said = {name: body[name] for name in TEXTS if name in body}
    return "/requests/new?" + urlencode({**said, **({DECODE: "on"} if body.get(DECODE) else {})})


@router.get("/requests/contents/{content_id}")
def content(request: Request, here: Here, content_id: Number) -> HTMLResponse:
    card, now = here.store.read(lambda tx: (content_card(tx, content_id), tx.now))
    keyless = not here.settings.requests_api_key  # with a key, the API is for those who have it or signed in
    return render(request, here, "request_content.html", page="requests", card=card, now=now, open=keyless)


@router.post("/requests/{request_id}/cancel")
def cancel_request(request: Request, here: Here, who: Who, form: Form, request_id: Number) -> Response:
    done = words_of(request, here).text("Request %(id)s is being canceled.", id=request_id)
    return acted(
        request,
        here,
        form,
        lambda: _fate(request, here, cancel(here, request_id, who), done),
        f"/requests/{request_id}",
    )


@router.post("/requests/{request_id}/retry")
def retry_request(request: Request, here: Here, who: Who, form: Form, request_id: Number) -> Response:
    done = words_of(request, here).text("What failed in request %(id)s is tried again.", id=request_id)
    return acted(
        request, here, form, lambda: _fate(request, here, retry(here, request_id, who), done), f"/requests/{request_id}"
    )


def _fate(request: Request, here: Room, command: Command, done: str) -> str:
    return fate(request, here, followed(here, command.id), done)
