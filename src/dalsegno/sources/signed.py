"""Parameters of URLs: which say what it is, and which only who may have it and until when.

Names are taken word by word: `access_token`, `Key-Pair-Id` and `authkey` are of the second kind; `author`, `design`
and `keyword` are not. Where in doubt a parameter says what it is: a song that comes twice does less harm than one that
is taken for another.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache

from dalsegno.sources.suffixes import suffix_of

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+").findall
_ENDS = (
    *("token", "sig", "sign", "signature", "auth", "key", "pass", "password", "passwd", "passphrase", "pwd"),
    *("secret", "policy", "hmac", "session", "credential", "credentials", "ticket", "nonce"),
)
_BEGINS = (
    "expir",
    "session",
    "signature",
    "token",
    "oauth",
    "authoriz",
    "authent",
    "authcode",
    "credential",
    "hmac",
    "nonce",
)
_ORDINARY = frozenset(
    {"design", "redesign", "assign", "resign", "ensign", "monkey", "turkey", "hockey", "jockey", "donkey", "whiskey",
     "compass", "bypass", "trespass", "underpass", "overpass", "possession", "obsession", "authentic"}
)  # fmt: skip
_MINGLED = ("expir", "secret", "passw", "accesskeyid")
"""Parts of words that nothing else is called."""
_CHECKS = frozenset({"hash", "md5", "sha1", "sha256", "digest", "checksum", "mac", "verify"})
"""They may say what it is, too; where something expires and nothing else signs, they sign it."""
_SCHEMES = ("x-amz-", "x-goog-", "x-oss-", "x-cos-", "x-plex-", "q-", "hdn")
_AZURE = frozenset(
    {"sv", "st", "se", "sr", "sp", "spr", "sip", "ss", "srt", "skoid", "sktid", "skt", "ske", "sks", "skv"}
)
_TIMES = frozenset(
    {"e", "ex", "exp", "ts", "t", "st", "et", "time", "date", "timestamp", "deadline", "issued", "until", "valid",
     "validfrom", "validto", "start", "end", "from", "to", "wstime", "txtime"}
)  # fmt: skip
_MOMENT = re.compile(r"1\d{9}(?:\d{3})?|20\d{6}T\d{6}Z?").fullmatch
_TELLING = frozenset(
    {"id", "ids", "uuid", "guid", "ep", "episode", "track", "song", "item", "file", "filename", "path", "name", "title",
     "no", "num", "number", "v", "p"}
)  # fmt: skip


def is_short_lived(url: str) -> bool:
    """Whether a parameter of it is a credential, or a signature that ends some day."""
    return any(equals and _lets_in(name) for name, equals, _ in _pairs(url.replace("#", "&")))


@lru_cache(512)
def identifying(url: str) -> str:
    """The URL as far as it says what it is, whenever and for whom it was signed.

    Where its path is that of an audio file, that says it; then only such as `id` are kept besides.
    """
    path = url.partition("?")[0]
    pairs = _pairs(url.partition("#")[0])
    signed = [name for name, equals, _ in pairs if equals and _lets_in(name)]
    left = [pair for pair in pairs if pair[0] not in signed]
    if signed:
        left = [pair for pair in left if not _signs(pair[0], pair[2], signed)]
    if suffix_of(path):
        left = [pair for pair in left if _TELLING & set(_words(pair[0]))]
    query = "&".join("".join(pair) for pair in left)
    return f"{path}?{query}" if query else path


class Ties:
    """Songs of one list that would have one id, though their addresses differ: they are told apart by what they are
    called, and those that are called alike by their order."""

    def __init__(self, claims: Iterable[tuple[str, str, str]]) -> None:
        """Each is an id, an address, and what is said of the song."""
        self._places: dict[str, dict[str, str]] = {}
        counts: dict[str, dict[str, int]] = {}
        for id, place, song in claims:
            places, count = self._places.setdefault(id, {}), counts.setdefault(id, {})
            mark = hashlib.sha256(song.casefold().encode()).hexdigest()[:12]
            if place in places:
                continue
            if not (mark in count and suffix_of(place.partition("?")[0])):  # one file, signed twice, is one song
                count[mark] = count.get(mark, 0) + 1
            number = count[mark]
            places[place] = f"#{mark}" if number == 1 else f"#{mark}.{number}"
        self._places = {id: places for id, places in self._places.items() if len(set(places.values())) > 1}

    def told(self, id: str, place: str) -> str:
        return id + self._places.get(id, {}).get(place, "")


def _pairs(url: str) -> list[tuple[str, str, str]]:
    """Name, `=` where there is one, and value."""
    return [pair.partition("=") for pair in url.partition("?")[2].split("&") if pair]


@lru_cache(2048)
def _words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORDS(name))


@lru_cache(2048)
def _lets_in(name: str) -> bool:
    plain = name.lower()
    return any(part in plain for part in _MINGLED) or any(
        word not in _ORDINARY and (word.endswith(_ENDS) or word.startswith(_BEGINS)) for word in _words(name)
    )


def _signs(name: str, value: str, signed: list[str]) -> bool:
    """Whether it only goes with those that are `signed`."""
    plain = name.lower()
    if plain.startswith(_SCHEMES) or plain in ("googleaccessid", "access_id"):
        return True
    if plain in _AZURE and "sig" in signed:
        return True
    if plain in _TIMES and _MOMENT(value):
        return True
    return plain in _CHECKS and all("expir" in each.lower() for each in signed)
