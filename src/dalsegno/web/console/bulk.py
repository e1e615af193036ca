"""Something done to many items: first a preview, then a command that can be followed and stopped."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import ImmutableMultiDict

from dalsegno.catalog.find import ITEMS
from dalsegno.engine.bulk import stop_bulk
from dalsegno.errors import InputInvalid, NotFound
from dalsegno.insight.bulk import Action, Preview, preview, preview_of
from dalsegno.insight.commands import get_command
from dalsegno.insight.query import parse
from dalsegno.requests.subjects import names_of
from dalsegno.store.store import Tx
from dalsegno.web.api.parameters import Number
from dalsegno.web.console.acting import Form, acted, commanded, field, go, local
from dalsegno.web.console.frame import render, words_of
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.pages import pages
from dalsegno.web.room import Here, Room, Who

router = pages()

ACTS: dict[str, Action] = {"retry": "bulk_retry", "force_retry": "bulk_force_retry", "cancel": "bulk_cancel"}
TITLES = {"retry": N_("Retry"), "force_retry": N_("Force-retry"), "cancel": N_("Cancel items")}
SAYS = {
    "retry": N_("Items that failed or were interrupted get a fresh budget of attempts; finished jobs go on for them."),
    "force_retry": N_("Also what is done is done once more: files are fetched again, and old ones stay until then."),
    "cancel": N_("What waits is taken out of its job for good. What runs is not touched."),
}


@router.get("/songs/bulk")
def bulk(request: Request, here: Here) -> HTMLResponse:
    """How many it would be done to, to how many not and why, and to which first. Nothing is changed."""
    form = request.query_params
    act, seen = _asked(here, form)
    keys = seen.names
    names = here.store.read(lambda tx: names_of(tx, keys))
    return render(
        request, here, "songs_bulk.html", page="songs", act=act, acts=TITLES, says=SAYS, seen=seen, names=names,
        q=str(form.get("q") or ""), ids=_ids(form),
        back=local(str(form.get("back") or ""), "/songs"),
    )  # fmt: skip


@router.post("/songs/bulk")
def begin(request: Request, here: Here, who: Who, form: Form) -> Response:
    """The command itself. Guards are asked again for every item, at the moment it is changed."""
    act = _act(form)
    ids = _ids(form)
    payload: dict[str, Any] = {"items": ids} if ids else {"query": str(parse(field(form, "q"), ITEMS))}
    command = commanded(here, who, ACTS[act], payload=payload)
    back = local(field(form, "back"), "/songs")
    return go(request, here, f"/songs/bulk/{command.id}?back={quote(back, safe='')}")


@router.get("/songs/bulk/{command_id}")
def follow(request: Request, here: Here, command_id: Number) -> HTMLResponse:
    def read(tx: Tx) -> Any:
        found = get_command(tx, command_id)
        if found.type not in ACTS.values():
            raise NotFound(what="command about many items", id=command_id)
        return found

    command = here.store.read(read)
    act = next(act for act, kind in ACTS.items() if kind == command.type)
    return render(
        request, here, "songs_bulk_follow.html", page="songs", live=("commands", "items"), command=command, act=act,
        acts=TITLES, progress=command.progress or {}, back=local(str(request.query_params.get("back") or ""), "/songs"),
        now=here.store.clock.now(),
    )  # fmt: skip


@router.post("/songs/bulk/{command_id}/stop")
def stop(request: Request, here: Here, form: Form, command_id: Number) -> Response:
    words = words_of(request, here)

    def work() -> str:
        here.store.write("stop", lambda tx: stop_bulk(tx, command_id))
        return words.text("It stops after the bit it is at. What it has done stays done.")

    return acted(request, here, form, work, f"/songs/bulk/{command_id}")


def _asked(here: Room, form: ImmutableMultiDict[str, Any]) -> tuple[str, Preview]:
    act, ids = _act(form), _ids(form)
    if ids:
        return act, here.store.read(lambda tx: preview_of(tx, ACTS[act], ids))
    query = parse(str(form.get("q") or ""), ITEMS)
    return act, here.store.read(lambda tx: preview(tx, ACTS[act], query, among=ITEMS))


def _act(form: ImmutableMultiDict[str, Any]) -> str:
    act = str(form.get("act") or "")
    if act not in ACTS:
        raise InputInvalid(problem=N_("Choose what to do with these items."))
    if not form.getlist("id") and "q" not in form:
        raise InputInvalid(problem=N_("No item is ticked."))
    return act


def _ids(form: ImmutableMultiDict[str, Any]) -> list[int]:
    texts = {text for text in map(str, form.getlist("id")) if text.isascii() and text.isdecimal() and len(text) < 19}
    return sorted(int(text) for text in texts if int(text))
