"""What putting a backup in place came to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Settle = Callable[[str], int]
"""Opens the restored database at this URL, brings its schema up and ends what was under lease; how many processes held
something."""


@dataclass(frozen=True, slots=True)
class Placed:
    schema: str
    rows: int
    rescued: int
    kept: str | None = None
