"""Text as it is compared: small letters, no accents, no punctuation."""

from __future__ import annotations

import re
import unicodedata

_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "\u0131": "i", "’": "'"}
)
BRACKETS = re.compile(
    r"\(([^()]*)\)|\[([^\[\]]*)\]|\{([^{}]*)\}|【([^【】]*)】|<([^<>]*)>|〈([^〈〉]*)〉|\u3014([^\u3014\u3015]*)\u3015"
)


def folded(text: str) -> str:
    """NFKC, small letters, Latin without accents. Marks of other scripts stay: が is not か."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    kept: list[str] = []
    for char in unicodedata.normalize("NFD", text):
        if unicodedata.combining(char) and kept and "a" <= kept[-1] <= "z":
            continue
        kept.append(char)
    text = unicodedata.normalize("NFC", "".join(kept)).translate(_LETTERS)
    return " ".join(text.split())


def words(text: str) -> str:
    """Letters and digits only; apostrophes join, everything else parts."""
    text = text.replace("'", "").replace("&", " and ")
    text = "".join(c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in text)
    return " ".join(text.split())


def near(one: str, other: str) -> bool:
    """One letter more, less or other, in words long enough to bear it, and not the first."""
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    if len(short) < 5 or len(long) - len(short) > 1 or short[0] != long[0] or any(c.isdigit() for c in short + long):
        return False
    start = next((n for n, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    return short[start + (len(short) == len(long)) :] == long[start + 1 :]
