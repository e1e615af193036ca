"""Secrets out of a value, and back in where the settings in force still have them."""

from __future__ import annotations

import re
from typing import Any

MASK = "***"
SECRET_QUERY = re.compile(
    r"([?&](?:password|passwd|pwd|token|access_token|auth|key|apikey|api_key|secret|sig|signature)=)([^&#]+)",
    re.IGNORECASE,
)


def password_in(url: str) -> str:
    """What stands between the user's name and the last @ of a URL; empty where there is none."""
    found = re.match(r"[\w+]+://[^:/@]*:(.+)@", url)
    return found.group(1) if found else ""


def masked_url(url: str) -> str:
    """The URL without its password, wherever it stands."""
    secret = password_in(url)
    shown = url.replace(f":{secret}@", f":{MASK}@") if secret else url
    return SECRET_QUERY.sub(rf"\1{MASK}", shown)


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
