"""A search source: who is asked what there is of a title, and what it answers with.

Whatever a provider answers is read leniently: what was odd about it is told in `drift`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from dalsegno.sources.model import NotOffered

Verb = Literal["search", "listing"]
Permit = Callable[[str], AbstractContextManager[Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is looked for; at least one of them is not empty."""

    title: str = ""
    kinopoisk_id: str = ""
    imdb_id: str = ""
    shikimori_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One episode in one translation, and the page it is played on. A film is season 0, episode 0."""

    link: str
    season: int = 0
    episode: int = 0
    season_title: str = ""
    season_link: str = ""
    episode_title: str = ""
    translation_id: str = ""
    translation_title: str = ""
    translation_type: str = ""
    quality: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A film or a serial, with all that is offered of it."""

    id: str
    """Stable, and unique within its source."""
    type: str = ""
    title: str = ""
    title_orig: str = ""
    other_title: str = ""
    year: int | None = None
    kinopoisk_id: str = ""
    imdb_id: str = ""
    shikimori_id: str = ""
    offers: tuple[Offer, ...] = ()
    whole: bool = True
    """Each translation that is offered is offered with all its episodes: those that are missing here are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One page of an answer."""

    works: tuple[Work, ...] = ()
    next_page: str | None = None
    """What to ask with for the next one."""
    drift: tuple[str, ...] = ()
    """What was odd about the answer, in sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One page of what a source has, as it says it."""

    results: list[Any]
    total: int | None = None
    next_page: str | None = None
    prev_page: str | None = None
    drift: tuple[str, ...] = ()


class SearchSource:
    """Base of every search source; both verbs are optional."""

    name: str = ""

    def search(self, wanted: Wanted, page: str | None = None) -> Found:
        """One call: the page of the answer that `page` stands for, the first one without it."""
        raise NotOffered

    def listing(self, params: Mapping[str, str]) -> Listed:
        """One page of everything there is, as `params` filter and sort it."""
        raise NotOffered

    def passage(self, permit: Permit) -> AbstractContextManager[Any, None]:
        """Around one call: the limit and the breaker it passes."""
        return permit(f"search:{self.name}")

    def close(self) -> None:
        """Let go of connections and child processes."""

    def can(self, verb: Verb) -> bool:
        return getattr(type(self), verb) is not getattr(SearchSource, verb)
