"""The folders of a library, as they are: a name that differs only in case from one that is there is the same name,
because on many disks it is."""

from __future__ import annotations

import os
import threading
import time
import unicodedata
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from dalsegno import durable

FOLDERS_MAX = 256
"""How many are kept in mind."""


AGAIN = 1.0
"""Seconds before a folder that several of our workers fill is read again."""


class Shelf:
    """One for a library and process, shared by its threads. Reads a folder again only when it has changed."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self._seen: OrderedDict[str, tuple[int, dict[str, str], float]] = OrderedDict()
        self._filling: Counter[str] = Counter()
        self._lock = threading.Lock()

    def folder(self, parts: tuple[str, ...]) -> str:
        """The folder for these names, made if need be."""
        place = self.root
        for part in parts:
            place = f"{place}/{self._step(place, part)}"
        return place

    def free_names(self, folder: str, name: str) -> Iterator[tuple[str, str | None]]:
        """`name`, then `name (2)` and so on, each with what already has it there, or None."""
        yield name, self._find(folder, name)
        suffix = PurePosixPath(name).suffix
        stem = name.removesuffix(suffix)
        for number in range(2, 10_000):
            other = f"{stem} ({number}){suffix}"
            yield other, self._find(folder, other)

    @contextmanager
    def filling(self, folder: str) -> Iterator[None]:
        """Around finding a name there and putting something under it."""
        with self._lock:
            self._filling[folder] += 1
        try:
            yield
        finally:
            with self._lock:
                self._filling[folder] -= 1
                if not self._filling[folder]:
                    del self._filling[folder]

    def added(self, folder: str, name: str) -> None:
        """We put it there ourselves: no reason to read the folder again."""
        with self._lock:
            seen = self._seen.get(folder)
            if seen is not None:
                seen[1][_same(name)] = name
                self._seen[folder] = (os.stat(folder).st_mtime_ns, seen[1], seen[2])

    def _step(self, parent: str, part: str) -> str:
        name, number = part, 1
        while True:
            there = self._find(parent, name)
            if there is not None:
                if os.path.isdir(f"{parent}/{there}"):
                    return there
                number += 1
                name = f"{part} ({number})"
                continue
            os.makedirs(f"{parent}/{name}", exist_ok=True)
            durable.sync_folder(parent)
            self.added(parent, name)
            return name

    def _find(self, folder: str, name: str) -> str | None:
        with self._lock:
            try:
                changed = os.stat(folder).st_mtime_ns
            except FileNotFoundError:
                return None
            seen = self._seen.get(folder)
            now = time.monotonic()
            # While ten workers fill one folder it changes all the time, by ourselves.
            crowded = self._filling[folder] > 1
            if seen is None or (seen[0] != changed and not (crowded and now - seen[2] < AGAIN)):
                seen = (changed, {_same(entry.name): entry.name for entry in os.scandir(folder)}, now)
                self._seen[folder] = seen
                while len(self._seen) > FOLDERS_MAX:
                    self._seen.popitem(last=False)
            self._seen.move_to_end(folder)
            return seen[1].get(_same(name))


def _same(name: str) -> str:
    return (
        name.lower() if name.isascii() else unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
    )
