"""Making bytes and names survive a power cut. Benchmarks that compare with programs that do not turn it off."""

from __future__ import annotations

import os
from pathlib import Path

durable = True


def sync(descriptor: int) -> None:
    if durable:
        os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """A rename is only certain once its folder is on disk."""
    if not durable:
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
