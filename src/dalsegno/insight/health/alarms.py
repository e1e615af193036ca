"""Findings that need somebody now: they are told where everybody looks, on the dashboard."""

from __future__ import annotations

from collections.abc import Iterable

from dalsegno.insight.attention import Attention, Fix, Level
from dalsegno.insight.health.finding import Finding

HOLDERS = frozenset({"transaction_held", "prepared_held", "writer_held"})
HELD = 120.0
"""Seconds after which whoever holds a transaction is named there."""
TWINS = frozenset({"no_engine", "process_lost", "settings_invalid", "held_all", "held_lane", "held_service"})
"""Told there already, by whoever knows more about them."""


def alarms(findings: Iterable[Finding]) -> list[Attention]:
    return [_alarm(each) for each in findings if needs_somebody(each)]


def needs_somebody(finding: Finding) -> bool:
    if finding.code in HOLDERS:
        return float(finding.data["held_seconds"]) >= HELD
    twin = finding.code in TWINS or (finding.code == "disk_low" and finding.data["what"] == "library")
    return finding.severity == "error" and not twin


def _alarm(finding: Finding) -> Attention:
    level: Level = "error" if finding.severity == "error" else "warn"
    fix = Fix("system", "Look at the system", "GET", "/api/system/health")
    says = f"{finding.says} Fix: {finding.fix}"
    return Attention(finding.code, level, finding.subject, says, finding.since, fixes=(fix,), data=finding.data)
