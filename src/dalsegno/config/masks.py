"""Secrets out of a text, and back in. What is stored and shown has masks; what is written to disk has none.

Masking goes by where something stands: the value of a secret key, the password in an address, the command of an
external program (which may hold anything), the same in lines that are commented out or broken. Only then, in what
is free text anyway, by what it says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dalsegno.config.envfile import Document, Part, parsed
from dalsegno.config.fields import is_secret, key_of
from dalsegno.config.model import Fault
from dalsegno.engine.logbridge import masked
from dalsegno.settings.masks import MASK, masked_query, masked_url

PROGRAMS = ("EXTERNAL_SOURCES", "EXTERNAL_DECODERS")
ASSIGNED = re.compile(r"(\s*#*\s*(?:export\s+)?'?([A-Za-z_]\w*)'?[^\S\r\n]*=[^\S\r\n]*)([^\r\n]*)")
"""Something like an entry in a comment or a broken line."""
SIGNED_IN = re.compile(
    r"([\w+]+://[^\s:/?#@]*:)(?!\d+[/?#])[^\s@]+@|(?<=\bhttp://)[^\s:/?#@]+@|(?<=\bhttps://)[^\s:/?#@]+@"
)
"""In free text, where an address ends is a guess."""
BREAK = re.compile(r"([\r\n]+)")
SHORTEST = 4
"""Shorter secrets are not looked for in free text: they would be found in half of all words."""
BETWEEN = re.compile(r",(?=\s*[\w+]+://|[^@,]*(?:,|$))")
"""Commas between addresses, and none in their passwords."""


def mask_value(key: str, value: str) -> str:
    if not value or is_secret(key):
        return MASK if value else value
    if key in PROGRAMS:
        return "; ".join(f"{name.strip()}={MASK}" if equals else MASK for name, equals, _ in _programs(value))
    if _many(key):
        return ",".join(_address(each) for each in BETWEEN.split(value))
    return _address(value)


def _address(text: str) -> str:
    bare = text.lstrip()
    return text[: len(text) - len(bare)] + masked_url(bare)


def _programs(value: str) -> list[tuple[str, str, str]]:
    return [part.partition("=") for part in value.split(";") if part.strip()]


def _many(key: str) -> bool:
    found = key_of(key)
    return found is not None and found.kind == "list"


# --- out ------------------------------------------------------------------------------------------


def stored(document: Document) -> Document:
    """As a revision keeps it. The same text always gives the same, whoever looks."""
    own = secrets_in(document)
    parts, torn = [], False
    for part in document.parts:
        if part.kind == "entry":
            torn = False
            parts.append(_entry(part, own))
        elif part.kind == "broken":
            # The lines after a secret whose quotes were never closed may be its own.
            secret = torn or _is_of_secret(part.text)
            parts.append(replace(part, text=_free_text(part.text, own, whole=torn)))
            torn = secret
        else:
            parts.append(replace(part, text=_free_text(part.text, own)))
    return replace(document, parts=tuple(parts))


def shown(document: Document, secrets: Iterable[str]) -> str:
    """As people see it: what these secrets are is masked too, wherever it stands."""
    return masked(stored(document).text, secrets)


def fingerprint(content: str) -> str:
    """Of a text that is stored."""
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def secrets_in(document: Document) -> tuple[str, ...]:
    """The values of a text that nobody may see, longest first."""
    found = {part.value for part in document.entries() if part.key and is_secret(part.key)}
    return tuple(sorted((value for value in found if len(value) >= SHORTEST), key=len, reverse=True))


def _entry(part: Part, own: Sequence[str]) -> Part:
    assert part.key is not None
    kept = mask_value(part.key, part.value)
    made = part if kept == part.value else part.with_value(kept)
    remark = made.text[made.at[1] :]
    return replace(made, text=made.text[: made.at[1]] + masked(remark, own))


def _is_of_secret(text: str) -> bool:
    found = ASSIGNED.match(text)
    return found is not None and is_secret(found[2].upper())


def _free_text(text: str, own: Sequence[str], *, whole: bool = False) -> str:
    if whole:
        said = text.strip()
        return text.replace(said, MASK) if said else text
    found = ASSIGNED.match(text)
    if found is not None and found[3]:
        value = found[3].strip("'\"")
        text = text[: found.start(3)] + mask_value(found[2].upper(), value) + text[found.end(3) :]
    lines = (masked_query(SIGNED_IN.sub(rf"\g<1>{MASK}@", line)) for line in BREAK.split(text))
    return masked("".join(lines), own)


# --- and back -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Restored:
    document: Document
    faults: tuple[Fault, ...]


def restored(content: str, disk: Document, secrets: Sequence[str], *, blank: bool = False) -> Restored:
    """A text with masks as it is written: what was masked is what the file has now.

    A mask that stands for nothing there is a fault; with `blank`, a secret's is left empty and said to be missing.
    """
    known: dict[str, list[str]] = {}
    for part in disk.entries():
        if part.key and part.value:
            known.setdefault(part.key, []).append(part.value)
    as_it_was = _lines(disk, secrets)
    parts, faults = [], []
    for part in parsed(content).parts:
        made, said = part, part.text.strip()
        if old := as_it_was.get(said):
            made = replace(part, text=part.text.replace(said, old.pop() if len(old) > 1 else old[0]))
        elif part.kind == "entry" and part.key is not None:
            value = _back(part.key, part.value, known.get(part.key, []), secrets)
            if value is None and blank and is_secret(part.key):
                why = "it had a value then, and none is stored now."
                hint = "Write it into the file; until then it is empty."
                faults.append(Fault(part.line, part.key, why, hint, "warning", "secret_gone"))
                value = ""
            if value is None:
                # Of a key that nobody knows, that is all there is to say.
                faults += [_unknown(part)] if key_of(part.key) else []
            elif value != part.value:
                made = part.with_value(value)
        parts.append(made)
    text = "\ufeff" * content.startswith("\ufeff") + "".join(part.text for part in parts)
    return Restored(parsed(text), tuple(faults))


def keeping(document: Document, disk: Document) -> Document:
    """With the secrets that only the file has: revisions do not hold them, so nobody could bring them back."""
    added = document
    for part in disk.entries():
        if part.key and part.value and key_of(part.key) and is_secret(part.key) and added.last(part.key) is None:
            last = disk.last(part.key)
            assert last is not None
            added = added.with_value(part.key, last.value)
    return added


def _unknown(part: Part) -> Fault:
    suggestion = f"Write the value instead of {MASK}, or take the line out."
    reason = f"{MASK} stands for what is stored, and nothing like this is."
    return Fault(part.line, part.key, reason, suggestion, code="mask_unknown")


def _back(key: str, value: str, known: Sequence[str], secrets: Sequence[str]) -> str | None:
    """What a value stands for; None where that is not known."""
    if is_secret(key) and value in ("", MASK):
        return known[-1] if known else (None if value else value)
    if MASK not in value:
        return value
    for each in reversed(known):
        kept = mask_value(key, each)
        if value in (kept, masked(kept, secrets)):
            return each
    if key in PROGRAMS:
        return _programs_back(value, known)
    return _list_back(value, known, secrets) if _many(key) else None


def _list_back(value: str, known: Sequence[str], secrets: Sequence[str]) -> str | None:
    """Each for itself, so that one may be added or taken away; alike ones in their order."""
    pieces = [piece.strip() for each in known for piece in BETWEEN.split(each)]
    by_mask: dict[str, list[str]] = {}
    for piece in reversed(pieces):
        for form in {masked_url(piece), masked(masked_url(piece), secrets)}:
            by_mask.setdefault(form, []).append(piece)
    found = []
    for piece in (each.strip() for each in BETWEEN.split(value)):
        if MASK in piece and not by_mask.get(piece):
            return None
        found.append(by_mask[piece].pop() if MASK in piece else piece)
    return ",".join(found)


def _programs_back(value: str, known: Sequence[str]) -> str | None:
    commands = {name.strip(): command.strip() for each in known for name, _, command in _programs(each)}
    found = []
    for name, _, command in ((name.strip(), equals, text.strip()) for name, equals, text in _programs(value)):
        if command == MASK and name not in commands:
            return None
        found.append(f"{name}={commands[name] if command == MASK else command}")
    text = "; ".join(found)
    return None if MASK in text else text


def _lines(disk: Document, secrets: Sequence[str]) -> dict[str, list[str]]:
    """What was masked of the file, and how it reads there; alike lines last first."""
    found: dict[str, list[str]] = {}
    for part, old in reversed(list(zip(stored(disk).parts, disk.parts, strict=True))):
        kept, was = part.text.strip(), old.text.strip()
        for form in {kept, masked(kept, secrets)} - {was}:
            found.setdefault(form, []).append(was)
    return found
