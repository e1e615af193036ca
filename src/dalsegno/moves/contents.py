"""What is in an archive of pg_dump, by its table of contents, and which of it is ours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from dalsegno.store import ours

_OF_TABLES = (
    "TABLE DATA", "TABLE ATTACH", "TABLE", "SEQUENCE OWNED BY", "SEQUENCE SET", "SEQUENCE", "DEFAULT",
    "CHECK CONSTRAINT", "FK CONSTRAINT", "CONSTRAINT", "INDEX ATTACH", "INDEX", "TRIGGER",
)  # fmt: skip
_KINDS = "|".join((*_OF_TABLES, "FUNCTION", "COMMENT"))
_ENTRY = re.compile(rf"^\d+; \d+ \d+ (?P<kind>{_KINDS}) (?P<schema>\S+) (?P<tag>.+) \S+$")
_REMARK = re.compile(r"(TABLE|COLUMN|SEQUENCE|CONSTRAINT|INDEX|TRIGGER) ")
_NUMBERS = re.compile(rf"({'|'.join(sorted(ours.TABLES))})_[a-z_]+_seq\d*")
_FUNCTIONS = tuple(f"{name}()" for name in ours.FUNCTIONS)


@dataclass(slots=True)
class Contents:
    home: str | None = None
    """The schema that our tables are in; None: none of ours is in it."""
    tables: set[str] = field(default_factory=set)
    """Ours."""
    others: set[str] = field(default_factory=set)
    """Tables of other programs in the same schema: older versions took along whatever was there."""
    wanted: list[str] = field(default_factory=list)
    """The entries that make what is ours, in the archive's order; also those of `others`, where there are any."""


def contents_of(entries: Iterable[str]) -> Contents:
    found = [match for line in entries if (match := _ENTRY.match(line))]
    tables = [(match["schema"], match["tag"]) for match in found if match["kind"] == "TABLE"]
    home = next((schema for schema, name in tables if name == "leases" and (schema, ours.VERSION) in tables), None)
    here = {name for schema, name in tables if schema == home}
    mine = {name for name in here if ours.is_ours(name)}
    wanted = [match[0] for match in found if match["schema"] == home and _is_wanted(match)]
    return Contents(home, mine, here - mine, wanted)


def _is_wanted(entry: re.Match[str]) -> bool:
    kind, tag = entry["kind"], entry["tag"]
    if kind == "FUNCTION":
        return tag in _FUNCTIONS
    if kind in ("SEQUENCE", "SEQUENCE SET", "SEQUENCE OWNED BY"):
        return _NUMBERS.fullmatch(tag) is not None
    if kind == "COMMENT":
        return _REMARK.match(tag) is not None or tag.removeprefix("FUNCTION ") in _FUNCTIONS
    return True
