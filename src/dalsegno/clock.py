"""The only place that asks what time it is, so that tests can say otherwise."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall clock, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for measuring."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Also goes on while the machine sleeps, where the system can tell."""
        return time.monotonic() if BOOT_CLOCK is None else time.clock_gettime(BOOT_CLOCK)


def as_utc(moment: datetime) -> datetime:
    """Without a zone it is UTC already."""
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def this_host() -> str:
    """Where a pid and the monotonic clock mean something: this boot of this machine, this container's numbering."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # no /proc: a pid proves nothing, the lease's expiry decides
        return f"unknown/{uuid.uuid4()}"


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._elapsed += seconds


def local_zone() -> str:
    """The name of this machine's time zone, for what people write without one; UTC where it has no name."""
    candidates = [os.environ.get("TZ", "").lstrip(":")]
    with suppress(OSError):
        candidates.append(Path("/etc/timezone").read_text().strip())
    with suppress(OSError):
        candidates.append(str(Path("/etc/localtime").resolve()).partition("zoneinfo/")[2])
    for name in candidates:
        try:
            if name and name == ZoneInfo(name).key:
                return "UTC" if name in ("Etc/UTC", "Etc/UCT", "UCT", "Zulu", "Etc/Zulu") else name
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return "UTC"
