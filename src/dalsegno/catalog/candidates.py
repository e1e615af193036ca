"""What was considered for a song, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dalsegno.sources.model import Media, Track

End = Literal["chosen", "gone", "unusable", "excluded", "no_match", "forbidden", "error", "not_offered"]


@dataclass(frozen=True, slots=True)
class Candidate:
    platform: str
    track: Track | None
    score: float | None
    verdict: Literal["chosen", "rejected"]
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Failure:
    code: str
    message: str
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class Resolution:
    media: Media | None
    platform: str | None
    track: Track | None
    candidates: tuple[Candidate, ...]
    """The chosen one first, then in the order of the sources."""
    failure: Failure | None = None
