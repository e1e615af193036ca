"""The settings in force in this process: the file as it is now, or as it last was right."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from dalsegno.config.envfile import parsed
from dalsegno.config.masks import fingerprint, stored
from dalsegno.config.meant import meaningless
from dalsegno.errors import SettingInvalid
from dalsegno.settings import Loaded, Settings, load_settings
from dalsegno.settings.load import DEFAULT_FILE

EASE = 0.5
"""Seconds that `steady` believes what it saw."""


class Secrets(Sequence[str]):
    """Every secret that this process has ever read, longest first. It grows; whoever holds it need not ask again."""

    def __init__(self) -> None:
        self._texts: tuple[str, ...] = ()

    def add(self, texts: Iterable[str]) -> None:
        self._texts = tuple(sorted({*self._texts, *texts}, key=lambda text: (-len(text), text)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[str, ...]: ...
    def __getitem__(self, at: Any) -> Any:
        return self._texts[at]


class Current:
    """Reads the file anew when it has changed. While it is wrong or gone, what it said before stays in force."""

    def __init__(self, load: Callable[[], Loaded], file: Path | None) -> None:
        self.file = file
        """The file this process was started with, whether it is there or not; None where nothing can be saved."""
        self.secrets = Secrets()
        self._load = load
        self._lock = threading.RLock()
        self._seen = version_of(file)
        self._loaded = load()
        self._problem: SettingInvalid | None = None
        self.fingerprint = _fingerprint(file)
        """Of the content in force, as a revision of it would have; None where there is no file."""
        self._looked_at = time.monotonic()
        self.started = self._loaded
        """As they were when this process began: what needs a restart is still so."""
        self.secrets.add(self._loaded.settings.secrets())
        alone = self._loaded.settings.database_url.startswith("sqlite")
        self.host = None if alone else socket.gethostname()
        """Whose file it is, where several machines may share the database. Not NODE_NAME: that is in the file."""

    @classmethod
    def of(cls, env_file: Path | None = None, database: str | None = None) -> Current:
        """The file that commands read. A named one must be there at the start."""
        load_settings(env_file, database)
        file = (env_file or DEFAULT_FILE).absolute()
        return cls(lambda: load_settings(file, database, needed=False), file)

    @classmethod
    def fixed(cls, settings: Settings) -> Current:
        """Settings from nowhere: shown, never saved."""
        return cls(lambda: Loaded(settings, DEFAULT_FILE, found=False, origins={}), None)

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def loaded(self) -> Loaded:
        """With where each value comes from."""
        if self._seen != version_of(self.file):
            self.refresh()
        return self._loaded

    @property
    def problem(self) -> str | None:
        """Why the file as it is now is not in force; None where it is."""
        self.loaded  # noqa: B018 - looks whether the file has changed
        return None if self._problem is None else str(self._problem)

    def steady(self) -> Settings:
        """For what asks thousands of times a second: at most half a second behind."""
        now = time.monotonic()
        if now - self._looked_at > EASE:
            self._looked_at = now
            return self.settings
        return self._loaded.settings

    def refresh(self) -> None:
        with self._lock:
            seen = version_of(self.file)
            try:
                if self._loaded.found and not seen:
                    raise SettingInvalid(key=str(self.file), problem="there is no such file.")
                loaded = self._load()
                for key, said in meaningless(loaded.settings):
                    raise SettingInvalid(key=key, problem=said)
            except SettingInvalid as error:
                self._problem = error
            else:
                self._problem = None
                self.fingerprint = _fingerprint(self.file)
                self.secrets.add(loaded.settings.secrets())
                self._loaded = loaded
            self._seen = seen


def version_of(file: Path | None) -> str:
    """Names the content of a file without reading it; empty where there is none."""
    if file is None:
        return ""
    try:
        found = file.stat()
    except OSError:
        return ""
    return f"{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}"


def _fingerprint(file: Path | None) -> str | None:
    try:
        return None if file is None else fingerprint(stored(parsed(file.read_bytes().decode("utf-8"))).text)
    except (OSError, UnicodeDecodeError):
        return None
