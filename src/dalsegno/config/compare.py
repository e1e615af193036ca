"""What differs between two versions of the file: by key, and line by line. Of secrets, only that they differ."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dalsegno.config.current import Current
from dalsegno.config.envfile import Document, parsed
from dalsegno.config.fields import is_secret, key_of
from dalsegno.config.files import read
from dalsegno.config.masks import fingerprint, stored
from dalsegno.config.model import Comparison, Diff, KeyChange, Revision
from dalsegno.config.revisions import current_revision, get_revision
from dalsegno.config.seals import broken, differ, hidden_in, seals
from dalsegno.settings.masks import MASK
from dalsegno.store.store import Store, Tx


@dataclass(frozen=True, slots=True)
class Side:
    content: str
    """Masked, as it is stored."""
    tokens: Mapping[str, object] = field(default_factory=dict)
    """By key, what tells two masked values apart."""
    name: str = ""


def compare(store: Store, current: Current, a: int | None, b: int | None) -> Comparison:
    """From one revision to another; None is the file on disk."""

    def look(tx: Tx) -> tuple[Revision | None, Revision | None, Revision | None]:
        before = None if a is None else get_revision(tx, a)
        after = None if b is None else get_revision(tx, b)
        return before, after, current_revision(tx, current)

    before, after, newest = store.read(look)
    found = read(current.file).document
    disk = Side(stored(found).text, seals(current.file, found) or (newest.secrets if newest else {}), "disk")
    return Comparison(before, after, difference(_side(before) or disk, _side(after) or disk))


def side_of(document: Document, name: str = "") -> Side:
    """Of a text whose secrets are at hand."""
    return Side(stored(document).text, {key: (value,) for key, value in hidden_in(document).items()}, name)


def difference(before: Side, after: Side) -> Diff:
    old, new = _values(before.content), _values(after.content)
    keys = [
        change
        for key in dict.fromkeys((*new, *old))
        if (change := _change(key, old.get(key), new.get(key), before.tokens.get(key), after.tokens.get(key)))
    ]
    lines = difflib.unified_diff(
        before.content.splitlines(), after.content.splitlines(), before.name, after.name, lineterm=""
    )
    return Diff(tuple(keys), "\n".join(lines))


def is_of(revision: Revision | None, current: Current, document: Document) -> bool:
    """Whether a text is what this revision says, its secrets too as far as that is known."""
    if revision is None or fingerprint(stored(document).text) != revision.content_hash:
        return False
    return not broken(revision.secrets, seals(current.file, document))


def _side(revision: Revision | None) -> Side | None:
    return None if revision is None else Side(revision.content, revision.secrets, f"revision {revision.id}")


def _values(content: str) -> dict[str, str]:
    return {part.key: part.value for part in parsed(content).entries() if part.key and part.value}


def _change(key: str, old: str | None, new: str | None, was: object, now: object) -> KeyChange | None:
    what: Literal["added", "removed", "changed"]
    if old == new and not differ(was, now):
        return None
    what = "added" if old is None else "removed" if new is None else "changed"
    known = key_of(key)
    secret = is_secret(key) or MASK in (old or "") + (new or "")
    return KeyChange(key, what, old, new, secret, known is not None and known.restart_needed)
