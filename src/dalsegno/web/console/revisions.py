"""Revisions of the settings file: what was saved, by whom and why, compared, applied again, and who ran with them."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from dalsegno.config.compare import compare
from dalsegno.config.jobs import jobs_of_revision
from dalsegno.config.revisions import get_revision, list_revisions
from dalsegno.config.save import apply as apply_revision
from dalsegno.config.view import config_view, preview
from dalsegno.errors import InputInvalid
from dalsegno.store.store import Tx
from dalsegno.web.api.parameters import Number, place
from dalsegno.web.console.acting import Form, acted, field, go
from dalsegno.web.console.config import impact_told
from dalsegno.web.console.frame import render, words_of
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.pages import pages
from dalsegno.web.room import Here, Who

router = pages()

PAGE = 30
JOBS = 30
DISK = "disk"
"""How the file itself is named where revisions are compared."""


@router.get("/config/revisions")
def revisions(request: Request, here: Here, cursor: str | None = None) -> HTMLResponse:
    before = place(cursor)
    found = here.store.read(lambda tx: list_revisions(tx, here.config, before=before, limit=PAGE + 1))
    onward = str(found[PAGE - 1].revision.id) if len(found) > PAGE else None
    return render(
        request, here, "config_revisions.html", page="config", live=("config",), lines=found[:PAGE], onward=onward,
        cursor=cursor,
    )  # fmt: skip


@router.get("/config/compare")
def comparison(request: Request, here: Here, a: str = "", b: str = DISK) -> HTMLResponse:
    """Any two; `disk` is the file as it is."""
    found = compare(here.store, here.config, _side(a), _side(b))
    return render(request, here, "config_compare.html", page="config", found=found, a=a, b=b)


def _side(name: str) -> int | None:
    if name == DISK:
        return None
    if not (name.isascii() and name.isdecimal() and 0 < int(name[:19]) < 2**63):
        raise InputInvalid(problem=N_("Choose two revisions to compare."))
    return int(name)


@router.get("/config/revisions/{revision_id}")
def revision(request: Request, here: Here, revision_id: Number) -> HTMLResponse:
    """One: what it says, what applying it would change, and which jobs were made with it."""

    def read(tx: Tx) -> dict[str, Any]:
        return {"revision": get_revision(tx, revision_id), "jobs": jobs_of_revision(tx, revision_id, limit=JOBS + 1)}

    values = here.store.read(read)
    view = config_view(here.store, here.config)
    judged = preview(here.store, here.config, values["revision"].content)
    return render(
        request, here, "config_revision.html", page="config", view=view, judged=judged, most=JOBS,
        impact=impact_told(request, here, judged.impact), **values,
    )  # fmt: skip


@router.post("/config/revisions/{revision_id}/apply")
def apply(request: Request, here: Here, who: Who, form: Form, revision_id: Number) -> Response:
    words = words_of(request, here)

    def work() -> Response:
        saved = apply_revision(
            here.store, here.config, revision_id,
            by=who, note=field(form, "note") or None, base_version=field(form, "base_version"),
        )  # fmt: skip
        told = [
            words.text(
                "Revision %(old)s is in force again, as revision %(id)s.", old=revision_id, id=saved.revision.id
            ),
            *impact_told(request, here, saved.impact),
        ]
        return go(request, here, "/config/revisions", good=" ".join(told))

    return acted(request, here, form, work, f"/config/revisions/{revision_id}")
