"""A trip: why nobody is to call a provider for a while, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Kind(StrEnum):
    RATE_LIMIT = "rate_limit"
    QUOTA = "quota"
    BAN = "ban"
    OUTAGE = "outage"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class Trip:
    """Stop calling this provider until `resume_at`."""

    kind: Kind
    resume_at: datetime
    reason: str
    certain: bool = True
    """False: one sign of an outage, to be counted towards `outage_after`, not to trip at once."""
