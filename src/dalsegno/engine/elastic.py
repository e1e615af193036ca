"""How many places each pool of a service made of phases may have."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

TIMES_WORKERS = 4
"""Resolvers at once, in workers of the service, unless an operator says otherwise."""
SHORT = 0.02
"""Seconds: a resolve that takes less is work of this process, not waiting for somebody. More threads would only get in
each other's way."""
SPARE = 1.25
"""Resolvers beyond the workers, in those the measured ratio asks for: durations vary."""


def split(workers: int, phases: int) -> tuple[int, ...]:
    """The pools' sizes to begin with (spec 002): up to three for each earlier phase, the rest for the last."""
    share = max(1, min(3, workers // (phases + 1)))
    return (*[share] * (phases - 1), max(1, workers - share * (phases - 1)))


@dataclass(frozen=True, slots=True)
class Elastic:
    """How many may resolve (all phases but the last) and transfer (the last) at once.

    At most `workers` transfer and at most `most` resolve. Within `workers` places the two share freely; beyond them
    resolvers run only as far as the measured times say that transfers would idle without them.
    """

    workers: int
    most: int
    stock: int
    """Answers to have ready when there are more resolvers than places left by transfers."""

    @property
    def transfers(self) -> int:
        return self.workers

    @property
    def places(self) -> int:
        return max(self.workers, self.most)

    def resolvers(self, transferring: int, queued: int, resolve: float, transfer: float) -> int:
        """Most resolvers now. The seconds of each are 0 until one has been measured: then nothing goes past
        `workers`, because nobody's provider should meet a burst that may not be needed."""
        most = min(self.most, self.places - transferring)
        shared = self.workers - transferring
        if most <= shared or not (resolve and transfer) or resolve < SHORT:
            return min(most, shared)
        feeding = self.workers * resolve / transfer  # so many keep every transfer worker busy
        # What is under way counts as much as what lies ready: waiting for the queue to drain first would starve it.
        missing = feeding + self.stock - queued + shared
        return min(most, max(shared, int(min(ceil(feeding * SPARE) + 1, missing))))

    def per_second(self, resolve: float, transfer: float) -> float:
        """Items per second that cannot be exceeded."""
        return min(self.most / resolve, self.transfers / transfer, self.places / (resolve + transfer))
