"""The shape of a Kodik answer, read leniently: results are one per translation, and works are put together of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from dalsegno.requests.drift import Reader, whole
from dalsegno.requests.upstream import Offer, Work

ANSWER = frozenset({"time", "total", "prev_page", "next_page", "results", "error"})
RESULT = frozenset(
    {"id", "type", "link", "title", "title_orig", "other_title", "translation", "year", "last_season", "last_episode",
     "episodes_count", "kinopoisk_id", "imdb_id", "shikimori_id", "worldart_link", "mdl_id", "quality", "camrip",
     "lgbt", "screenshots", "seasons", "blocked_countries", "blocked_seasons", "created_at", "updated_at",
     "material_data", "worldart_animation_id", "worldart_cinema_id"}
)  # fmt: skip
SEASON = frozenset({"link", "title", "episodes"})
EPISODE = frozenset({"link", "title", "screenshots"})
TRANSLATION = frozenset({"id", "title", "type"})
NUMBERS = ("number", "season", "episode", "season_number", "episode_number")
"""Under which an entry of a list may say its own number."""


def works(reader: Reader, results: Sequence[Any]) -> tuple[Work, ...]:
    """Every work once, with the offers of all its results, in the order in which they were met."""
    found: dict[str, Work] = {}
    for result in results:
        form = reader.form("a result", result)
        if not form:
            continue
        work = _work(reader, form)
        if work is None:
            continue
        known = found.get(work.id)
        found[work.id] = work if known is None else joined(known, work)
    return tuple(found.values())


def joined(first: Work, second: Work) -> Work:
    """One work of two accounts of it; what the first does not know, the second may."""
    values: dict[str, Any] = {
        name: getattr(first, name) or getattr(second, name)
        for name in ("type", "title", "title_orig", "other_title", "year", "kinopoisk_id", "imdb_id", "shikimori_id")
    }
    offers = {(each.season, each.episode, each.translation_id): each for each in (*first.offers, *second.offers)}
    return replace(first, **values, offers=tuple(offers.values()), whole=first.whole and second.whole)


def _work(reader: Reader, form: Mapping[str, Any]) -> Work | None:
    reader.unknown("a result", form, RESULT)
    before = reader.lost
    title = reader.text("result", form, "title", needed=True)
    ids = {name: reader.text("result", form, name) for name in ("shikimori_id", "kinopoisk_id", "imdb_id")}
    year = reader.number("result", form, "year")
    kind = reader.text("result", form, "type")
    id = _identity(ids, kind, title or reader.text("result", form, "title_orig"), year)
    id = id or reader.text("result", form, "id")
    if not id:
        reader.odd("a result without title and ids, which was left out")
        return None
    offers = tuple(_offers(reader, form))
    return Work(
        id=id,
        type=kind,
        title=title,
        title_orig=reader.text("result", form, "title_orig"),
        other_title=reader.text("result", form, "other_title"),
        year=year,
        offers=offers,
        whole=reader.lost == before and (any(each.season for each in offers) or "serial" not in kind),
        **ids,
    )


def _identity(ids: Mapping[str, str], kind: str, title: str, year: int | None) -> str:
    """The same for all translations of a work. The anime's own id first: its seasons share the others."""
    for name, value in ids.items():
        if value:
            return f"{name.removesuffix('_id')}:{value}"
    name = " ".join(title.lower().split())
    return f"title:{kind}:{name}:{year or ''}" if name else ""


def _offers(reader: Reader, form: Mapping[str, Any]) -> Iterator[Offer]:
    said = reader.form("result.translation", form.get("translation"))
    reader.unknown("a translation", said, TRANSLATION)
    common = Offer(
        link="",
        translation_id=reader.text("translation", said, "id"),
        translation_title=reader.text("translation", said, "title"),
        translation_type=reader.text("translation", said, "type"),
        quality=reader.text("result", form, "quality"),
    )
    some = False
    for number, season in _numbered(reader, "seasons", form.get("seasons")):
        about = reader.form("a season", season)
        reader.unknown("a season", about, SEASON.union(NUMBERS))
        in_season = replace(
            common,
            season=number,
            season_title=reader.text("season", about, "title"),
            season_link=address(reader.text("season", about, "link")),
        )
        for at, episode in _numbered(reader, "episodes", about.get("episodes")):
            offer = _episode(reader, replace(in_season, episode=at), episode)
            if offer is not None:
                some = True
                yield offer
    if not some and (link := address(reader.text("result", form, "link"))):  # a film, or a serial in one page
        yield replace(common, link=link)


def _episode(reader: Reader, offer: Offer, said: Any) -> Offer | None:
    about = {"link": said} if isinstance(said, str) else reader.form("an episode", said)
    reader.unknown("an episode", about, EPISODE.union(NUMBERS))
    link = address(reader.text("episode", about, "link", needed=True))
    return replace(offer, link=link, episode_title=reader.text("episode", about, "title")) if link else None


def _numbered(reader: Reader, what: str, said: Any) -> Iterator[tuple[int, Any]]:
    """`{"1": …}` as it is documented; a list, too, by its own numbers or by its order."""
    if said is None or said in ([], {}):
        return
    if isinstance(said, list):
        reader.odd(f"{what} are a list, not an object")
        for at, each in enumerate(said, 1):
            own = next((each[name] for name in NUMBERS if name in each), None) if isinstance(each, dict) else None
            yield whole(own) if own is not None and whole(own) is not None else at, each  # type: ignore[misc]
        return
    for key, each in reader.form(what, said).items():
        number = whole(key)
        if number is None:
            reader.odd(f"{what} with a number that is none")
            continue
        yield number, each


def address(link: str) -> str:
    """With its scheme, which Kodik leaves out; empty where it is no http address."""
    if link.startswith("//"):
        link = f"https:{link}"
    return link if re.match(r"https?://[^\s/]", link, re.IGNORECASE) else ""


def place(reader: Reader, answer: Mapping[str, Any], name: str) -> str | None:
    """Where another page is, as parameters: of an address only its query counts, and never the token in it."""
    said = answer.get(name)
    if said is None or said == "" or said is False:
        return None
    if not isinstance(said, str) or len(said) > 4000:
        reader.odd(f"{name} is no address")
        return None
    try:
        query = urlsplit(said).query if "/" in said or "?" in said else ""
        pairs = [(key, value) for key, value in parse_qsl(query) if key.lower() != "token"]
    except ValueError:
        pairs = []
    if pairs:
        return urlencode(pairs)
    if "/" in said:
        reader.odd(f"{name} says no page")
        return None
    return urlencode({"next": said.lstrip("?")})
