"""What forms do: something is asked for, its fate is awaited a little, and the reader is led back to where they were.

Forms are plain: they work without scripts. Every one has a hidden `back`, so that filters survive an action.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.datastructures import FormData

from dalsegno.engine.commander import request as write_down
from dalsegno.engine.submit import to_json
from dalsegno.errors import DalSegnoError, InputInvalid
from dalsegno.insight.commands import get_command
from dalsegno.model.records import CommandRecord
from dalsegno.model.states import CommandStatus
from dalsegno.web.answers import without
from dalsegno.web.console.frame import flashed, words_of
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.meanings import refusal
from dalsegno.web.room import Room

PATIENCE = 2.0
"""Seconds that a form waits to see what became of its command, so that the page it leads to shows it."""
LOOK_EVERY = 0.05
MOST = 2000
"""Fields of a form: a page of ticked rows has fewer."""


async def _form(request: Request) -> FormData:
    """A plain form's fields; FastAPI's own would need a parser for uploads, which there are none of."""
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return FormData([*parse_qsl(text, keep_blank_values=True, max_num_fields=MOST)])
    except ValueError:  # read as an empty one, it might be about everything
        raise InputInvalid(problem=N_("These are more fields than any form here has.")) from None


Form = Annotated[FormData, Depends(_form)]


def field(form: FormData, name: str) -> str:
    return str(form.get(name) or "").strip()


def local(path: str, otherwise: str) -> str:
    """An address on this very console; anything else is not followed."""
    try:
        parts = urlsplit(path)
    except ValueError:
        return otherwise
    ours = path.startswith("/") and not path.startswith(("//", "/\\")) and not parts.netloc and path.isprintable()
    return path if ours and len(path) < 4000 else otherwise


def go(request: Request, here: Room, to: str, *, good: str = "", bad: str = "") -> Response:
    """Back to a page, which says what became of it."""
    answer: Response = RedirectResponse(to, status_code=303)
    shown = urlsplit(request.headers.get("hx-current-url", "")).path
    if "hx-request" in request.headers and shown != urlsplit(to).path:
        # A script follows a redirect and puts what comes into the page it is on: another page must be gone to.
        answer = Response(status_code=204, headers={"HX-Redirect": answer.headers["location"]})
    if good or bad:
        said = without(here.settings.secrets(), bad or good)
        answer.set_cookie(**flashed("bad" if bad else "good", said))
    return answer


def acted(request: Request, here: Room, form: FormData, work: Callable[[], str | Response], otherwise: str) -> Response:
    """Do `work`, which gives a sentence about what was done or where to go; its error is a sentence too."""
    to = local(field(form, "back"), otherwise)
    try:
        done = work()
    except DalSegnoError as error:
        return go(request, here, to, bad=refusal(words_of(request, here), error.code, str(error)))
    return go(request, here, to, good=done) if isinstance(done, str) else done


def commanded(
    here: Room,
    who: str,
    kind: str,
    *,
    job_id: int | None = None,
    item_id: int | None = None,
    payload: dict[str, Any] | None = None,
) -> CommandRecord:
    """Write a command down and wait a little for an engine to apply it."""
    to_json(payload or {}, "the form")
    command_id = here.store.write(
        "request",
        lambda tx: write_down(tx, kind, job_id=job_id, item_id=item_id, payload=payload or None, requested_by=who),
    )
    return followed(here, command_id)


def followed(here: Room, command_id: int) -> CommandRecord:
    give_up = time.monotonic() + PATIENCE
    while True:
        command = here.store.read(lambda tx: get_command(tx, command_id))
        if command.status != CommandStatus.PENDING or time.monotonic() > give_up:
            return command
        time.sleep(LOOK_EVERY)


def fate(request: Request, here: Room, command: CommandRecord, done: str) -> str:
    """What to say about a command: `done` where it was applied."""
    if command.status == CommandStatus.REJECTED:
        raise InputInvalid(problem=command.error_message or N_("The engine refused it."))
    if command.status == CommandStatus.PENDING:
        words = words_of(request, here)
        return words.text("Asked for (command %(id)s); no engine has taken it up yet.", id=command.id)
    return done
