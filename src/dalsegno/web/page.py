"""The live page. Its forms work without scripts; with them, the board is fetched again and again and put in place."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from dalsegno.catalog.templates import TITLES
from dalsegno.engine.logbridge import masked
from dalsegno.errors import DalSegnoError, InputInvalid, NotFound
from dalsegno.model.states import CommandStatus
from dalsegno.store.store import Store
from dalsegno.version import VERSION
from dalsegno.web.api.commands import look_up
from dalsegno.web.api.jobs import ask, overriding, start
from dalsegno.web.api.models import Command, NewJob
from dalsegno.web.api.parameters import Number
from dalsegno.web.board import read_board
from dalsegno.web.room import Here, Room
from dalsegno.web.words import FILTERS

router = APIRouter(include_in_schema=False)

ENGLISH = {
    "full": "Everything: collect, sync, download, upload",
    "collect": "Collect playlists",
    "sync": "Sync songs",
    "sync-download": "Sync, then download",
    "download": "Download",
    "upload": "Upload",
    "download-upload": "Download and upload",
}
PATIENCE = 2.0
"""Seconds that a form waits to see what became of its command, so that the page it leads to shows it."""
LOOK_EVERY = 0.05

Chosen = Annotated[int | None, Query(ge=1, lt=2**63)]


async def _form(request: Request) -> dict[str, str]:
    """A plain form's fields; FastAPI's own would need a parser for uploads, which there are none of."""
    return dict(parse_qsl((await request.body()).decode("utf-8", "replace"), max_num_fields=50))


Form = Annotated[dict[str, str], Depends(_form)]


@router.get("/")
def live(here: Here, job: Chosen = None) -> HTMLResponse:
    return _page(here, job)


@router.get("/board")
def board(here: Here, job: Chosen = None) -> HTMLResponse:
    """The part of the page that changes."""
    return _answer("board.html", here, job)


@router.post("/jobs")
def create_job(here: Here, form: Form) -> Response:
    try:
        scope = {"query": form["query"]} if form.get("query") else None
        job_id = start(here, NewJob(template=form.get("template", ""), scope=scope, requested_by="console"))
    except DalSegnoError as error:
        return _page(here, None, error)
    return _shown(job_id)


@router.post("/jobs/{job_id}/pause")
def pause(here: Here, job_id: Number, form: Form) -> Response:
    return _command(here, "pause", job_id, {"reason": form["reason"]} if form.get("reason") else {})


@router.post("/jobs/{job_id}/resume")
def resume(here: Here, job_id: Number, form: Form) -> Response:
    root = form.get("library_root", "").strip()
    try:
        payload = overriding(here, job_id, {"LIBRARY_ROOT": root} if root else {})
    except DalSegnoError as error:
        return _page(here, job_id, error)
    return _command(here, "resume", job_id, payload)


def _command(here: Room, kind: str, job_id: int, payload: dict[str, Any]) -> Response:
    try:
        command = _followed(here.store, ask(here.store, kind, job_id, payload, "console"))
        if command.status == CommandStatus.REJECTED:
            raise InputInvalid(problem=command.error_message or "The engine refused it.")
    except DalSegnoError as error:
        return _page(here, None if isinstance(error, NotFound) else job_id, error)
    return _shown(job_id)


def _followed(store: Store, command: Command) -> Command:
    give_up = time.monotonic() + PATIENCE
    while command.status == CommandStatus.PENDING and time.monotonic() < give_up:
        time.sleep(LOOK_EVERY)
        command = look_up(store, command.id)
    return command


def _shown(job_id: int) -> Response:
    return RedirectResponse(f"/?job={job_id}", status_code=303)


def _page(here: Room, job_id: int | None, error: DalSegnoError | None = None) -> HTMLResponse:
    return _answer("page.html", here, job_id, error)


def _answer(name: str, here: Room, job_id: int | None, error: DalSegnoError | None = None) -> HTMLResponse:
    def read(chosen: int | None) -> Any:
        return here.store.read(lambda tx: read_board(tx, chosen))

    try:
        found = read(job_id)
    except NotFound as missing:
        error, found = missing, read(None)
    text = _templates().get_template(name).render(
        board=found,
        chosen=job_id,
        error=None if error is None else str(error),
        templates=[(key, chinese, ENGLISH[key]) for key, chinese in TITLES.items()],
        version=VERSION,
        secrets=here.settings.secrets(),
    )  # fmt: skip
    return HTMLResponse(text, 200 if error is None else error.status)


@pass_context
def _without_secrets(context: Context, value: Any) -> Any:
    """Every value on its way into a page; what a macro made has been here already."""
    return masked(value, context["secrets"]) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _templates() -> Environment:
    folder = Path(__file__).parent / "templates"
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_without_secrets,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    return environment
