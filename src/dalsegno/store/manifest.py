"""What a backup says about itself, in a small file beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from dalsegno.errors import BackupDamaged

Told = Callable[[str, int, int], None]
"""What is being done, how far it is, and of how much."""


def untold(_what: str, _done: int, _total: int) -> None:
    """For whoever does not look."""


@dataclass(frozen=True, slots=True)
class Manifest:
    dalsegno: str
    database: str
    """`sqlite` or `postgresql`."""
    server: str
    schema: str
    taken_at: str
    tables: dict[str, int]
    """Rows by table."""
    size: int
    sha256: str
    unpacked: int = 0
    """Of a PostgreSQL archive, the bytes that come out of it."""
    places: list[dict[str, str]] = field(default_factory=list)
    """Libraries and object stores: what is in them is not in the backup."""

    @property
    def rows(self) -> int:
        return sum(self.tables.values())


def beside(backup: Path) -> Path:
    return backup.with_name(f"{backup.name}.manifest")


def write(manifest: Manifest, path: Path) -> None:
    """Flushed, and for its owner's eyes only."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(manifest), file, ensure_ascii=False, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


def read(backup: Path) -> Manifest | None:
    """None: there is none beside it."""
    path = beside(backup)
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        known = {each.name for each in fields(Manifest)}
        return Manifest(**{key: value for key, value in found.items() if key in known})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        problem = f"its manifest cannot be read ({error}). Without the manifest it can be restored, unchecked."
        raise BackupDamaged(path=path, problem=problem) from None
