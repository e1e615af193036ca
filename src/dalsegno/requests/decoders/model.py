"""What a decoder is, and what it speaks of."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dalsegno.catalog.passages import passage, unanswered
from dalsegno.requests.upstream import Permit
from dalsegno.sources.model import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What is to be decoded, and what is known of it."""

    url: str
    source: str = ""
    title: str = ""
    season: int = 0
    episode: int = 0
    translation_id: str = ""
    translation_title: str = ""
    quality: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    url: str
    quality: str = ""
    """What it has turned out to be; empty where the decoder cannot tell."""
    expires_at: datetime | None = None


class Decoder:
    """Base of every decoder."""

    name: str = ""

    def can(self, link: Link) -> bool:
        """Whether it is worth asking. Cheap: it looks at the address alone."""
        return True

    def decode(self, link: Link) -> Decoded:
        """Raises Gone when there is nothing (any more), Unusable when this decoder can do nothing with it."""
        raise NotImplementedError

    def passage(self, permit: Permit, link: Link) -> AbstractContextManager[Any, None]:
        """Around one call. Limits are of all that one source offers (`decode:kodik`); who is in trouble is a matter of
        each host it names. Also programs answer for a host: what they call unavailable is."""
        return passage(permit, "decode", _Offering(link.source), link.url, own=unanswered)

    def close(self) -> None:
        """Let go of connections and child processes."""


class _Offering(Source):
    """Whoever named the link, as passages know providers."""

    def __init__(self, name: str) -> None:
        self.name = name
