"""Whether a secret is still the same, without keeping it: a digest of each, under a key that is in no database.

The key lies beside the settings file, for the same eyes only: whoever can read it can read the secrets themselves.
Where it cannot be written, secrets are only known to differ where they were changed here.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from dalsegno.config.envfile import Document
from dalsegno.config.masks import mask_value

LENGTH = 32


def hidden_in(document: Document) -> dict[str, str]:
    """The values that are masked when they are stored, by key. Never stored, never shown."""
    last = {part.key: part.value for part in document.entries() if part.key and part.value}
    return {key: value for key, value in last.items() if mask_value(key, value) != value}


def seals(file: Path | None, document: Document, *, make: bool = False) -> dict[str, str]:
    """By key; empty where there is no key and none is to be made, or can be."""
    key = None if file is None else _key(_beside(file), make=make)
    if key is None:
        return {}
    mark = hashlib.sha256(key).hexdigest()[:8]
    return {name: f"{mark}:{_digest(key, name, value)}" for name, value in hidden_in(document).items()}


def differ(was: object, now: object) -> bool:
    """Whether two seals say that a secret changed, or two of whatever else tells them apart. Seals under two keys, and
    things of two kinds, say nothing."""
    if isinstance(was, str) and isinstance(now, str):
        return was[:8] == now[:8] and was != now
    return type(was) is type(now) and was != now


def broken(kept: Mapping[str, object], now: Mapping[str, object]) -> bool:
    """Whether any secret is another one."""
    return any(differ(kept[key], now[key]) for key in kept.keys() & now.keys())


def _digest(key: bytes, name: str, value: str) -> str:
    said = f"{name}\0{value}".encode("utf-8", "surrogatepass")
    return hmac.digest(key, said, hashlib.sha256).hex()[:LENGTH]


def _beside(file: Path) -> Path:
    return file.with_name(f".{file.name}.key")


def _key(place: Path, *, make: bool) -> bytes | None:
    with contextlib.suppress(OSError):
        if make and not place.exists():
            new = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(new, "wb") as stream:
                stream.write(secrets.token_bytes(LENGTH))
        found = place.read_bytes()
        return found if len(found) == LENGTH else None
    return None
