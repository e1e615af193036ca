"""How long something is to stand still, as the forms that pause offer it."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from dalsegno.errors import InputInvalid
from dalsegno.web.console.i18n import N_

HOURS = {"1h": 1, "2h": 2, "4h": 4}
MORNING = "08:00"
"""By the clock of this machine: a reader's own nobody knows without a script."""


def until_of(text: str, now: datetime, zone: str) -> datetime | None:
    """When it goes on by itself; None: when somebody says so."""
    if not text:
        return None
    if text in HOURS:
        return now + timedelta(hours=HOURS[text])
    if text != MORNING:
        raise InputInvalid(problem=N_("Choose from the list for how long it is paused."))
    here = now.astimezone(ZoneInfo(zone))
    morning = datetime.combine(here.date(), time.fromisoformat(MORNING), here.tzinfo)
    if morning <= here:
        morning = datetime.combine(here.date() + timedelta(days=1), time.fromisoformat(MORNING), here.tzinfo)
    return morning.astimezone(UTC)
