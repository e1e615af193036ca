"""What a look at the system found: a stable code, how bad it is, what was seen, since when, and what mends it.

The sentences of a code stand once, in `kinds`, with names for the figures. The command line and the API say them in
English, the console in its reader's language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from dalsegno.insight.explain.words import span
from dalsegno.insight.health.kinds import KINDS

Severity = Literal["ok", "note", "warning", "error"]
NAMES = frozenset({"pid", "job_id", "command", "schedule_id"})
"""Numbers that count nothing."""
WORST: Mapping[str, int] = {"error": 0, "warning": 1, "note": 2, "ok": 3}


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    severity: Severity
    group: str
    """What it is about: `engine`, `work`, `database`, `clock`, `disk`, `files`, `keeping` or `settings`."""
    subject: str
    """`loop:nas/4711/claimer`, `session:815`: the same trouble keeps its name."""
    says: str
    """What was seen, with figures."""
    fix: str
    """A command, or a sentence; empty where nothing has to be done."""
    since: datetime | None = None
    data: dict[str, Any] = field(default_factory=dict)
    """The figures: `…_bytes`, `…_seconds` and `…_at` are what their names say."""


def found(code: str, severity: Severity, subject: str, since: datetime | None = None, /, **data: Any) -> Finding:
    kind, told = KINDS[code], figures(data)
    return Finding(code, severity, kind.group, subject, kind.says % told, kind.fix % told, since, data)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Worst first."""
    return sorted(findings, key=lambda each: (WORST[each.severity], each.group, each.code, each.subject))


def worst_of(findings: Iterable[Finding]) -> Severity:
    return min((each.severity for each in findings), key=lambda severity: WORST[severity], default="ok")


def figures(
    data: Mapping[str, Any], say_span: Callable[[float], str] = span, say_number: Callable[[int], str] = "{:,}".format
) -> dict[str, str]:
    """As people read them."""
    return {name: _figure(name, value, say_span, say_number) for name, value in data.items()}


def _figure(name: str, value: Any, say_span: Callable[[float], str], say_number: Callable[[int], str]) -> str:
    if value is None:
        return "–"
    if name.endswith("_bytes"):
        return spoken(value)
    if name.endswith("_seconds"):
        return say_span(value)
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(value, int) and name not in NAMES:
        return say_number(value)
    return str(value)


def spoken(size: float) -> str:
    """3.1 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
