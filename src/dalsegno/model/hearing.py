"""What a provider said with an error: which limit was met, and how long to wait.

What it says in a structured way (status, headers, JSON) beats what its text seems to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime

from dalsegno.clock import as_utc
from dalsegno.model.embedded import fields
from dalsegno.model.signal import Signal, chain_of, is_local, is_unreachable, string_of
from dalsegno.model.spans import HOUR, seconds_of, spoken_waits
from dalsegno.model.trip import Kind

_RATE_CODES = frozenset(
    {"ratelimitexceeded", "userratelimitexceeded", "ratelimiterror", "ratelimited", "toomanyrequests"}
    | {"toomanyrequestsexception", "throttling", "throttlingexception", "requestlimitexceeded", "slowdown"}
)
_DAILY_CODES = frozenset({"dailylimitexceeded", "quotaexceeded"})
_LIMIT_CODES = _RATE_CODES | _DAILY_CODES | {"429", "resourceexhausted", "insufficientquota"}
_SPEAKING = frozenset({None, 403, 418, 429, 503})
"""Statuses with which the text may be about a limit. A page not found that mentions one is only a page not found."""
_OUTAGE_STATUSES = frozenset({408, 502, 503, 504, 520, 521, 522, 523, 524, 529})

_DAILY = re.compile(r"per[ _-]?day|daily|/day|\b[rt]pd\b|每[日天]", re.IGNORECASE)
_SHORT = re.compile(
    r"per[ _-]?(?:minute|second|hour|min(?![a-z])|sec(?![a-z]))|/min|/sec|\b[rt]p[ms]\b|每(?:分|秒|小时)", re.IGNORECASE
)
_LIMIT = re.compile(
    r"rate[\s_-]?limit|too[\s_-]?many[\s_-]?requests|resource[\s_-]?exhausted|(?:请求|访问|操作)(?:过于|太)?频繁"
    # 429 alone may be anything, a track number too: it counts where a status stands.
    r"|(?:http(?:/[0-9.]{1,3})?|status(?:[ _]?code)?|\bcode|error(?:[ _]code)?|\bgot(?: an?)?|too many)"
    r"[^a-z0-9\n]{0,3}429\b"
    r"|^[^\w\n]{0,3}429[^\w\n]{0,3}$|\b429\W{1,3}(?:too many|resource|rate|quota|you (?:have )?exceed|client error)",
    re.MULTILINE,
)
_QUOTA = re.compile(
    r"resource_exhausted|insufficient_quota"
    r"|(?<!disk )(?<!storage )quota (?:has been |was |is )?(?:exceeded|exhausted|used up)"
    r"|exceed(?:ed|s|ing)? (?:[a-z]{1,9} ){0,3}quota"
)
_BANNED = re.compile(r"\bban(?:ned)?\b|\bblock(?:ed)?\b|\bsuspended\b|\bblacklisted\b|封[禁锁号]|拉黑")
_URL = re.compile(r"https?://\S+")  # the manuals that errors point to have names such as "rate-limits"


@dataclass(frozen=True, slots=True)
class Hearing:
    """All that a signal says, read once."""

    status: int | None
    codes: frozenset[str]
    """Codes, types and reasons in its JSON, in lower case without punctuation."""
    quotas: tuple[str, ...]
    """Names of the quotas that were violated."""
    text: str
    """In lower case; empty where text is not the provider's word."""
    told: float | None
    """Seconds to wait, from headers and JSON."""
    wait: float | None
    """The same, or longer if the text says so."""
    unreachable: str
    """The class of the error that says nobody answered, or empty."""

    @classmethod
    def of(cls, signal: Signal, now: datetime) -> Hearing:
        chain = chain_of(signal.error) if signal.error is not None else []
        if chain and is_local(chain[0]):
            return cls(None, frozenset(), (), "", None, None, "")
        said = [signal.body]
        for link in chain:
            said += [type(link).__name__, string_of(link)]
        codes, quotas, waits = set(), [], _header_waits(signal.headers, now)
        for key, value in (pair for text in said for pair in fields(text)):
            match re.sub(r"[^a-z]", "", key.lower()):
                case "code" | "type" | "status" | "reason" if isinstance(value, str | int):
                    codes.add(re.sub(r"[^a-z0-9]", "", str(value)[:100].lower()))
                case "quotaid" | "quotametric" | "quotalimit" if isinstance(value, str):
                    quotas.append(value)
                case "retrydelay" | "retryafter":
                    waits.append(seconds_of(value))
        text = _URL.sub(" ", "\n".join(said)).lower() if signal.status in _SPEAKING else ""
        told = _latest(waits)
        wait = _latest([told, *spoken_waits(text)])
        gone = next((type(link).__name__ for link in chain if is_unreachable(link)), "")
        return cls(signal.status, frozenset(codes), tuple(quotas), text, told, wait, gone)

    def kind(self) -> Kind | None:
        quota = bool(_QUOTA.search(self.text))
        if (
            self.status == 429
            or self.quotas
            or self.codes & _LIMIT_CODES
            or _LIMIT.search(self.text)
            or (quota and self.status == 403)
        ):
            return self._limit(quota)
        if self.status in {403, 418} and self.wait is not None:
            return Kind.BAN
        if self.status in _OUTAGE_STATUSES or (self.status == 500 and self.told is not None):
            return Kind.OUTAGE
        return Kind.OUTAGE if self.status is None and self.unreachable else None

    def _limit(self, quota: bool) -> Kind:
        """Which limit: the quota's name, then the code, then the words; a wait that was named beats a guess."""
        if self._violated(_DAILY):
            return Kind.QUOTA
        if not self._violated(_SHORT):
            if self.codes & _DAILY_CODES:
                return Kind.QUOTA
            quota = (quota or "insufficientquota" in self.codes) and not self.codes & _RATE_CODES
            if self.daily and (quota or self.wait is None):
                return Kind.QUOTA
            if quota and self.wait is None and not _SHORT.search(self.text):
                return Kind.QUOTA
        if self.wait is not None and (self.wait > HOUR or self.status == 418 or _BANNED.search(self.text)):
            return Kind.BAN
        return Kind.RATE_LIMIT

    def _violated(self, window: re.Pattern[str]) -> str:
        """The quota of that window, by its id rather than by its metric, which is a path."""
        return min((name for name in self.quotas if window.search(name)), key=lambda name: "/" in name, default="")

    @property
    def daily(self) -> bool:
        return bool(self._violated(_DAILY) or self.codes & _DAILY_CODES or _DAILY.search(self.text))

    @property
    def label(self) -> str:
        code = "insufficient_quota" if "insufficientquota" in self.codes else ""
        name = self._violated(_DAILY) or self._violated(_SHORT) or code or self.unreachable
        name = re.sub(r"[^\w./-]", "", name)[:100]
        return f" ({name})" if name else ""


def _header_waits(headers: Mapping[str, str], now: datetime) -> list[float | None]:
    after = headers.get("retry-after", "").strip()
    waits = [float(after) if re.fullmatch(r"[0-9]+(?:\.[0-9]*)?", after) else None]
    if waits == [None] and after:
        with suppress(Exception):  # the parser of dates has many ways to say no
            waits.append(max((as_utc(parsedate_to_datetime(after)) - now).total_seconds(), 0.0))
    millis = seconds_of(headers.get("retry-after-ms"))
    waits.append(None if millis is None else millis / 1000)
    waits += [
        seconds_of(headers.get(f"x-ratelimit-reset-{name}"))
        for name in ("requests", "tokens")
        if headers.get(f"x-ratelimit-remaining-{name}", "").strip() == "0"
    ]
    return waits


def _latest(waits: list[float | None]) -> float | None:
    return max((wait for wait in waits if wait is not None), default=None)
