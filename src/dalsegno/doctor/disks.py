"""Room on the disks that the database, the library and the store are on."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from dalsegno.insight.health.finding import Finding, Severity, found
from dalsegno.settings import Settings
from dalsegno.store.open import parse_url

LEAST = 100_000_000
"""Bytes without which a database soon stops."""


@dataclass(frozen=True, slots=True)
class Place:
    what: str
    path: Path
    keep: int
    """Bytes that must stay free."""
    enough: int
    """Bytes from which on nobody needs to be told."""
    used: bool = True
    """Something is known to be there."""


def places(settings: Settings, known: Iterable[Path] = ()) -> list[Place]:
    """`known` are the libraries that songs were downloaded to."""
    keep = settings.min_free_space
    own, roots = settings.library_root.absolute(), list(dict.fromkeys(known))
    found_ = [Place("library", root, keep, 2 * keep) for root in roots]
    if own not in roots:
        found_.append(Place("library", own, keep, 2 * keep, used=False))
    url = settings.database_url
    if url.startswith("sqlite"):
        path = Path(parse_url(url).database or "").absolute()
        found_.append(Place("database", path.parent, LEAST, max(keep, LEAST), used=path.exists()))
    target = settings.object_store or ""
    if target.startswith(("file://", "/")):
        folder = Path(unquote(target.removeprefix("file://").removeprefix("localhost")))
        found_.append(Place("object store", folder, LEAST, max(keep, LEAST), used=False))
    return found_


def look(some: Iterable[Place]) -> list[Finding]:
    return [_judged(place) for place in some]


def _judged(place: Place) -> Finding:
    told: dict[str, Any] = {"what": place.what, "path": str(place.path)}
    subject = f"disk:{place.path}"
    try:
        usage = shutil.disk_usage(place.path if place.used else _existing(place.path))
    except OSError:
        return found("disk_unseen", "warning", subject, **told)
    severity: Severity = "error" if usage.free <= place.keep else "warning" if usage.free < place.enough else "ok"
    code = "disk_fine" if severity == "ok" else "disk_low"
    told |= {"free_bytes": usage.free, "total_bytes": usage.total, "keep_bytes": place.keep}
    return found(code, severity, subject, **told)


def _existing(path: Path) -> Path:
    """The nearest folder above that is there: where a folder that has not been made yet will be."""
    return next(folder for folder in (path, *path.parents) if folder.exists())
