"""Where archives go: RETENTION_ARCHIVE, else OBJECT_STORE, else a folder beside the library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dalsegno.objects import ObjectStore, open_store

if TYPE_CHECKING:
    from dalsegno.settings import Settings

OFF = "off"
BELOW = "dalsegno-archive"
"""What names in a store that has other things in it begin with."""


def beside_the_library(settings: Settings) -> Path:
    root = settings.library_root.absolute()
    return root.with_name(f"{root.name}-archive")


def url_of(settings: Settings) -> str | None:
    """None: months are dropped without being put away."""
    if settings.retention_archive == OFF:
        return None
    return settings.retention_archive or settings.object_store or str(beside_the_library(settings))


def open_place(settings: Settings, url: str) -> ObjectStore:
    return open_store(url, {name.upper(): getattr(settings, name) for name in type(settings).model_fields})


def key_of(kind: str, name: str, sha256: str) -> str:
    """With a piece of its checksum: several databases may share a store, and nothing there is ever replaced."""
    return f"{BELOW}/{kind}/{name}-{sha256[:12]}.jsonl.gz"


def manifest_of(key: str) -> str:
    return key.removesuffix(".jsonl.gz") + ".manifest.json"
