"""Something done to everything that matches: first a preview, then an operation that can be followed and stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import ImmutableMultiDict

from dalsegno.catalog.find import ITEMS
from dalsegno.engine.bulk import stop_bulk
from dalsegno.errors import InputInvalid
from dalsegno.insight.bulk import Action, Preview, preview, preview_of
from dalsegno.insight.groups import GROUPS, group_names
from dalsegno.insight.jobs import JOBS, find_jobs
from dalsegno.insight.operations import find_operations, get_operation
from dalsegno.insight.query import LONGEST, MOST_VALUES, Query, parse
from dalsegno.insight.walk import SECONDS
from dalsegno.requests.subjects import names_of
from dalsegno.store.store import Tx
from dalsegno.web.api.parameters import Number
from dalsegno.web.console.acting import Form, acted, commanded, field, go, local
from dalsegno.web.console.frame import render, words_of
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.numbers import numbers
from dalsegno.web.console.pages import pages
from dalsegno.web.room import Here, Who

router = pages()

PAGE = 30
LONGER = 2.0
"""Seconds for counting, for whoever wants to know it exactly."""
ACTS: dict[str, Action] = {
    "retry": "bulk_retry", "force_retry": "bulk_force_retry", "skip": "bulk_skip", "cancel": "bulk_cancel",
    "priority": "bulk_priority",
}  # fmt: skip
TITLES = {
    "retry": N_("Retry"),
    "force_retry": N_("Force-retry"),
    "skip": N_("Skip"),
    "cancel": N_("Cancel items"),
    "priority": N_("Change the priority"),
}
SAYS = {
    "retry": N_("Items that failed or were interrupted get a fresh budget of attempts; finished jobs go on for them."),
    "force_retry": N_("Also what is done is done once more: files are fetched again, and old ones stay until then."),
    "skip": N_("What waits, failed or was interrupted is not done, and what follows from it goes on as if it were."),
    "cancel": N_("What waits is taken out of its job for good. What runs is not touched."),
    "priority": N_("A priority is a job's: it changes for every job that owns one of the items and is not over."),
}
WHY = {
    "being_canceled": N_("their job is being canceled"),
    "twin_active": N_("another job does the same now"),
    "another_job": N_("of another job"),
    "same_priority": N_("have this priority already"),
    "finished": N_("are over"),
    "pruned": N_("their job is kept no longer"),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the preview is about, as the form that starts it says it again."""

    act: str
    q: str
    ids: list[int]
    priority: int | None
    first: int | None = None
    """Of jobs or groups more match than a query can name: it is about so many."""


@router.get("/bulk")
def operations(request: Request, here: Here, cursor: str | None = None) -> HTMLResponse:
    found = here.store.read(lambda tx: find_operations(tx, cursor=cursor, limit=PAGE))
    return render(
        request, here, "bulk_list.html", page="jobs", live=() if cursor else ("commands", "items", "jobs"), found=found,
        cursor=cursor, acts=_by_verb(), now=here.store.clock.now(),
    )  # fmt: skip


@router.get("/bulk/new")
def bulk(request: Request, here: Here) -> HTMLResponse:
    """How many it would be done to, to how many not and why, and to which first. Nothing is changed."""
    form = request.query_params
    longer = "longer" in form

    def read(tx: Tx) -> tuple[Asked, Preview, dict[str, str]]:
        asked = _asked(tx, form)
        seen = _preview(tx, asked, LONGER if longer else SECONDS)
        return asked, seen, {} if seen.unit == "jobs" else names_of(tx, seen.names)

    asked, seen, names = here.store.read(read)
    return render(
        request, here, "bulk.html", page="jobs", asked=asked, act=asked.act, acts=TITLES, says=SAYS, why=WHY, seen=seen,
        names=names, longer=longer, back=local(str(form.get("back") or ""), "/songs"),
    )  # fmt: skip


@router.post("/bulk")
def begin(request: Request, here: Here, who: Who, form: Form) -> Response:
    """The command itself. Guards are asked again for every item, at the moment it is changed."""
    asked = here.store.read(lambda tx: _asked(tx, form))
    payload: dict[str, Any] = {"items": asked.ids} if asked.ids else {"query": asked.q}
    if asked.act == "priority":
        payload["priority"] = asked.priority
    command = commanded(here, who, ACTS[asked.act], payload=payload)
    back = local(field(form, "back"), "/songs")
    return go(request, here, f"/bulk/{command.id}?back={quote(back, safe='')}")


@router.get("/bulk/{operation_id}")
def follow(request: Request, here: Here, operation_id: Number) -> HTMLResponse:
    found = here.store.read(lambda tx: get_operation(tx, operation_id))
    return render(
        request, here, "bulk_follow.html", page="jobs", live=("commands", "items", "jobs"), found=found,
        command=found.command, title=_by_verb()[found.verb], why=WHY,
        back=local(str(request.query_params.get("back") or ""), "/bulk"), now=here.store.clock.now(),
    )  # fmt: skip


@router.post("/bulk/{operation_id}/stop")
def stop(request: Request, here: Here, form: Form, operation_id: Number) -> Response:
    words = words_of(request, here)

    def work() -> str:
        here.store.write("stop", lambda tx: stop_bulk(tx, operation_id))
        return words.text("It stops after the bit it is at. What it has done stays done.")

    return acted(request, here, form, work, f"/bulk/{operation_id}")


def _by_verb() -> dict[str, str]:
    return {act.replace("_", "-"): title for act, title in TITLES.items()}


# --- what is asked for ------------------------------------------------------------------------------


def _asked(tx: Tx, form: ImmutableMultiDict[str, Any]) -> Asked:
    act, ids = _act(form), numbers(form, "id")
    priority = _priority(form) if act == "priority" else None
    if ids:
        return Asked(act, "", ids, priority)
    query = parse(str(form.get("q") or ""), ITEMS)
    if "jobs" in form:  # those that match now, by number: a job that is retried soon matches no more
        jobs = find_jobs(tx, parse(str(form["jobs"]), JOBS), limit=MOST_VALUES)
        found = [str(line.job.id) for line in jobs.lines]
        return _named(act, query, "job", found or ["0"], jobs.next_cursor is not None, priority)
    if "groups" in form:
        names, more = group_names(tx, parse(str(form["groups"]), GROUPS), MOST_VALUES)
        return _named(act, query.with_("state", "failed"), "group", names or ["none"], more, priority)
    return Asked(act, str(query), [], priority)


def _named(act: str, query: Query, key: str, names: list[str], more: bool, priority: int | None) -> Asked:
    """A query that names these, as far as it has room for them."""
    room = LONGEST - len(f"{query} {key}:")
    kept = []
    for name in names:
        room -= len(name) + 1
        if room < 0:
            break
        kept.append(name)
    cut = more or len(kept) < len(names)
    return Asked(act, str(query.with_(key, *kept)), [], priority, len(kept) if cut else None)


def _preview(tx: Tx, asked: Asked, seconds: float) -> Preview:
    action = ACTS[asked.act]
    if asked.ids:
        return preview_of(tx, action, asked.ids, priority=asked.priority)
    query = parse(asked.q, ITEMS)
    return preview(tx, action, query, among=ITEMS, priority=asked.priority, seconds=seconds)


def _act(form: ImmutableMultiDict[str, Any]) -> str:
    act = str(form.get("act") or "")
    if act not in ACTS:
        raise InputInvalid(problem=N_("Choose what to do with these items."))
    if not form.getlist("id") and not {"q", "jobs", "groups"} & set(form):
        raise InputInvalid(problem=N_("No item is ticked."))
    return act


def _priority(form: ImmutableMultiDict[str, Any]) -> int:
    text = str(form.get("priority") or "50").strip()
    try:
        return int(text)
    except ValueError:
        raise InputInvalid(problem=N_("A priority is a whole number.")) from None
