"""Guessing made slow: wrong passwords make the next try wait, for an address and, more gently, for everyone."""

from __future__ import annotations

import ipaddress
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from dalsegno.errors import LoginThrottled

FORGET = 3600.0
"""Seconds after the last try when it is all forgotten."""
MOST = 4096
"""Addresses remembered at once; the one quiet for longest goes first."""


@dataclass(frozen=True, slots=True)
class Patience:
    free: int
    """Tries before anybody waits."""
    longest: float
    """Seconds."""

    def wait(self, tries: int) -> float:
        return 0.0 if tries < self.free else min(self.longest, 2.0 ** min(tries - self.free, 30))


ADDRESS = Patience(free=5, longest=900.0)
EVERYONE = Patience(free=50, longest=10.0)


@dataclass(slots=True)
class _Tries:
    count: int = 0
    free_at: float = 0.0
    last: float = 0.0


class Throttle:
    """In memory, and of bounded size. A try counts as wrong until it is forgiven, also while it is being looked at."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._now = monotonic
        self._lock = threading.Lock()
        self._tries: OrderedDict[str, _Tries] = OrderedDict()
        self._all = _Tries()
        self._welcome: OrderedDict[str, None] = OrderedDict()

    def admit(self, address: str) -> None:
        """Count a try; raises where it comes too early."""
        key, now = _network(address), self._now()
        with self._lock:
            mine = self._tries.setdefault(key, _Tries())
            counted = [(mine, ADDRESS)]
            if key not in self._welcome:  # strangers cannot keep out whoever has been here
                counted.append((self._all, EVERYONE))
            for tries, _ in counted:
                if now - tries.last > FORGET:
                    tries.count, tries.free_at = 0, 0.0
                if now < tries.free_at:
                    raise LoginThrottled(wait=math.ceil(tries.free_at - now))
            for tries, patience in counted:
                tries.count += 1
                tries.last = now
                tries.free_at = now + patience.wait(tries.count)
            self._tries.move_to_end(key)
            _shorten(self._tries)

    def forgive(self, address: str) -> None:
        """It was the right one."""
        key = _network(address)
        with self._lock:
            self._tries.pop(key, None)
            if key not in self._welcome:
                self._all.count = max(0, self._all.count - 1)
            self._welcome[key] = None
            self._welcome.move_to_end(key)
            _shorten(self._welcome)


def _shorten(kept: OrderedDict[str, object] | OrderedDict[str, _Tries] | OrderedDict[str, None]) -> None:
    while len(kept) > MOST:
        kept.popitem(last=False)


def _network(address: str) -> str:
    """Who has one IPv6 address has a whole /64 of them."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 6 and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(getattr(found, "ipv4_mapped", None) or found)
