"""Limits and breakers: how fast things may go, what is stopped and until when, and who waits for it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from pydantic import ValidationError

from dalsegno.engine.limits import set_setting
from dalsegno.errors import InputInvalid
from dalsegno.insight.flow import list_breakers, list_limits, list_settings
from dalsegno.insight.grammar import seconds_of
from dalsegno.insight.holds import known_services
from dalsegno.model.limit import SYSTEM_SETTINGS, parse_rate
from dalsegno.store.store import Tx
from dalsegno.web.api import flow
from dalsegno.web.console.acting import Form, acted, field
from dalsegno.web.console.frame import render, words_of
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.pages import pages
from dalsegno.web.room import Here, Who

router = pages()

LIVE = ("limits", "breakers", "workers")
KINDS = {
    "rate_limit": N_("rate limit"),
    "quota": N_("quota used up"),
    "ban": N_("shut out for a while"),
    "outage": N_("does not answer"),
    "manual": N_("stopped by hand"),
}
MEANINGS = {
    "queue_concurrency": N_("calls at once"),
    "queue_rate_limit_max": N_("calls a minute"),
    "queue_batch_size": N_("items that share one call"),
}
UNITS = {1.0: "s", 60.0: "min", 3600.0: "hour", 86_400.0: "day"}
_ZONE = re.compile(r"\b[A-Z][A-Za-z]+(?:/[A-Za-z_+-]+){1,2}\b")


@router.get("/limits")
def limits(request: Request, here: Here) -> HTMLResponse:
    def read(tx: Tx) -> dict[str, Any]:
        return {
            "limits": list_limits(tx),
            "breakers": list_breakers(tx),
            "settings": list_settings(tx),
            "services": sorted(known_services(tx)),
            "now": tx.hot.database_now(tx),
        }

    return render(
        request, here, "limits.html", page="limits", live=LIVE, kinds=KINDS, meanings=MEANINGS, rate_of=rate_of,
        there=there, **here.store.read(read),
    )  # fmt: skip


def rate_of(rate: int | str | None, window: float) -> str:
    """As it is typed: `30/min`."""
    return "" if rate is None else f"{rate}/{UNITS.get(window, f'{window:g}s')}"


def there(reason: str | None, at: datetime) -> tuple[str, str]:
    """What the clock of whoever made us wait shows then, and where that is: the zone that the reason names, or UTC."""
    for name in _ZONE.findall(reason or ""):
        try:
            zone = ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
        return f"{at.astimezone(zone):%Y-%m-%d %H:%M:%S}", name
    return f"{at.astimezone(ZoneInfo('UTC')):%Y-%m-%d %H:%M:%S}", "UTC"


# --- limits -----------------------------------------------------------------------------------------


@router.post("/limits/set")
def set_limit(request: Request, here: Here, who: Who, form: Form) -> Response:
    """Blank is no limit; a rate is written as 30/min."""
    words = words_of(request, here)

    def work() -> str:
        name = field(form, "name")
        change: dict[str, Any] = {"concurrent": _count(field(form, "concurrent"))}
        rate = field(form, "rate")
        if rate and rate not in SYSTEM_SETTINGS:
            change["rate"], change["window"] = parse_rate(rate)
        else:
            change["rate"] = rate or None
        if change["concurrent"] is None and change["rate"] is None:
            raise InputInvalid(
                problem=words.text("Say how many at once, or how many within a time. To lift it: Remove.")
            )
        flow.change_limit(here, who, _named(name), _checked(change))
        return words.text("The limit of %(name)s is set. It holds from now on, in every process.", name=name)

    return acted(request, here, form, work, "/limits")


@router.post("/limits/remove")
def remove_limit(request: Request, here: Here, who: Who, form: Form) -> Response:
    words = words_of(request, here)

    def work() -> str:
        name = field(form, "name")
        flow.lift_limit(here, who, _named(name))
        return words.text("%(name)s has no limit any more.", name=name)

    return acted(request, here, form, work, "/limits")


@router.post("/limits/setting")
def change_setting(request: Request, here: Here, who: Who, form: Form) -> Response:
    words = words_of(request, here)

    def work() -> str:
        key, value = field(form, "key"), _count(field(form, "value"))
        if not isinstance(value, int):
            raise InputInvalid(problem=words.text("A whole number is wanted here."))
        here.store.write("setting", lambda tx: set_setting(tx, key, value, who))
        return words.text("%(key)s is %(value)s from now on.", key=key, value=value)

    return acted(request, here, form, work, "/limits")


def _count(text: str) -> int | str | None:
    """A number, the name of a system setting to follow, or nothing."""
    if not text:
        return None
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text


def _named(name: str) -> str:
    if not re.fullmatch(r"\S{1,200}", name):
        raise InputInvalid(problem=N_("A name has 1 to 200 characters and no spaces."))
    return name


def _checked(change: dict[str, Any]) -> flow.LimitChange:
    try:
        return flow.LimitChange.model_validate(change)
    except ValidationError as error:
        raise InputInvalid(problem=str(error.errors(include_url=False)[0]["msg"])) from None


# --- breakers ---------------------------------------------------------------------------------------


@router.post("/limits/breakers/trip")
def trip(request: Request, here: Here, who: Who, form: Form) -> Response:
    """For a while (`30m`, `2h`), or until somebody probes or closes it."""
    words = words_of(request, here)

    def work() -> str:
        name, span = _named(field(form, "name")), field(form, "span")
        seconds = seconds_of(span) if span else None
        if span and not seconds:
            raise InputInvalid(problem=words.text("How long is written as 30m, 2h or 1d."))
        until = None if seconds is None else here.store.read(lambda tx: tx.now) + timedelta(seconds=seconds)
        reason = field(form, "reason")
        if not reason:
            raise InputInvalid(problem=words.text("Say why: it is shown wherever something waits for it."))
        flow.trip_breaker(here, who, name, flow.Trip(reason=reason[:2000], until=until))
        return words.text("No call to %(name)s begins any more.", name=name)

    return acted(request, here, form, work, "/limits")


@router.post("/limits/breakers/probe")
def probe(request: Request, here: Here, who: Who, form: Form) -> Response:
    words = words_of(request, here)

    def work() -> str:
        name = _named(field(form, "name"))
        flow.probe_breaker(here, who, name)
        return words.text("The next call to %(name)s tries whether it is over.", name=name)

    return acted(request, here, form, work, "/limits")


@router.post("/limits/breakers/reset")
def reset(request: Request, here: Here, who: Who, form: Form) -> Response:
    words = words_of(request, here)

    def work() -> str:
        name = _named(field(form, "name"))
        flow.reset_breaker(here, who, name)
        return words.text("Calls to %(name)s go through again.", name=name)

    return acted(request, here, form, work, "/limits")
