"""How a client waits: as long as it is told to, or longer from time to time, and not for ever."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from random import Random

import httpx

_CHANCE = Random()
RETRIED = frozenset({429, 502, 503, 504})
"""Too many requests, and not now, also in the words of a proxy. Every call of a client may be made twice: a submit is
the same request again."""

TROUBLE = (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError, httpx.ProxyError)
"""What may be better in a moment."""


@dataclass(frozen=True, slots=True)
class Patience:
    attempts: int = 6
    """Calls in all, the first one included."""
    base: float = 0.5
    """Seconds before the second call where the server does not say; twice as long before each that follows."""
    cap: float = 30.0
    longest: float = 120.0
    """Whoever is told to wait for longer than this hears of it at once instead."""

    def delay(self, attempt: int, met: httpx.Response | httpx.HTTPError) -> float | None:
        """Seconds to wait after call number `attempt`, which met this; None to wait no more."""
        if attempt >= self.attempts or not _passes(met):
            return None
        told = retry_after(met) if isinstance(met, httpx.Response) else None
        seconds = min(self.cap, self.base * 2.0 ** (attempt - 1)) if told is None else told
        # Never before the time that was said, and not all at the same moment.
        return None if seconds > self.longest else seconds * _CHANCE.uniform(1.0, 1.25)


def _passes(met: httpx.Response | httpx.HTTPError) -> bool:
    return met.status_code in RETRIED if isinstance(met, httpx.Response) else isinstance(met, TROUBLE)


def retry_after(answer: httpx.Response) -> float | None:
    """In seconds. Where it is a date, it is compared with the server's own clock."""
    said = answer.headers.get("Retry-After", "").strip()
    if said.isascii() and said.isdecimal():
        return float(said)
    try:
        then, now = parsedate_to_datetime(said), parsedate_to_datetime(answer.headers["Date"])
        return max(0.0, (then - now).total_seconds())
    except (KeyError, TypeError, ValueError):
        return None
