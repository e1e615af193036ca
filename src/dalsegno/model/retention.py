"""How long what is over is kept, lane by lane. Pure: the pruner goes by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

FOR_EVER = 0.0
"""As a number of days."""
Kind = Literal["jobs", "failed", "events", "logs"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Days after which something goes; 0: never."""

    jobs: float = 90.0
    """Finished jobs that leave nothing to retry, with their stages and items."""
    failed: float = FOR_EVER
    """Finished jobs with items that failed or were interrupted: somebody may still retry them."""
    failed_last: int = 0
    """Of those, only the newest that have so many such items between them; 0: all."""
    events: float = 90.0
    logs: float = 30.0


LANES: Mapping[str, Mapping[str, float]] = {"enrich": {"failed_last": 1000}}
"""Lanes that differ from the others unless an operator says so: enrichment fails item by item, for weeks."""


@dataclass(frozen=True, slots=True)
class Policy:
    general: Rule = field(default_factory=Rule)
    lanes: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: LANES)
    """By lane, what is said about it alone."""

    def of(self, lane: str) -> Rule:
        own = self.lanes.get(lane)
        if own is None:
            return self.general
        said = {name: int(value) if name == "failed_last" else value for name, value in own.items()}
        return replace(self.general, **said)  # type: ignore[arg-type]

    def longest(self, kind: Literal["events", "logs"]) -> float:
        """Days after which no lane wants them any more: then they go whole months at a time, whoever's they are."""
        days = [getattr(self.of(lane), kind) for lane in self.lanes] + [getattr(self.general, kind)]
        return FOR_EVER if FOR_EVER in days else max(days)


KEEP_ALL = Policy(Rule(FOR_EVER, FOR_EVER, 0, FOR_EVER, FOR_EVER), {})
"""Nothing ever goes."""


def cutoff(now: datetime, days: float) -> datetime | None:
    """What ended before this moment has been kept long enough; None: nothing ever has."""
    return None if days == FOR_EVER else now - timedelta(days=days)
