"""When a provider makes us wait: an error is judged once, into why and until when.

What a provider says in a structured way (status, headers, JSON) beats what its text seems to say. In doubt an error is
the item's own: read wrongly as a throttle, a broken item would come back for ever without ever costing an attempt.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from dalsegno.errors import DalSegnoError, InputInvalid
from dalsegno.model.signal import (
    Signal,
    chain_of,
    is_local,
    is_number,
    is_unreachable,
    string_of,
)
from dalsegno.model.suggest import did_you_mean

HOUR = 3600.0
DAY = 86400.0


class Kind(StrEnum):
    RATE_LIMIT = "rate_limit"
    QUOTA = "quota"
    BAN = "ban"
    OUTAGE = "outage"
    MANUAL = "manual"


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
        now = _utc(now)
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


@dataclass(frozen=True, slots=True)
class Trip:
    """Stop calling this provider until `resume_at`."""

    kind: Kind
    resume_at: datetime
    reason: str
    certain: bool = True
    """False: one sign of an outage, to be counted towards `outage_after`, not to trip at once."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """The policy a service declares. Times are seconds."""

    cooldown: float = 120.0
    """After a rate limit that says nothing about how long."""
    quota: QuotaReset = QuotaReset()
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
        now = _utc(now)
        signal = Signal.of(error)
        own = self._ask(signal)
        if isinstance(own, Trip):
            return self._bounded(own, now)
        if is_number(own):
            wait = min(max(float(own), 0.001), self.longest)
            reason = f"Rate limit reached; the service waits {_span(wait)}."
            return Trip(Kind.RATE_LIMIT, now + timedelta(seconds=wait), reason)
        hearing = _Hearing.of(signal, now)
        kind = Kind(own) if isinstance(own, str) and own in set(Kind) else hearing.kind()
        return None if kind is None else self._trip(kind, hearing, now, max(trips, 0))

    def _ask(self, signal: Signal) -> Any:
        """A classifier that fails knows nothing; its fault must not hide the provider's."""
        with suppress(Exception):
            return self.classify(signal) if self.classify else None
        return None

    def _bounded(self, trip: Trip, now: datetime) -> Trip:
        """A service's own trip, never in the past; only a quota (of a month, say) may last beyond `longest`."""
        end = max(_utc(trip.resume_at), now + timedelta(seconds=0.001))
        if trip.kind is not Kind.QUOTA:
            end = min(end, now + timedelta(seconds=self.longest))
        return replace(trip, resume_at=end)

    def _trip(self, kind: Kind, hearing: _Hearing, now: datetime, trips: int) -> Trip:
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
        then = f"the provider asked to wait {_span(wait)}" if wait == asked else f"trying again in {_span(wait)}"
        certain = kind is not Kind.OUTAGE or asked is not None
        return Trip(kind, now + timedelta(seconds=wait), f"{what}; {then}.", certain)


# --- what the provider said ---------------------------------------------------------------------

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

_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,12})?"
_PART = (
    rf"(?:({_NUMBER})\s?|\b(?:an?|one)\s)"
    r"([mµun]s|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?"
    r"|秒钟?|分[钟鐘]?|个?小[时時]|[天日])(?![a-z])"
)
_SPAN = rf"(?:{_PART}(?:,? and |,? )?){{1,4}}"
_ONE_PART = re.compile(_PART)
_WHOLE_SPAN = re.compile(rf"\s*{_SPAN}\s*")
_SPOKEN_WAITS = (
    re.compile(rf"\b(?:try|again|retry|wait|ban|block|suspend|lock)[^0-9.\n]{{0,30}}?(?P<span>{_SPAN})"),
    re.compile(rf"(?:封[禁锁号]|禁止|限制|冻结)[^0-9。\n]{{0,10}}(?P<span>{_SPAN})"),
    re.compile(rf"(?P<span>{_SPAN})[之以]?[后後]"),
    re.compile(rf"retry[ _-]?after[\"':\s]{{1,4}}(?P<span>{_NUMBER})(?!\.?[0-9]|\s{{0,2}}[a-z]|[:/-][0-9])"),
)
_UNITS = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "ms": 1e-3, "mil": 1e-3, "s": 1.0, "m": 60.0, "h": HOUR, "d": DAY}
_UNITS |= {"w": 7 * DAY, "秒": 1.0, "分": 60.0, "个": HOUR, "小": HOUR, "天": DAY, "日": DAY}


@dataclass(frozen=True, slots=True)
class _Hearing:
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
    def of(cls, signal: Signal, now: datetime) -> _Hearing:
        chain = chain_of(signal.error) if signal.error is not None else []
        if chain and is_local(chain[0]):
            return cls(None, frozenset(), (), "", None, None, "")
        said = [signal.body]
        for link in chain:
            said += [type(link).__name__, string_of(link)]
        codes, quotas, waits = set(), [], _header_waits(signal.headers, now)
        for key, value in (pair for text in said for pair in _fields(text)):
            match re.sub(r"[^a-z]", "", key.lower()):
                case "code" | "type" | "status" | "reason" if isinstance(value, str | int):
                    codes.add(re.sub(r"[^a-z0-9]", "", str(value)[:100].lower()))
                case "quotaid" | "quotametric" | "quotalimit" if isinstance(value, str):
                    quotas.append(value)
                case "retrydelay" | "retryafter":
                    waits.append(_seconds(value))
        text = _URL.sub(" ", "\n".join(said)).lower() if signal.status in _SPEAKING else ""
        told = _latest(waits)
        spoken = [_seconds(match["span"]) for pattern in _SPOKEN_WAITS for match in pattern.finditer(text)]
        gone = next((type(link).__name__ for link in chain if is_unreachable(link)), "")
        return cls(signal.status, frozenset(codes), tuple(quotas), text, told, _latest([told, *spoken]), gone)

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
            waits.append(max((_utc(parsedate_to_datetime(after)) - now).total_seconds(), 0.0))
    millis = _seconds(headers.get("retry-after-ms"))
    waits.append(None if millis is None else millis / 1000)
    waits += [
        _seconds(headers.get(f"x-ratelimit-reset-{name}"))
        for name in ("requests", "tokens")
        if headers.get(f"x-ratelimit-remaining-{name}", "").strip() == "0"
    ]
    return waits


def _seconds(value: Any) -> float | None:
    """Seconds from a number, "34.07s", "1h2m3s", "30 minutes", "24小时" or protobuf's {seconds, nanos}."""
    if isinstance(value, Mapping):
        whole, nanos = _seconds(value.get("seconds")), _seconds(value.get("nanos"))
        return None if whole is None and nanos is None else (whole or 0.0) + (nanos or 0.0) / 1e9
    if isinstance(value, str):
        if re.fullmatch(_NUMBER, value.strip()):
            return float(value)
        if not _WHOLE_SPAN.fullmatch(value.lower()):
            return None
        parts = _ONE_PART.findall(value.lower())
        return sum(float(number or 1) * _unit(unit) for number, unit in parts)
    return float(value) if is_number(value) and value >= 0 else None


def _latest(waits: list[float | None]) -> float | None:
    return max((wait for wait in waits if wait is not None), default=None)


def _unit(name: str) -> float:
    return _UNITS.get(name) or _UNITS.get(name[:3]) or _UNITS[name[0]]


def _fields(text: str) -> Iterator[tuple[str, Any]]:
    """Every key and value of the JSON in a text, however deep; JSON inside a string of it too (proxies do that)."""
    nodes: list[Any] = _documents(text)
    for _ in range(5000):
        if not nodes:
            return
        node = nodes.pop()
        if isinstance(node, dict):
            yield from ((key, value) for key, value in node.items() if isinstance(key, str))
            nodes += node.values()
        elif isinstance(node, list | tuple):
            nodes += node
        elif isinstance(node, str):
            nodes += _documents(node)


def _documents(text: str) -> list[Any]:
    """The JSON a text is, or that is embedded in it; also as the repr of a dict, which is how SDKs print it."""
    found: list[Any] = []
    start = text.find("{")
    if start < 0:
        return found
    with suppress(ValueError, RecursionError):
        return [json.loads(text)]
    for _ in range(4):
        try:
            document, start = json.JSONDecoder().raw_decode(text, start)
            found.append(document)
        except (ValueError, RecursionError):
            for end in (text.rfind("}"), text.rfind("}", 0, text.rfind("}"))):
                with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                    return [*found, ast.literal_eval(text[start : end + 1])]
            start += 1
        start = text.find("{", start)
        if start < 0:
            break
    return found


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _span(seconds: float) -> str:
    for size, unit in ((DAY, "days"), (HOUR, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1.0):.0f} s"
