"""How long to wait before trying again."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

_CHANCE = Random()
"""Not everyone's: others may have seeded that for reasons of their own."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """`base · 2^(attempt-1)`, at most `cap`, plus up to `jitter` of itself so that herds disperse."""

    base: float = 15.0
    cap: float = 3600.0
    jitter: float = 0.1

    def delay(self, attempt: int, rng: Random | None = None) -> float:
        """Seconds to wait after failure number `attempt`, counted from 1."""
        # The exponent is bounded because 2.0 ** 1024 overflows, long after any cap was reached.
        exact = min(self.cap, self.base * 2.0 ** min(attempt - 1, 60))
        spread = (rng or _CHANCE).uniform(0, self.jitter)
        return exact * (1 + spread)
