"""When a schedule is due: a cron expression in a time zone, as times in UTC.

A time of day that a zone leaves out in spring is due at the first minute after the gap; one that it has twice in autumn
is due once, the first time. Expressions whose minute or hour begins with `*` follow the time that passes instead.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from dalsegno.errors import CronInvalid, InputInvalid
from dalsegno.model.suggest import closest, did_you_mean

LONGEST = 200
SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day of month": "1 to 31, or L for the last day",
    "month": "1 to 12, or JAN to DEC",
    "day of week": "0 to 7 (both Sunday), or SUN to SAT",
}
"""The five fields in their order, and what each may hold."""
NAMES = {
    "month": ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
    "day of week": ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"),
}
WORD = re.compile("[A-Z]+")
_KNOWN_TO_CRONSIM = ("minute", "hour", "day-of-month", "month", "day-of-week")


@dataclass(frozen=True, slots=True)
class Cron:
    """A checked expression and its zone. Make one with `parse_cron`."""

    expression: str
    zone: str

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Every due time after a moment, in order, each once; ends where there is none for fifty years."""
        start = moment.astimezone(_zone(self.zone))
        last = moment
        for due in CronSim(SHORT.get(self.expression, self.expression), start):
            # In the hour that is there twice, the local clock alone would say times that have passed.
            if (at := due.astimezone(UTC)) > last:
                yield at
                last = at

    def next(self, moment: datetime) -> datetime | None:
        return next(self.after(moment), None)

    def upcoming(self, moment: datetime, count: int) -> list[datetime]:
        return list(itertools.islice(self.after(moment), count))

    def between(self, first: datetime, last: datetime) -> Iterator[datetime]:
        """Due times from `first` to `last`, both included."""
        return itertools.takewhile(lambda due: due <= last, self.after(first - timedelta(microseconds=1)))

    def newest(self, first: datetime, last: datetime, count: int) -> list[datetime]:
        """The last `count` due times between two moments, in order, however many there are before them."""
        width = timedelta(hours=1)
        while True:
            start = max(first, last - width)
            found = list(self.between(start, last))
            if len(found) >= count or start == first:
                return found[-count:] if count else []
            width *= 4

    def says(self) -> str:
        """In English: `At 02:30 every day`."""
        return CronSim(SHORT.get(self.expression, self.expression), datetime(2026, 1, 1)).explain()  # noqa: DTZ001


def parse_cron(expression: str, zone: str = "UTC") -> Cron:
    """A cron expression of five fields, or `@daily` and its like; an error says which field is wrong."""
    text = " ".join(expression.split())
    if len(text) > LONGEST:
        raise CronInvalid(expression=text[:LONGEST], problem=f"it is longer than {LONGEST} characters.")
    if text.startswith("@"):
        if text.lower() not in SHORT:
            raise CronInvalid(expression=text, problem=f"there is no such word.{did_you_mean(text, SHORT)}")
        text = text.lower()
    found = Cron(text, check_zone(zone))
    fields = SHORT.get(text, text).split()
    if len(fields) != len(FIELDS):
        meant = "minute, hour, day of month, month, day of week"
        raise CronInvalid(expression=text, problem=f"it has {len(fields)} fields and not five ({meant}).")
    try:
        first = found.next(datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        if "day-of-month" in str(error) and _is_fine(fields, 2):
            problem = f'its day of month, "{fields[2]}", is wrong: its month has no such day.'
            raise CronInvalid(expression=text, problem=problem) from None
        raise CronInvalid(expression=text, problem=_wrong(fields, str(error))) from None
    if first is None:
        raise CronInvalid(expression=text, problem="no such day ever comes.")
    return found


def _is_fine(fields: list[str], number: int) -> bool:
    """Whether a field is one that may be: only together with the others it is not."""
    try:
        CronSim(" ".join(field if place == number else "*" for place, field in enumerate(fields)), datetime(2026, 1, 1))  # noqa: DTZ001
    except CronSimError:
        return False
    return True


def _wrong(fields: list[str], said: str) -> str:
    """Which field it is, and what it may be."""
    name = said.removeprefix("Bad ")
    if name not in _KNOWN_TO_CRONSIM:
        return f"{said}."
    number = _KNOWN_TO_CRONSIM.index(name)
    title, range_ = list(FIELDS.items())[number]
    unknown = [word for word in WORD.findall(fields[number].upper()) if word not in NAMES.get(title, (word,))]
    meant = closest(unknown[0], NAMES[title]) if unknown else None
    hint = f' Did you mean "{meant}"?' if meant else ""
    return f'its {title}, "{fields[number]}", is wrong.{hint} It may be {range_}; *, */5, 1-5 and 1,3,5 also work.'


def check_zone(name: str) -> str:
    """The name of a time zone that this machine knows."""
    try:
        _zone(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        hint = did_you_mean(name, zones())
        said = f'There is no time zone "{name:.60}".{hint} Zones are named like Europe/Berlin, Asia/Shanghai or UTC.'
        raise InputInvalid(problem=said) from None
    return name


@lru_cache(256)
def _zone(name: str) -> tzinfo:
    # cronsim goes the short way for this very object.
    return UTC if name == "UTC" else ZoneInfo(name)


@lru_cache(1)
def zones() -> tuple[str, ...]:
    """Those to choose from, in order."""
    plain = (name for name in available_timezones() if "/" in name and not name.startswith(("Etc/", "posix", "right")))
    return ("UTC", *sorted(plain))
