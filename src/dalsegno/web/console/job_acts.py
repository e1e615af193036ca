"""What can be done with a job: paused, resumed, canceled, put before others, retried, started again."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import Response
from starlette.datastructures import FormData

from dalsegno.errors import InputInvalid
from dalsegno.web.api.cloning import cloned
from dalsegno.web.api.jobs import overriding
from dalsegno.web.api.parameters import Number
from dalsegno.web.console.acting import Form, acted, commanded, fate, field, go
from dalsegno.web.console.frame import words_of
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.numbers import numbers
from dalsegno.web.console.pages import pages
from dalsegno.web.room import Here, Who

router = pages()

OVERRIDE = "override."
MOST = 200
"""Items that one form may name; more are a matter of a query."""


@router.post("/jobs/{job_id}/pause")
def pause(request: Request, here: Here, who: Who, form: Form, job_id: Number) -> Response:
    words = words_of(request, here)

    def work() -> str:
        reason, stage = field(form, "reason"), field(form, "stage")
        payload = {key: value for key, value in (("reason", reason), ("stage", stage)) if value}
        command = commanded(here, who, "pause_stage" if stage else "pause", job_id=job_id, payload=payload)
        return fate(request, here, command, words.text("Job %(id)s pauses: what runs may finish.", id=job_id))

    return acted(request, here, form, work, f"/jobs/{job_id}")


@router.post("/jobs/{job_id}/resume")
def resume(request: Request, here: Here, who: Who, form: Form, job_id: Number) -> Response:
    """With `override.LIBRARY_ROOT=…` and the like, or `key` and `value`, settings change from here on."""
    words = words_of(request, here)

    def work() -> str:
        stage = field(form, "stage")
        if stage:
            command = commanded(here, who, "resume_stage", job_id=job_id, payload={"stage": stage})
        else:
            payload = overriding(here, job_id, _overrides(form))
            command = commanded(here, who, "resume", job_id=job_id, payload=payload)
        return fate(request, here, command, words.text("Job %(id)s goes on from the mark.", id=job_id))

    return acted(request, here, form, work, f"/jobs/{job_id}")


def _overrides(form: FormData) -> dict[str, Any]:
    named = {key.removeprefix(OVERRIDE): str(value).strip() for key, value in form.multi_items()
             if key.startswith(OVERRIDE)}  # fmt: skip
    for key, value in zip(form.getlist("key"), form.getlist("value"), strict=False):
        named[str(key).strip()] = str(value).strip()
    return {key: value for key, value in named.items() if key and value}


@router.post("/jobs/{job_id}/cancel")
def cancel(request: Request, here: Here, who: Who, form: Form, job_id: Number) -> Response:
    words = words_of(request, here)

    def work() -> str:
        command = commanded(here, who, "cancel", job_id=job_id)
        return fate(request, here, command, words.text("Job %(id)s is being canceled.", id=job_id))

    return acted(request, here, form, work, f"/jobs/{job_id}")


@router.post("/jobs/{job_id}/priority")
def priority(request: Request, here: Here, who: Who, form: Form, job_id: Number) -> Response:
    words = words_of(request, here)

    def work() -> str:
        text = field(form, "priority")
        try:
            payload = {"priority": int(text)}
        except ValueError:
            raise InputInvalid(problem=N_("A priority is a whole number.")) from None
        command = commanded(here, who, "set_priority", job_id=job_id, payload=payload)
        done = words.text("Job %(id)s has priority %(n)s.", id=job_id, n=payload["priority"])
        return fate(request, here, command, done)

    return acted(request, here, form, work, "/jobs")


@router.post("/jobs/{job_id}/clone")
def clone(request: Request, here: Here, who: Who, form: Form, job_id: Number) -> Response:
    words = words_of(request, here)

    def work() -> Response:
        made = cloned(here, job_id, priority=None, by=who)
        return go(request, here, f"/jobs/{made}", good=words.text("Job %(id)s is queued.", id=made))

    return acted(request, here, form, work, f"/jobs/{job_id}")


@router.post("/jobs/{job_id}/retry")
def retry_failed(request: Request, here: Here, who: Who, form: Form, job_id: Number) -> Response:
    """All that failed, and nothing else; or the items that were ticked, where the form is about these."""
    words = words_of(request, here)
    ticked = numbers(form, "id")
    if len(ticked) > MOST:
        raise InputInvalid(problem=N_("These are more items than a form may name; use a filter for them."))

    def work() -> str:
        if ticked:
            command = commanded(here, who, "bulk_retry", job_id=job_id, payload={"items": ticked})
            done = words.plural("%(n)s item is tried again.", "%(n)s items are tried again.", len(ticked))
        elif field(form, "ticked"):
            raise InputInvalid(problem=N_("No item is ticked, so nothing was retried."))
        else:
            command = commanded(here, who, "bulk_retry", job_id=job_id, payload={"query": f"job:{job_id} state:failed"})
            done = words.text("What failed in job %(id)s is tried again.", id=job_id)
        return fate(request, here, command, done)

    return acted(request, here, form, work, f"/jobs/{job_id}")
