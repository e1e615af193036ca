"""When a provider makes us wait: an error is judged once, into why and until when.

In doubt an error is the item's own: read wrongly as a throttle, a broken item would come back for ever without ever
costing an attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from dalsegno.clock import as_utc
from dalsegno.errors import DalSegnoError, InputInvalid
from dalsegno.model.hearing import Hearing
from dalsegno.model.quota import QuotaReset
from dalsegno.model.signal import Signal, is_number
from dalsegno.model.spans import DAY, HOUR, said
from dalsegno.model.trip import Kind, Trip


@dataclass(frozen=True, slots=True)
class Breaker:
    """The policy a service declares. Times are seconds."""

    cooldown: float = 120.0
    """After a rate limit that says nothing about how long."""
    quota: QuotaReset = field(default_factory=QuotaReset)
    outage_after: int = 3
    """Signs of an outage in a row that trip."""
    outage_cooldown: float = 30.0
    outage_cooldown_max: float = 600.0
    longest: float = 7 * DAY
    """The most that is believed of what a provider says."""
    classify: Callable[[Signal], Kind | Trip | float | None] | None = None
    """The service's own word, asked first: a kind, a whole trip, seconds to wait, or None when it does not know."""

    def __post_init__(self) -> None:
        for name in ("cooldown", "outage_cooldown", "outage_cooldown_max", "longest"):
            value = getattr(self, name)
            if not is_number(value) or not 0 < value <= 3660 * DAY:
                raise InputInvalid(
                    problem=f"Breaker: {name} must be seconds above 0, at most ten years, not {value!r}."
                )
        if not is_number(self.outage_after) or self.outage_after < 1 or self.outage_after != int(self.outage_after):
            raise InputInvalid(problem=f"Breaker: outage_after must be a count from 1, not {self.outage_after!r}.")
        if self.outage_cooldown_max < self.outage_cooldown:
            raise InputInvalid(
                problem=f"Breaker: outage_cooldown_max ({self.outage_cooldown_max:g}) is below "
                f"outage_cooldown ({self.outage_cooldown:g})."
            )
        if not isinstance(self.quota, QuotaReset):
            raise InputInvalid(problem=f"Breaker: quota must be a QuotaReset, not {self.quota!r}.")
        if self.classify is not None and not callable(self.classify):
            raise InputInvalid(problem=f"Breaker: classify must be a function, not {self.classify!r}.")

    def judge(self, error: BaseException, now: datetime, *, trips: int = 0) -> Trip | None:
        """The trip this error asks for; None: not the provider's trouble but the item's own.

        `trips`: how often in a row an outage tripped with no success between; each doubles the cool-down.
        """
        if not isinstance(error, Exception) or isinstance(error, DalSegnoError):
            return None  # a stop, or our own trouble: a database that is away must not close a provider
        now = as_utc(now)
        signal = Signal.of(error)
        own = self._ask(signal)
        if isinstance(own, Trip):
            return self._bounded(own, now)
        if is_number(own):
            wait = min(max(float(own), 0.001), self.longest)
            reason = f"Rate limit reached; the service waits {said(wait)}."
            return Trip(Kind.RATE_LIMIT, now + timedelta(seconds=wait), reason)
        hearing = Hearing.of(signal, now)
        kind = Kind(own) if isinstance(own, str) and own in set(Kind) else hearing.kind()
        return None if kind is None else self._trip(kind, hearing, now, max(trips, 0))

    def _ask(self, signal: Signal) -> Any:
        """A classifier that fails knows nothing; its fault must not hide the provider's."""
        with suppress(Exception):
            return self.classify(signal) if self.classify else None
        return None

    def _bounded(self, trip: Trip, now: datetime) -> Trip:
        """A service's own trip, never in the past; only a quota (of a month, say) may last beyond `longest`."""
        end = max(as_utc(trip.resume_at), now + timedelta(seconds=0.001))
        if trip.kind is not Kind.QUOTA:
            end = min(end, now + timedelta(seconds=self.longest))
        return replace(trip, resume_at=end)

    def _trip(self, kind: Kind, hearing: Hearing, now: datetime, trips: int) -> Trip:
        asked = hearing.told if kind is Kind.OUTAGE else hearing.wait
        if asked is not None:
            # At least a second, so that "0" and dates gone by do not make a busy loop.
            asked = min(max(asked, 1.0), self.longest)
        match kind:
            case Kind.QUOTA:
                what = f"{'Daily quota' if hearing.daily else 'Quota'} used up{hearing.label}"
                reset = self.quota.after(now)
                if asked is None or now + timedelta(seconds=asked) <= reset:
                    return Trip(kind, reset, f"{what}; it resets at {self.quota}.")
                wait = asked
            case Kind.RATE_LIMIT:
                what, wait = f"Rate limit reached{hearing.label}", asked or self.cooldown
            case Kind.BAN:
                what, wait = "Shut out by the provider", asked or HOUR
            case Kind.OUTAGE:
                how = f"answered HTTP {hearing.status}" if hearing.status else "cannot be reached"
                what = f"The provider {how}{hearing.label}"
                ours = min(self.outage_cooldown * 2.0 ** min(trips, 60), self.outage_cooldown_max)
                # A wait the provider named is taken at its word once; when it proved too short, ours counts as well.
                wait = ours if asked is None else max(asked, ours) if trips else asked
            case Kind.MANUAL:
                what, wait = "Stopped by the service's own rule", self.longest
        wait = min(max(wait, 0.001), self.longest)
        then = f"the provider asked to wait {said(wait)}" if wait == asked else f"trying again in {said(wait)}"
        certain = kind is not Kind.OUTAGE or asked is not None
        return Trip(kind, now + timedelta(seconds=wait), f"{what}; {then}.", certain)
