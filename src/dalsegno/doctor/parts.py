"""Unfinished files that were left behind: downloads in libraries, half copies in a store that is a folder."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dalsegno.catalog.abandoned import library_roots, old_parts, wanted
from dalsegno.clock import Clock
from dalsegno.insight.health.finding import Finding, found
from dalsegno.objects.model import RESERVED
from dalsegno.store.store import Store

OLD = timedelta(days=7)
LISTED = 1000
"""Paths that a finding names."""


def look(store: Store, own: Path, old: timedelta = OLD) -> list[Finding]:
    roots = list(dict.fromkeys([*store.read(library_roots), own.absolute()]))
    return [each for root in roots for each in _under(store, root, old)]


def _under(store: Store, root: Path, old: timedelta) -> list[Finding]:
    parts = old_parts(root, store.clock.now() - old)
    if not parts:
        return []
    kept = store.read(lambda tx: wanted(tx, parts))
    stale = sorted((part.modified_at, part.path, part.size) for song, part in parts.items() if song not in kept)
    return _told("part_stale", root, old, stale)


def look_at_copies(root: Path, clock: Clock, old: timedelta = OLD) -> list[Finding]:
    """Walks through the whole store: only when asked for."""
    stale = []
    for path in root.rglob(f"{RESERVED}*.part"):
        try:
            told = path.stat()
        except OSError:
            continue
        modified = datetime.fromtimestamp(told.st_mtime, UTC)
        if modified < clock.now() - old:
            stale.append((modified, path, told.st_size))
    return _told("copy_stale", root, old, sorted(stale))


def _told(code: str, root: Path, old: timedelta, stale: Sequence[tuple[datetime, Path, int]]) -> list[Finding]:
    if not stale:
        return []
    return [
        found(
            code, "warning", f"folder:{root}", stale[0][0], root=str(root), count=len(stale),
            old_seconds=old.total_seconds(), size_bytes=sum(size for _, _, size in stale), oldest_at=stale[0][0],
            things=[str(path) for _, path, _ in stale[:LISTED]],
        )
    ]  # fmt: skip
