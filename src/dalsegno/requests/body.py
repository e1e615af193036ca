"""What a request asks for: read strictly, put into one form, and hashed so that spelling makes no difference."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from dalsegno.errors import RequestInvalid
from dalsegno.model.identity import identity
from dalsegno.model.suggest import did_you_mean

IDS = {"kinopoiskId": "kinopoisk_id", "imdbId": "imdb_id", "shikimoriId": "shikimori_id"}
TEXTS = {"title": "title", **IDS}
"""Of which at least one is needed, with the fields they are read into."""
DECODE = "decodeLinks"
LONGEST = {"title": 500, **dict.fromkeys(IDS, 64)}
SPACES = frozenset("\t\n\r")
"""Control characters that are only another way to write a space."""


@dataclass(frozen=True, slots=True)
class ParseBody:
    """A title in the spelling it came in, without spaces that say nothing; ids without any."""

    title: str | None = None
    kinopoisk_id: str | None = None
    imdb_id: str | None = None
    shikimori_id: str | None = None
    decode_links: bool = False

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON. Titles that differ only in capitals and spaces are one."""
        title = None if self.title is None else unicodedata.normalize("NFC", self.title.lower())
        return identity({**self.stored(), "title": title})

    def stored(self) -> dict[str, Any]:
        """As JSON, without what was not said."""
        said = {name: getattr(self, field) for name, field in TEXTS.items()}
        return {**{name: text for name, text in said.items() if text is not None}, DECODE: self.decode_links}


def body_of(given: Any) -> ParseBody:
    """A body from plain data, or an error that names the first thing that is wrong with it."""
    if not isinstance(given, Mapping):
        _refuse('The body must be an object, for example {"title": "Naruto"}.')
    for key in given:
        if key not in TEXTS and key != DECODE:
            name = _shown(str(key))
            _refuse(f'There is no "{name}" in a request.{did_you_mean(name, [*TEXTS, DECODE])}')
    decode = given.get(DECODE)
    if decode is not None and not isinstance(decode, bool):
        _refuse(f"{DECODE} must be true or false.")
    found = {field: _text(name, given.get(name)) for name, field in TEXTS.items()}
    if not any(found.values()):
        _refuse(f"At least one of {', '.join(TEXTS)} must say something.")
    return ParseBody(**found, decode_links=bool(decode))


def body_in(raw: bytes) -> ParseBody:
    """The same from what came over the wire. What two readers of JSON might read differently is refused."""
    try:
        given = json.loads(raw.decode("utf-8"), object_pairs_hook=_once, parse_constant=_constant)
    except UnicodeDecodeError as error:
        _refuse(f"The body is not UTF-8 (at byte {error.start:,}).")
    except RecursionError:
        _refuse("The body is nested too deeply.")
    except json.JSONDecodeError as error:
        _refuse(f"The body is not JSON: {error.msg} (line {error.lineno}, column {error.colno}).")
    except ValueError:  # Python refuses to read a number of thousands of digits
        _refuse("The body is not JSON that can be read: a number in it is too long.")
    return body_of(given)


def _text(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        _refuse(f'{name} must be a text, for example "{"Naruto" if name == "title" else "283290"}".')
    if len(value) > 10 * LONGEST[name]:  # not worth tidying up first
        _too_long(name, len(value))
    for place, each in enumerate(value):
        if unicodedata.category(each) in ("Cc", "Cs") and each not in SPACES:
            _refuse(f"{name} has a control character (U+{ord(each):04X}, at {place + 1}).")
    text = " ".join(unicodedata.normalize("NFC", value).split())
    if len(text) > LONGEST[name]:
        _too_long(name, len(text))
    if name in IDS and " " in text:
        _refuse(f"{name} is one word, without spaces.")
    return text or None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        _refuse(f'"{_shown(twice)}" is said twice.')
    return found


def _constant(name: str) -> NoReturn:
    _refuse(f"The body is not JSON: {name} is no number.")


def _shown(text: str) -> str:
    return "".join(each if each.isprintable() else "\ufffd" for each in text[:60])


def _too_long(name: str, length: int) -> NoReturn:
    _refuse(f"{name} has {length:,} characters; the limit is {LONGEST[name]}.")


def _refuse(problem: str) -> NoReturn:
    raise RequestInvalid(problem=problem)
