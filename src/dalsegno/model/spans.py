"""Spans of time: as providers write them, and as people read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dalsegno.model.signal import is_number

HOUR = 3600.0
DAY = 86400.0

_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,12})?"
_PART = (
    rf"(?:({_NUMBER})\s?|\b(?:an?|one)\s)"
    r"([mµun]s|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?"
    r"|秒钟?|分[钟鐘]?|个?小[时時]|[天日])(?![a-z])"
)
_SPAN = rf"(?:{_PART}(?:,? and |,? )?){{1,4}}"
_ONE_PART = re.compile(_PART)
_WHOLE_SPAN = re.compile(rf"\s*{_SPAN}\s*")
_SPOKEN = (
    re.compile(rf"\b(?:try|again|retry|wait|ban|block|suspend|lock)[^0-9.\n]{{0,30}}?(?P<span>{_SPAN})"),
    re.compile(rf"(?:封[禁锁号]|禁止|限制|冻结)[^0-9。\n]{{0,10}}(?P<span>{_SPAN})"),
    re.compile(rf"(?P<span>{_SPAN})[之以]?[后後]"),
    re.compile(rf"retry[ _-]?after[\"':\s]{{1,4}}(?P<span>{_NUMBER})(?!\.?[0-9]|\s{{0,2}}[a-z]|[:/-][0-9])"),
)
_UNITS = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "ms": 1e-3, "mil": 1e-3, "s": 1.0, "m": 60.0, "h": HOUR, "d": DAY}
_UNITS |= {"w": 7 * DAY, "秒": 1.0, "分": 60.0, "个": HOUR, "小": HOUR, "天": DAY, "日": DAY}


def seconds_of(value: Any) -> float | None:
    """Seconds from a number, "34.07s", "1h2m3s", "30 minutes", "24小时" or protobuf's {seconds, nanos}."""
    if isinstance(value, Mapping):
        whole, nanos = seconds_of(value.get("seconds")), seconds_of(value.get("nanos"))
        return None if whole is None and nanos is None else (whole or 0.0) + (nanos or 0.0) / 1e9
    if isinstance(value, str):
        if re.fullmatch(_NUMBER, value.strip()):
            return float(value)
        if not _WHOLE_SPAN.fullmatch(value.lower()):
            return None
        parts = _ONE_PART.findall(value.lower())
        return sum(float(number or 1) * _unit(unit) for number, unit in parts)
    return float(value) if is_number(value) and value >= 0 else None


def spoken_waits(text: str) -> list[float | None]:
    """Every wait that a text in lower case asks for."""
    return [seconds_of(match["span"]) for pattern in _SPOKEN for match in pattern.finditer(text)]


def _unit(name: str) -> float:
    return _UNITS.get(name) or _UNITS.get(name[:3]) or _UNITS[name[0]]


def said(seconds: float) -> str:
    for size, unit in ((DAY, "days"), (HOUR, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1.0):.0f} s"
