"""What every page offers: language and looks, kept views, everything's pause, and why something does not run."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from dalsegno.clock import local_zone
from dalsegno.engine.holds import EVERYTHING, UNSAID, hold, release
from dalsegno.insight.explain import explain_anyway, subject_of
from dalsegno.insight.explain.outage import UNKNOWN
from dalsegno.web.console.acting import Form, acted, field, local
from dalsegno.web.console.frame import DENSITIES, THEMES, render, words_of
from dalsegno.web.console.gates import gating
from dalsegno.web.console.i18n import COOKIE, LANGUAGES, language_of
from dalsegno.web.console.pages import pages
from dalsegno.web.console.pausing import until_of
from dalsegno.web.console.views import cookie_of, kept, with_view, without, written
from dalsegno.web.room import Here, Who

router = pages()

YEAR = 365 * 86_400
LONGEST = 2000
"""Characters of a reason."""


@router.get("/preferences")
def preferences(language: str = "", theme: str = "", density: str = "", back: str = "/") -> Response:
    """Kept in the reader's browser only."""
    answer = RedirectResponse(local(back, "/"), status_code=303)
    for name, chosen, known in (
        (COOKIE, language, LANGUAGES),
        ("theme", theme, THEMES),
        ("density", density, DENSITIES),
    ):
        if chosen in known:
            answer.set_cookie(name, chosen, max_age=YEAR, httponly=True, samesite="strict")
    return answer


@router.get("/{page:path}/views")
def views(request: Request, page: str, name: str = "", forget: str = "", query: str = "") -> Response:
    """Keep a filter of a page under a name, or forget one. In the reader's browser, too, and sent to that page only."""
    path = local(f"/{page}", "/")
    found = without(kept(request.cookies, path), forget)
    if name.strip():
        found = with_view(found, name.strip(), query)
    answer = RedirectResponse(f"{path}?{query}" if query else path, status_code=303)
    answer.set_cookie(cookie_of(path), written(found), max_age=YEAR, path=path, httponly=True, samesite="strict")
    return answer


@router.post("/pause")
def pause_everything(request: Request, here: Here, who: Who, form: Form) -> Response:
    words = words_of(request, here)

    def work() -> str:
        reason = field(form, "reason")[:LONGEST] or UNSAID
        until = until_of(field(form, "until"), here.store.clock.now(), local_zone())
        here.store.write("hold", lambda tx: hold(tx, EVERYTHING, reason, who, until))
        return words.text("Everything is held. What runs may finish; nothing new starts.")

    return acted(request, here, form, work, "/")


@router.post("/resume")
def resume_everything(request: Request, here: Here, who: Who, form: Form) -> Response:
    """Everything, or the one hold that `name` names: `lane:catalog`, `service:download`."""
    words = words_of(request, here)

    def work() -> str:
        name = field(form, "name") or EVERYTHING
        released = here.store.write("release", lambda tx: release(tx, name, who))
        return words.text("It goes on.") if released else words.text("It was not held.")

    return acted(request, here, form, work, "/")


@router.get("/explain/{what}/{target:path}")
def explanation(request: Request, here: Here, what: str, target: str) -> HTMLResponse:
    found = explain_anyway(here.store, what, target)
    language = language_of(request, here.settings)
    about = {} if found.status == UNKNOWN else here.store.read(lambda tx: subject_of(tx, found))
    gates = gating(words_of(request, here), language, **about)
    return render(request, here, "explain.html", page="", found=found, gates=gates)
