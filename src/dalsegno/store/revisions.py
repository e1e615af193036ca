"""The revisions of the schema that this code carries."""

from __future__ import annotations

from pathlib import Path

from dalsegno.errors import SchemaNewer

SCRIPTS = Path(__file__).parent / "migrations"


def known_revisions() -> list[str]:
    """Oldest first: the four digits that open each file's name."""
    return sorted(path.name[:4] for path in (SCRIPTS / "versions").glob("[0-9][0-9][0-9][0-9]_*.py"))


def check(found: str | None) -> str | None:
    """What was found, unless it is from the future."""
    known = known_revisions()
    if found is not None and found not in known:
        raise SchemaNewer(found=found, known=known[-1])
    return found
