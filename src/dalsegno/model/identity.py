"""Two requests that mean the same have the same identity, however they are spelled."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """Sorted keys, no spaces, keys with null left out at every depth."""
    return json.dumps(_without_nulls(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def identity(value: Any) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(inner) for inner in value]
    return value
