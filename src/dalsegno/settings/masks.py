"""Secrets out of a value, and back in where the settings in force still have them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

MASK = "***"
LONG = 8
ASKED = re.compile(r"[?&;#]([^=&#?;\s/]+)=")
"""The name of a parameter, as far as its value."""
VALUE = re.compile(r"[^&#]*")
NAMED = re.compile(
    r"token|secret|pwd|credential|sess(?:ion|_?id)|ticket|hmac|jwt|cookie|nonce|hash(?!tag)"
    r"|(?<!by)(?<!com)pass(?!age|enger|ive)|auth(?!ors?(?![a-z])|ority)|key(?!word|board|frame|note)"
    r"|(?<!de)(?<!as)sig(?:n|nature|ned)?(?![a-z])|(?<![a-z])(?:sid|pin|otp|pw)(?![a-z])",
    re.IGNORECASE,
)
"""Parts of words that name a secret: `auth_token`, `X-Plex-Token`, `passkey`, `X-Amz-Signature`."""
SCHEME = re.compile(r"([a-z][\w+.-]*)://", re.IGNORECASE)
USERS = ("postgres", "postgresql")
"""Where a name without a password is one that everybody may read; elsewhere it is most often a token."""
NO_PASSWORDS = ("", "x", "x-oauth-basic")
"""What stands behind the colon where the name before it is the token."""


def masked_url(url: str) -> str:
    """The URL without its password, wherever it stands."""
    return _without(url, _hidden(url))


def masked_query(text: str) -> str:
    """The same of parameters alone, in any text that has some."""
    return _without(text, _asked(text))


def _without(text: str, places: Iterable[tuple[int, int]]) -> str:
    pieces, at = [], 0
    for begin, end in places:
        pieces += [text[at:begin], MASK]
        at = end
    return "".join([*pieces, text[at:]])


def hidden_in(url: str) -> tuple[str, ...]:
    """What is masked in a URL. Where a path might go on behind it, also without that."""
    found = [url[begin:end] for begin, end in _hidden(url)]
    found += [first for each in found if len(first := re.split("[/;?]", each)[0]) >= LONG]
    return tuple(dict.fromkeys(text for text in found if text not in ("", MASK)))


def spellings(secret: str) -> set[str]:
    """A secret as it may be met: as it is, and as URLs and JSON write it, or wrote it."""
    plain = {secret, unquote(secret, errors="surrogateescape"), unquote_plus(secret, errors="surrogateescape")}
    found = set(plain)
    for each in plain:
        try:
            coded = {quote(each, safe=""), quote(each), quote_plus(each)}
        except UnicodeEncodeError:  # half a character: no URL has it
            coded = set()
        found |= coded | {re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), text) for text in coded}
        found |= {json.dumps(each)[1:-1], json.dumps(each, ensure_ascii=False)[1:-1]}
    return found - {""}


def _hidden(url: str) -> Iterator[tuple[int, int]]:
    """Where secrets begin and end, in their order."""
    at = 0
    if login := _login(url):
        yield login
        at = login[1]
    yield from _asked(url, at)


def _login(url: str) -> tuple[int, int] | None:
    scheme = SCHEME.match(url)
    if scheme is None:
        return None
    begin = scheme.end()
    netloc = re.split("[/?#]", url[begin:], maxsplit=1)[0]
    login, at, _ = netloc.rpartition("@")
    if not at:
        return _unencoded(url, begin, netloc, scheme[1])
    user, colon, password = login.partition(":")
    if password.lower() not in NO_PASSWORDS:
        return begin + len(user) + len(colon), begin + len(login)
    if not user or scheme[1].lower().partition("+")[0] in USERS:
        return None
    return begin, begin + len(user)


def _unencoded(url: str, begin: int, netloc: str, scheme: str) -> tuple[int, int] | None:
    """A password that should have been written otherwise: a slash ends the host before the @ is met."""
    host, colon, port = netloc.partition(":")
    if not colon or "[" in host:
        return None
    rest = url[begin + len(host) + 1 :]
    if port == "" or port.isdecimal():  # a host and its port; databases take passwords of any kind
        taken = "" if scheme.lower().startswith("http") else re.split("[?#]", rest, maxsplit=1)[0]
    else:
        taken = rest
    password, at, _ = taken.rpartition("@")
    return (begin + len(host) + 1, begin + len(host) + 1 + len(password)) if at else None


def _asked(text: str, at: int = 0) -> Iterator[tuple[int, int]]:
    for found in ASKED.finditer(text, at):
        if found.start() >= at and NAMED.search(found[1]):
            value = VALUE.match(text, found.end())
            assert value is not None
            at = value.end()
            if value[0]:
                yield value.span()


def kept_form(value: Any) -> Any:
    """A value as a snapshot keeps it. Commands may hold anything, so only their names are kept."""
    match value:
        case dict():
            return dict.fromkeys(value, MASK)
        case tuple():
            return [masked_url(each) for each in value]
        case str():
            return masked_url(value)
        case _:
            return value


def unmasked(kept: Any, live: Any) -> Any:
    """What a masked value stands for, where the settings in force still have it."""
    match kept:
        case dict():
            return {name: (live or {}).get(name, "") for name in kept}
        case list():
            known: dict[str, list[str]] = {}
            for each in reversed(live or ()):
                known.setdefault(masked_url(each), []).append(each)
            # Those that differ only in what is masked are told apart by their order.
            return [known[each].pop() if known.get(each) else each for each in kept]
        case _:
            return live if isinstance(live, str) and masked_url(live) == kept else kept
