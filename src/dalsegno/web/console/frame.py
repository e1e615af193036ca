"""The frame around every page: navigation, language, theme, what stands still, and what was just done.

A page is a template whose regions are blocks. `?fragment=name` asks for the block `name` alone (several with commas
between), which is how a page stays live: a region is fetched again and morphed into place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from dalsegno.clock import local_zone
from dalsegno.engine.logbridge import masked
from dalsegno.errors import NotFound
from dalsegno.insight.holds import HoldLine, hold_on_everything
from dalsegno.store.outage import OUTAGES
from dalsegno.version import VERSION
from dalsegno.web.console import meanings, mistakes
from dalsegno.web.console.i18n import LANGUAGES, language_of, texts
from dalsegno.web.console.places import PLACES
from dalsegno.web.console.views import kept
from dalsegno.web.console.words import Words
from dalsegno.web.room import Room

TEMPLATES = Path(__file__).parent.parent / "templates"
THEMES = ("auto", "light", "dark")
DENSITIES = ("comfortable", "compact")
FLASH = "flash"
"""The cookie that carries what was just done over a redirect."""
WHOLE = ("/", "/jobs", "/songs")
"""Pages about all work there is: only there a key may reach what pauses everything."""
ALWAYS = ("holds", "items", "workers")
"""Topics that every page listens to: the frame's own, and those of an item, which can be opened over any page."""


class Frame:
    """What every template has as `frame`. Reads what it needs only where a template asks for it."""

    def __init__(self, request: Request, here: Room, page: str, live: Sequence[str]) -> None:
        self._request = request
        self._here = here
        self.page = page
        self.places = PLACES
        self.version = VERSION
        self.language = language_of(request, here.settings)
        self.languages = LANGUAGES
        chosen = request.cookies.get("theme", "auto")
        self.theme = chosen if chosen in THEMES else "auto"
        self.themes = THEMES
        density = request.cookies.get("density", "")
        self.density = density if density in DENSITIES else DENSITIES[0]
        self.densities = DENSITIES
        self.read_only = here.read_only
        self.signed_in: bool = getattr(request.state, "signed_in", False)
        self.topics = ",".join(dict.fromkeys([*ALWAYS, *live]))
        self.path = request.url.path
        self.about_all = self.path in WHOLE
        self.now = here.store.clock.now().isoformat()

    @cached_property
    def zone(self) -> str:
        """Of this machine."""
        return local_zone()

    @cached_property
    def here(self) -> str:
        """Where the reader is, for forms and links that come back: of what lies in a drawer, the page under it."""
        under = urlsplit(self._request.headers.get("referer", ""))
        if "fragment" in self._request.query_params and under.netloc == self._request.url.netloc:
            return f"{under.path}?{under.query}" if under.query else under.path
        return self.with_()

    def with_(self, **changes: Any) -> str:
        """This address with some parameters changed; None takes one away."""
        kept = [(key, value) for key, value in self._request.query_params.multi_items() if key != "fragment"]
        pairs = [(key, value) for key, value in kept if key not in changes]
        pairs += [(key, str(value)) for key, value in changes.items() if value not in (None, "")]
        return f"{self.path}?{urlencode(pairs)}" if pairs else self.path

    @property
    def query(self) -> str:
        """What this address shows, wherever in it the reader has come to."""
        return urlsplit(self.with_(cursor=None)).query

    @cached_property
    def views(self) -> list[tuple[str, str, bool]]:
        """Filters of this page that the reader keeps: name, address, and whether it is shown now."""
        return [
            (name, f"{self.path}?{query}", query == self.query)
            for name, query in kept(self._request.cookies, self.path).items()
        ]

    @cached_property
    def held(self) -> HoldLine | None:
        """The hold on everything, where there is one. A database that is away does not take the page about it along."""
        try:
            return self._here.store.read(hold_on_everything)
        except OUTAGES:
            return None

    @cached_property
    def flash(self) -> tuple[str, str] | None:
        """What was just done: `good` or `bad`, and a sentence."""
        try:
            kind, text = json.loads(unquote(self._request.cookies.get(FLASH, "")))
        except ValueError:
            return None
        return (kind, str(text)) if kind in ("good", "bad") else None


def wanted(request: Request, *regions: str) -> bool:
    """Whether the answer shows one of these regions: a whole page shows all. Saves what is not shown its reads."""
    names = request.query_params.get("fragment")
    return names is None or not set(regions).isdisjoint(names.split(","))


def render(
    request: Request,
    here: Room,
    template: str,
    *,
    page: str,
    live: Sequence[str] = (),
    status: int = 200,
    **values: Any,
) -> HTMLResponse:
    """A page, or those of its regions that `?fragment=` names.

    `page` is its key in `PLACES`; `live` are the topics it listens to; `values` are what its template shows.
    """
    frame = Frame(request, here, page, live)
    environment = _environment(frame.language)
    known = {**values, "frame": frame, "secrets": here.settings.secrets()}
    known["ui"] = environment.get_template("macros.html").make_module(known)
    found = environment.get_template(template)
    names = request.query_params.get("fragment")
    if names is not None:
        return HTMLResponse("".join(_region(environment, found, name, known) for name in names.split(",")), status)
    answer = HTMLResponse(found.render(known), status)
    if frame.flash is not None:
        answer.delete_cookie(FLASH)
    return answer


def flashed(kind: str, text: str) -> dict[str, Any]:
    """The cookie to set so that the next page says this."""
    said = quote(json.dumps([kind, text[:600]], ensure_ascii=False))
    return {"key": FLASH, "value": said, "max_age": 60, "httponly": True, "samesite": "strict"}


def words_of(request: Request, here: Room) -> Words:
    return Words(texts(language_of(request, here.settings)))


def _region(environment: Environment, template: Template, name: str, known: dict[str, Any]) -> str:
    for each in (template, environment.get_template("base.html")):
        if name in each.blocks:
            return "".join(each.blocks[name](each.new_context(known)))
    raise NotFound(what="fragment", id=f"{name:.60}")


@pass_context
def _without_secrets(context: Context, value: Any) -> Any:
    """Every value on its way into a page; what a macro made has been here already."""
    return masked(value, context["secrets"]) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment(language: str) -> Environment:
    words = Words(texts(language))
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_without_secrets,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(words.filters() | meanings.filters(words) | mistakes.filters(words))
    # Plain functions, not Jinja's own: theirs give markup, which would pass by the mask.
    environment.globals.update(_=words.text, ngettext=words.plural)
    return environment
