"""Findings in the reader's language: their sentences are marked where they stand, in `insight.health.kinds`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dalsegno.insight.explain.gate import Gate
from dalsegno.insight.health.finding import Finding, figures
from dalsegno.insight.health.kinds import GROUPS, KINDS
from dalsegno.web.console.gates import brief, opens
from dalsegno.web.console.i18n import N_
from dalsegno.web.console.meanings import reason
from dalsegno.web.console.words import Words, number

SEVERITIES = {
    "error": N_("error"),
    "warning": N_("warning"),
    "note": N_("note"),
    "ok": N_("fine"),
}
SHAPES = {"error": ("failed", "✕"), "warning": ("paused", "!"), "note": ("running", "i"), "ok": ("succeeded", "✓")}
"""The class that gives the colour, and the mark."""
WORDS = frozenset({"what", "gate", "opens"})
"""Figures that are words of ours."""
OURS = (
    N_("library"),
    N_("database"),
    N_("object store"),
    N_("nothing is in its way."),
    N_("Look at the loops of the engine"),
)


def says(words: Words, finding: Finding) -> str:
    return _told(words, KINDS[finding.code].says, finding.data)


def fix(words: Words, finding: Finding) -> str:
    return "" if finding.severity == "ok" else _told(words, KINDS[finding.code].fix, finding.data)


def group(words: Words, finding: Finding) -> str:
    return words.text(GROUPS[finding.group])


def alarm(words: Words, code: str, data: Mapping[str, Any]) -> tuple[str, str]:
    """What was seen and what mends it, where there is no room for more than text."""
    kind = KINDS[code]
    return _told(words, kind.says, data), _told(words, kind.fix, data).replace("`", "")


def _told(words: Words, text: str, found: Mapping[str, Any]) -> str:
    if not text:
        return ""
    data = {**found, **_gate(words, found)}
    if "reason" in data:
        data["reason"] = reason(words, data["reason"], data.get("by"))
    data |= {name: words.text(data[name]) for name in WORDS & data.keys()}
    return words.text(text, **{"": "", **figures(data, words.span, number)})


def _gate(words: Words, found: Mapping[str, Any]) -> dict[str, Any]:
    """A gate is said by whoever says gates."""
    code = found.get("gate_code")
    if words.english or code is None:
        return {}
    gate = Gate(code, "closed", found["gate"], opens=found["opens"], data=found["gate_data"])
    return {"gate": brief(words, gate), "opens": opens(words, gate, "zh-CN")}


def telling(words: Words) -> dict[str, Callable[..., Any]]:
    """For templates: `health.says(finding)`."""
    return {
        "says": lambda finding: says(words, finding),
        "fix": lambda finding: fix(words, finding),
        "group": lambda finding: group(words, finding),
        "severity": lambda finding: words.text(SEVERITIES[finding.severity]),
        "shape": lambda finding: SHAPES[finding.severity],
    }
