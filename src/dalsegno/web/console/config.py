"""The settings file: every key with its help and where its value comes from, changed by form or as text.

What is typed is checked while it is typed; what would change and for whom is shown before anything is written.
Secrets go one way: they can be typed, and never come back.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import FormData

from dalsegno.config.compare import compare
from dalsegno.config.model import ConfigView, Field, Preview, State
from dalsegno.config.save import adopt as adopt_file
from dalsegno.config.save import save as save_file
from dalsegno.config.view import config_view, form_content, preview
from dalsegno.errors import DalSegnoError
from dalsegno.web.console.acting import Form, acted, field, go
from dalsegno.web.console.frame import render, words_of
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.meanings import refusal
from dalsegno.web.console.pages import pages
from dalsegno.web.room import Here, Room, Who

router = pages()

GROUPS = {
    "library": N_("Library"),
    "sources": N_("Sources"),
    "downloads": N_("Downloads"),
    "uploads": N_("Uploads"),
    "requests": N_("Parse requests"),
    "console": N_("Console"),
    "machine": N_("This machine"),
    "engine": N_("Engine"),
    "retention": N_("Retention"),
    "database": N_("Database"),
    "other": N_("Other"),
}
ORIGINS = {
    "default": N_("the default"),
    "file": N_("the file"),
    "environment": N_("the environment"),
    "option": N_("an option of the command line"),
}
TYPED, WAS = "key.", "was."
"""Before the names of keys in the form: what was typed, and what stood there. `drop.` takes one out."""


@router.get("/config")
@router.get("/config/check")
@router.get("/config/save")
def config(request: Request, here: Here) -> HTMLResponse:
    """Also where what was typed was shown again: reloaded, it is the file as it is."""
    return _page(request, here)


@router.get("/config/raw")
def raw(request: Request, here: Here) -> HTMLResponse:
    return _page(request, here, text=True)


@router.post("/config/check")
def check(request: Request, here: Here, form: Form) -> HTMLResponse:
    """What was typed, judged: the page again, or only its `review` where a script asks. Nothing is written."""
    return _page(request, here, form=form, text="content" in form, only="hx-request" in request.headers)


@router.post("/config/save")
def save(request: Request, here: Here, who: Who, form: Form) -> Response:
    words = words_of(request, here)
    content = _content(here, config_view(here.store, here.config), form)
    try:
        saved = save_file(
            here.store, here.config, content,
            note=field(form, "note") or None, by=who, base_version=field(form, "base_version"),
        )  # fmt: skip
    except DalSegnoError as error:
        return _page(request, here, form=form, text="content" in form, trouble=refusal(words, error.code, str(error)))
    to = "/config/raw" if "content" in form else "/config"
    if not saved.created:
        return go(request, here, to, good=words.text("The file said exactly this already."))
    said = [words.text("Saved as revision %(id)s.", id=saved.revision.id), *impact_told(request, here, saved.impact)]
    return go(request, here, to, good=" ".join(said))


@router.post("/config/adopt")
def adopt(request: Request, here: Here, who: Who, form: Form) -> Response:
    words = words_of(request, here)

    def work() -> str:
        note, version = field(form, "note") or None, field(form, "base_version")
        saved = adopt_file(here.store, here.config, by=who, note=note, base_version=version)
        return words.text("The file on disk is revision %(id)s now.", id=saved.revision.id)

    return acted(request, here, form, work, "/config")


# --- the page ---------------------------------------------------------------------------------------


def _page(
    request: Request,
    here: Room,
    *,
    form: FormData | None = None,
    text: bool = False,
    trouble: str = "",
    only: bool = False,
) -> HTMLResponse:
    view = config_view(here.store, here.config)
    typed = {} if form is None else _typed(form)
    content = view.content if form is None else _content(here, view, form)
    judged = None if form is None else preview(here.store, here.config, content)
    on_disk = None
    if view.state == State.DISK_CHANGED and view.revision is not None:
        on_disk = compare(here.store, here.config, view.revision.id, None).diff
    moved = form is not None and field(form, "base_version") != view.version
    if only:  # just the part that says what is wrong with it
        request = Request({**request.scope, "query_string": b"fragment=review"})
    return render(
        request, here, "config.html", page="config", live=("config",), view=view, text=text, judged=judged,
        groups=[(name, list(fields)) for name, fields in groupby(view.fields, lambda each: each.group)],
        titles=GROUPS, origins=ORIGINS, typed=typed, faults=_by_key(view, judged), trouble=trouble, moved=moved,
        content=content if judged is None else judged.content, note="" if form is None else field(form, "note"),
        on_disk=on_disk, impact=[] if judged is None else impact_told(request, here, judged.impact),
        retype=judged is not None and not only and any(each.secret and each.after for each in judged.diff.keys),
    )  # fmt: skip


def _typed(form: FormData) -> dict[str, str]:
    """Answers that are others than the page had: what nobody touched is left to the file, whatever it says by now."""
    found = {}
    for name, value in form.items():
        key = name.removeprefix(TYPED)
        if name.startswith(TYPED) and str(value).strip() != str(form.get(f"{WAS}{key}", "")).strip():
            found[key] = str(value).strip()
    return found


def _by_key(view: ConfigView, judged: Preview | None) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for fault in view.errors if judged is None else judged.errors:
        found.setdefault(fault.key or "", []).append(fault)
    return found


# --- what was typed ---------------------------------------------------------------------------------


def _content(here: Room, view: ConfigView, form: FormData) -> str:
    """The file's text as it was typed, or as the form's answers make it."""
    if "content" in form:
        typed = str(form["content"])
        return typed if "\r\n" in view.content else typed.replace("\r\n", "\n")  # forms always send \r\n
    return form_content(here.config, changes(view.fields, form))


def changes(fields: tuple[Field, ...], form: FormData) -> dict[str, str | None]:
    """What the answers change: those that are as the file has them are left alone, with their quotes and remarks."""
    typed = _typed(form)
    found: dict[str, str | None] = {}
    for each in fields:
        now = each.in_file or ""
        answer = typed.get(each.key, now)
        if f"drop.{each.key}" in form:
            found[each.key] = None
        elif answer != now and (answer or not each.secret):
            found[each.key] = answer
    name = field(form, "new.key").upper()
    if name:
        found[name] = field(form, "new.value")
    return found


def impact_told(request: Request, here: Room, impact: Any) -> list[str]:
    """What a change means for jobs, a sentence each."""
    words = words_of(request, here)
    said = []
    for each in impact.kept:
        status = words.word(each.status)
        if each.revision_id is None:
            told = words.plural(
                "%(n)s %(status)s job keeps the settings it began with.",
                "%(n)s %(status)s jobs keep the settings they began with.",
                each.jobs, status=status,
            )  # fmt: skip
        else:
            told = words.plural(
                "%(n)s %(status)s job keeps snapshot #%(id)s.",
                "%(n)s %(status)s jobs keep snapshot #%(id)s.",
                each.jobs, status=status, id=each.revision_id,
            )  # fmt: skip
        said.append(told)
    said.append(words.text("New jobs use #%(id)s.", id=impact.revision_id))
    if impact.restart_needed:
        keys = ", ".join(impact.restart_needed)
        said.append(words.text("%(keys)s: counts from the next start of the process on.", keys=keys))
    if impact.overridden:
        keys = ", ".join(impact.overridden)
        said.append(words.text("%(keys)s: no effect, the environment or an option says otherwise.", keys=keys))
    return said
