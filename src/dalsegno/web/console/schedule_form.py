"""The form that makes or changes a schedule, with a preview of when it would be due."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import FormData, ImmutableMultiDict

from dalsegno.catalog.offered import offered_playlists, offered_pools
from dalsegno.catalog.orders import is_template
from dalsegno.catalog.templates import TEMPLATES
from dalsegno.clock import local_zone
from dalsegno.engine import schedules as engine
from dalsegno.errors import DalSegnoError, InputInvalid
from dalsegno.insight.schedules import get_schedule, preview
from dalsegno.insight.workflows import list_workflows
from dalsegno.model.cron import zones
from dalsegno.model.records import ScheduleRecord
from dalsegno.requests.workflow import PARSE
from dalsegno.store.store import Tx
from dalsegno.web.api.parameters import Number
from dalsegno.web.api.schedules import checked
from dalsegno.web.console.acting import Form, field, go
from dalsegno.web.console.frame import render, wanted, words_of
from dalsegno.web.console.i18n import N_, language_of
from dalsegno.web.console.jobs import asked, sources_of
from dalsegno.web.console.meanings import refusal
from dalsegno.web.console.pages import pages
from dalsegno.web.console.schedules import CATCH_UP, OVERLAP, there
from dalsegno.web.room import Here, Room, Who

router = pages()

COUNT = 5
NEW = {"catch_up": "one", "catch_up_most": "10", "overlap": "skip", "priority": "100", "cron": "30 2 * * *",
       "template": "full"}  # fmt: skip
COMMON = {
    "0 * * * *": N_("every hour"),
    "30 2 * * *": N_("every night at 02:30"),
    "0 */6 * * *": N_("every six hours"),
    "0 4 * * SUN": N_("Sundays at 04:00"),
    "0 0 1 * *": N_("the first of the month"),
}
"""Expressions that people start from."""


@router.get("/schedules/new")
def new_schedule(request: Request, here: Here) -> HTMLResponse:
    """The form; it may be filled in by the address."""
    given = {**NEW, "time_zone": local_zone(), **dict(request.query_params)}
    lists = [(key, value) for key, value in request.query_params.multi_items() if key in ("sources", "pool")]
    return _form(request, here, FormData([*((k, v) for k, v in given.items() if k not in ("sources", "pool")), *lists]))


@router.post("/schedules")
def create_schedule(request: Request, here: Here, who: Who, form: Form) -> Response:
    try:
        wanted_ = engine.Schedule(**_said(here, form))
        number = here.store.write("schedule", lambda tx: engine.add(tx, wanted_, who))
    except DalSegnoError as error:
        return _form(request, here, form, error)
    said = words_of(request, here).text("Schedule %(name)s is added.", name=wanted_.name)
    return go(request, here, f"/schedules/{number}", good=said)


@router.get("/schedules/{schedule_id:int}/edit")
def edit_schedule(request: Request, here: Here, schedule_id: Number) -> HTMLResponse:
    it = here.store.read(lambda tx: get_schedule(tx, schedule_id)).schedule
    form = FormData([*request.query_params.multi_items()]) if "cron" in request.query_params else _filled(it)
    return _form(request, here, form, it=it)


@router.post("/schedules/{schedule_id:int}")
def change_schedule(request: Request, here: Here, who: Who, schedule_id: Number, form: Form) -> Response:
    it = here.store.read(lambda tx: get_schedule(tx, schedule_id)).schedule
    try:
        changes = _said(here, form, it.request.get("options"))
        here.store.write("schedule", lambda tx: engine.change(tx, schedule_id, changes, who))
    except DalSegnoError as error:
        return _form(request, here, form, error, it=it)
    return go(request, here, f"/schedules/{schedule_id}", good=words_of(request, here).text("It is changed."))


def _said(here: Room, form: FormData, options: Any = None) -> dict[str, Any]:
    """What the form says, what it starts checked; `options`, which it has no field for, stay."""
    new = asked(form)
    request: dict[str, Any] = {"options": options}
    if is_template(new.template):
        request |= {"scope": new.scope, "download_sources": new.download_sources}
    else:
        request |= {"params": _object(field(form, "params")), "items": _items(field(form, "items"))}
    order = checked(here, new.template, {key: value for key, value in request.items() if value})
    return {
        **{key: field(form, key) for key in ("name", "cron", "time_zone", "catch_up", "overlap")},
        "catch_up_most": _count(field(form, "catch_up_most") or NEW["catch_up_most"]),
        "priority": new.priority,
        "workflow": order.workflow,
        "request": dict(order.request),
    }


def _items(text: str) -> Any:
    """A key or a JSON object a line; or one JSON document, of items by step."""
    try:
        found = json.loads(text) if text.startswith(("{", "[")) else None
        if found is not None and not (isinstance(found, dict) and "key" in found):
            return found
    except ValueError:
        pass  # one a line, then
    try:
        lines = [line.strip() for line in text.splitlines()]
        return [json.loads(line) if line.startswith("{") else line for line in lines if line]
    except ValueError:
        raise InputInvalid(problem=N_("An item is a key, or a JSON object with key and params.")) from None


def _written(items: Any) -> str:
    if isinstance(items, list):
        return "\n".join(each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in items)
    return json.dumps(items, ensure_ascii=False) if items else ""


def _object(text: str) -> Any:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputInvalid(problem=N_('Parameters are written as JSON: {"depth": 2}.'))
    return found


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 6):
        raise InputInvalid(problem=N_("How many missed runs are started is a whole number."))
    return int(text)


def _filled(it: ScheduleRecord) -> FormData:
    """The form as somebody would have filled it in."""
    scope: Mapping[str, Any] = it.request.get("scope") or {}
    one = {name: str(getattr(it, name)) for name in (*NEW, "name", "time_zone") if name != "template"}
    one |= {
        "template": it.workflow,
        "query": str(scope.get("query") or ""),
        "playlists": "\n".join(map(str, scope.get("playlists") or ())),
        "songs": "\n".join(map(str, scope.get("songs") or ())),
        "download_sources": ", ".join(map(str, it.request.get("download_sources") or ())),
        "params": json.dumps(it.request["params"], ensure_ascii=False) if it.request.get("params") else "",
        "items": _written(it.request.get("items")),
    }
    many = [("sources", str(each)) for each in scope.get("sources") or ()]
    many += [("pool", str(each)) for each in scope.get("pools") or ()]
    return FormData([*one.items(), *many])


def _form(
    request: Request, here: Room, form: ImmutableMultiDict[str, Any], error: DalSegnoError | None = None,
    it: ScheduleRecord | None = None,
) -> HTMLResponse:  # fmt: skip
    words = words_of(request, here)
    whole = wanted(request, "main")

    def read(tx: Tx) -> dict[str, Any]:
        own = [each.name for each in list_workflows(tx) if each.is_active and each.name not in (*TEMPLATES, PARSE.name)]
        return {
            "pools": offered_pools(tx), "playlists": offered_playlists(tx), "workflows": list(dict.fromkeys(own)),
        }  # fmt: skip

    known = here.store.read(read) if whole else {"pools": [], "playlists": [], "workflows": []}
    chosen = str(form.get("template") or "")
    return render(
        request, here, "schedule_form.html", page="schedules", status=200 if error is None else error.status,
        form=form, it=it, chosen=chosen, catch_up=CATCH_UP, overlap=OVERLAP, common=COMMON,
        wrong=None if error is None else refusal(words, error.code, str(error)),
        due=_due(here, form), now=here.store.clock.now(), there=there(language_of(request, here.settings)),
        templates=list(TEMPLATES), zones=zones() if whole else (), sources=sources_of(here) if whole else [],
        english=words.english, **known,
    )  # fmt: skip


def _due(here: Room, form: Mapping[str, Any]) -> dict[str, Any]:
    """When it would be due, or what is wrong with the expression or the zone."""
    zone = str(form.get("time_zone") or "").strip()
    try:
        found = preview(str(form.get("cron") or ""), zone, here.store.clock.now(), COUNT)
    except DalSegnoError as error:
        return {"wrong": error, "times": [], "zone": zone, "says": ""}
    times: list[datetime] = found.runs
    return {"wrong": None, "times": times, "zone": found.time_zone, "says": found.says}
