"""Playlist pools: which playlists there are, how each stands and why, and what to do with many of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import ImmutableMultiDict

from dalsegno.catalog.browse import PLAYLISTS, Found, facets, find_playlists, matching
from dalsegno.catalog.judged import Shelves, shelves
from dalsegno.catalog.overview import upload_backend
from dalsegno.catalog.scope import parse_scope
from dalsegno.catalog.songs import list_songs
from dalsegno.catalog.status import PlaylistLine, playlist_detail
from dalsegno.errors import InputInvalid, QueryInvalid
from dalsegno.insight.query import Query as Asked
from dalsegno.insight.query import parse
from dalsegno.store.store import Tx
from dalsegno.web.api.jobs import start
from dalsegno.web.api.models import NewJob
from dalsegno.web.api.parameters import Cursor, Number, Q, place
from dalsegno.web.api.plan import planned
from dalsegno.web.console.acting import Form, field, go
from dalsegno.web.console.facets import Chip, chips
from dalsegno.web.console.frame import Frame, render, wanted, words_of
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.numbers import numbers
from dalsegno.web.console.pages import pages
from dalsegno.web.console.planning import basis, stops
from dalsegno.web.console.standing import because
from dalsegno.web.console.words import Words, mark
from dalsegno.web.room import Here, Room, Who

router = pages()

PAGE = 25
SONGS = 100
LIVE = ("playlists", "jobs")
ACTIONS = ("sync", "download", "upload", "sync-download", "download-upload")
"""Templates that a selection of playlists can be given to; the first three are at hand."""
NEVER: Found = Found([], None, 0, {})


@router.get("/playlists")
def playlists(request: Request, here: Here, q: Q = None, cursor: Cursor = None) -> HTMLResponse:
    """Pools, facets and a page of playlists. Counts are those of the last look at all, which says when it was."""
    words = words_of(request, here)
    backend = upload_backend(here.store, here.settings)
    error = None
    try:
        query = parse(q, PLAYLISTS)
    except QueryInvalid as wrong:
        query, error = Asked(), wrong
    looked = shelves(here.store, backend)
    found = NEVER
    if looked is not None and error is None:
        found = _found(request, here, looked, query, backend, cursor)
    return render(
        request, here, "playlists.html", page="playlists", live=LIVE, q=q or "", query=query, error=error, found=found,
        looked=looked, cursor=cursor, uploads=backend is not None, actions=ACTIONS,
        chips=_chips(words, query, found), now=here.store.clock.now(), **_said(words),
    )  # fmt: skip


def _found(
    request: Request, here: Room, looked: Shelves, query: Asked, backend: int | None, cursor: str | None
) -> Found:
    """What the regions asked for show: playlists are judged anew only where some are listed."""
    if wanted(request, "coverage", "playlist_list"):
        return here.store.read(lambda tx: find_playlists(tx, looked, query, backend, cursor=cursor, limit=PAGE))
    return replace(NEVER, facets=facets(looked, query)) if wanted(request, "facets") else NEVER


@router.get("/playlists/plan")
def plan(request: Request, here: Here) -> HTMLResponse:
    """What a job about these playlists would do, before it is started: ticked ones (`id`), or all that match `q`."""
    words = words_of(request, here)
    form = request.query_params
    chosen = field_of(form, "template")
    if chosen not in ACTIONS:
        raise InputInvalid(problem=N_("Choose what to do with these playlists: sync, download or upload."))
    picked = _picked(here, form)
    found, wrong = None, None
    try:
        found = planned(here, NewJob(template=chosen, scope=_scope(picked)))
    except InputInvalid as error:
        wrong = str(error)
    return render(
        request, here, "playlists_plan.html", page="playlists", plan=found, wrong=wrong, chosen=chosen, actions=ACTIONS,
        picked=picked, q=field_of(form, "q"), whole="all" in form, ids=form.getlist("id"),
        says_stop=lambda stop: stops(words, stop), says_basis=lambda stage: basis(words, stage),
    )  # fmt: skip


@router.post("/playlists/start")
def begin(request: Request, here: Here, who: Who, form: Form) -> Response:
    """The job of a plan. Of a filter, those that match now; the job names them one by one."""
    words = words_of(request, here)
    chosen = field(form, "template")
    if chosen not in ACTIONS:
        raise InputInvalid(problem=N_("Choose what to do with these playlists: sync, download or upload."))
    picked = _picked(here, form)
    job_id = start(here, NewJob(template=chosen, scope=_scope(picked), priority=_priority(form)), who)
    return go(request, here, f"/jobs/{job_id}", good=words.text("Job %(id)s is queued.", id=job_id))


@router.get("/playlists/{playlist_id}")
def playlist(request: Request, here: Here, playlist_id: Number, cursor: Cursor = None) -> HTMLResponse:
    words = words_of(request, here)
    backend = upload_backend(here.store, here.settings)
    after = place(cursor) or 0

    def read(tx: Tx) -> dict[str, Any]:
        line = playlist_detail(tx, playlist_id, upload_backend_id=backend)
        songs = list_songs(tx, parse_scope({"playlists": [playlist_id]}), after=after, limit=SONGS + 1)
        more = str(songs[SONGS - 1].id) if len(songs) > SONGS else None
        return {"line": line, "songs": songs[:SONGS], "more": more}

    return render(
        request, here, "playlists_one.html", page="playlists", live=LIVE, cursor=cursor, uploads=backend is not None,
        actions=ACTIONS, now=here.store.clock.now(), **here.store.read(read), **_said(words),
    )  # fmt: skip


# --- what was chosen --------------------------------------------------------------------------------


def field_of(form: ImmutableMultiDict[str, Any], name: str) -> str:
    return str(form.get(name) or "").strip()


def _picked(here: Room, form: ImmutableMultiDict[str, Any]) -> list[int] | None:
    """Numbers of playlists; None: every one there is."""
    if "all" not in form:
        ids = numbers(form, "id")
        if not ids:
            raise InputInvalid(problem=N_("No playlist is ticked."))
        return ids
    query = parse(field_of(form, "q"), PLAYLISTS)
    if not query:
        return None
    looked = shelves(here.store, upload_backend(here.store, here.settings))
    found = [] if looked is None else [each.id for each in matching(looked, query)]
    if not found:
        raise InputInvalid(problem=N_("No playlist matches this filter any more."))
    return sorted(found)


def _scope(picked: list[int] | None) -> dict[str, Any] | None:
    return None if picked is None else {"playlists": picked}


def _priority(form: ImmutableMultiDict[str, Any]) -> int:
    text = field_of(form, "priority") or "100"
    if not text.lstrip("-").isdecimal():
        raise InputInvalid(problem=N_("A priority is a whole number."))
    return int(text)


# --- how it is shown --------------------------------------------------------------------------------


def _chips(words: Words, query: Asked, found: Found) -> Callable[[Frame, str], list[Chip]]:
    def state(value: str) -> str:
        return f"{mark(value)} {words.word(value)}"

    return lambda frame, key: chips(frame, query, key, found.facets.get(key, ()), state if key == "status" else str)


def _said(words: Words) -> dict[str, Any]:
    return {"because": lambda line: because(words, line.reasons), "heat": heat, "completeness": completeness}


def completeness(line: PlaylistLine, uploads: bool) -> dict[str, int]:
    """A playlist's songs as a bar: done to the end, half way, failed, left."""
    done = min(line.downloaded, line.uploaded) if uploads else line.downloaded
    half = line.downloaded - done
    failed = min(line.failed, line.song_count - line.downloaded)
    gone = max(0, line.gone - failed)  # what is gone has mostly failed too: each song is shown once
    return {"total": line.song_count, "succeeded": done, "skipped": half, "failed": failed, "canceled": gone}


def heat(line: PlaylistLine, uploads: bool) -> list[tuple[str, int, int]]:
    """A column of the map: (stage, how warm from 0 to 4, percent). Of an empty playlist there is nothing to lack."""
    shares = [("sync", 1.0 if line.synced_at else 0.0)]
    parts = [("download", line.downloaded), *([("upload", line.uploaded)] if uploads else [])]
    for stage, count in parts:
        shares.append((stage, count / line.song_count if line.song_count else float(line.synced_at is not None)))
    return [(stage, 0 if not share else min(4, 1 + int(share * 3)), int(share * 100)) for stage, share in shares]
