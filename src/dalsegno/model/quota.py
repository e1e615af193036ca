"""When a provider's daily quota starts anew."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo, available_timezones

from dalsegno.clock import as_utc
from dalsegno.errors import InputInvalid
from dalsegno.model.suggest import did_you_mean


@dataclass(frozen=True, slots=True)
class QuotaReset:
    """When a daily quota starts anew: a wall-clock time in the provider's zone, never a fixed offset."""

    zone: str = "America/Los_Angeles"
    at: time = time(0, 0)
    margin: timedelta = timedelta(minutes=30)
    """Added to the reset, because counters lag behind the clock."""

    def __post_init__(self) -> None:
        try:
            ZoneInfo(self.zone)
        except (KeyError, ValueError, TypeError, OSError):  # OSError: the name of a folder, such as "America"
            hint = did_you_mean(str(self.zone), available_timezones())
            raise InputInvalid(problem=f'Quota reset: there is no time zone "{self.zone}".{hint}') from None
        if not isinstance(self.at, time) or self.at.tzinfo is not None:
            raise InputInvalid(problem=f"Quota reset: at must be a time of day without a zone, not {self.at!r}.")
        if not isinstance(self.margin, timedelta) or self.margin < timedelta(0):
            raise InputInvalid(problem=f"Quota reset: margin must not be negative, but is {self.margin!r}.")

    def after(self, now: datetime) -> datetime:
        """The end of the next reset and its margin, in UTC.

        Just after a reset the counters may still be yesterday's: the margin of that reset is waited for, not a day.
        """
        now = as_utc(now)
        zone = ZoneInfo(self.zone)
        day = (now - self.margin).astimezone(zone).date() - timedelta(days=1)
        while True:
            # Fold 0: the first of two midnights. Of a midnight that does not exist, it is the moment the clock jumped.
            reset = datetime.combine(day, self.at, zone).astimezone(UTC) + self.margin
            if reset > now:
                return reset
            day += timedelta(days=1)

    def __str__(self) -> str:
        return f"{'midnight' if self.at == time(0, 0) else self.at.isoformat('minutes')} {self.zone}"
