"""Which sources there are: the built-in ones, the external processes an operator named, and plug-ins.

A plug-in is an entry point of the group `dalsegno.sources`: a callable that takes a `Config` and returns a source.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from dalsegno.errors import InputInvalid
from dalsegno.model.suggest import did_you_mean
from dalsegno.sources.model import Source, Unusable

GROUP = "dalsegno.sources"
BUILTIN: dict[str, tuple[str, str]] = {
    "subsonic": ("dalsegno.sources.subsonic", "SUBSONIC_URL"),
    "feed": ("dalsegno.sources.feed", "FEED_URLS"),
    "playlist-file": ("dalsegno.sources.playlist_file", "PLAYLIST_FILES"),
    "folder": ("dalsegno.sources.folder", "FOLDER_ROOTS"),
    "ytdlp": ("dalsegno.sources.ytdlp", "YTDLP_URLS"),
    "demo": ("dalsegno.sources.demo", "DEMO_URL"),
}
"""Name: the module whose `open_source(config)` makes it, and the setting that turns it on."""


@dataclass(frozen=True, slots=True)
class Config:
    """What a source may know of the settings: their values by key, secrets included."""

    values: Mapping[str, Any] = field(default_factory=dict)

    def text(self, key: str, default: str = "") -> str:
        value = self.values.get(key)
        return default if value is None else str(value)

    def list(self, key: str) -> list[str]:
        return [str(each) for each in self.values.get(key) or ()]

    def own(self, source: str) -> dict[str, str]:
        """The keys `SOURCE_<NAME>_…`, which belong to a plug-in alone, without that prefix."""
        prefix = _prefix(source)
        return {key.removeprefix(prefix): str(value) for key, value in self.values.items() if key.startswith(prefix)}


def _prefix(source: str) -> str:
    return f"SOURCE_{source.upper().replace('-', '_')}_"


Factory = Callable[[Config], Source]


class Closed(Source):
    """Stands for a source that cannot be opened."""

    def __init__(self, name: str, why: Unusable) -> None:
        self.name = name
        self._why = str(why), why.code

    def _refuse(self, *_: object) -> Any:
        raise Unusable(*self._why)

    pools: Any = _refuse
    playlists: Any = _refuse
    tracks: Any = _refuse
    search: Any = _refuse
    resolve: Any = _refuse


class Sources:
    """The sources of one configuration, opened when they are first asked for."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._external = dict(config.values.get("EXTERNAL_SOURCES") or {})
        self._plugins = {each.name: each for each in entry_points(group=GROUP)}
        self._open: dict[str, Source] = {}
        self._lock = threading.Lock()
        self._names: list[str] | None = None

    def names(self) -> list[str]:
        """Those in use: SOURCES in its order, else every source that is configured."""
        if self._names is None:
            self._names = self.config.list("SOURCES") or [name for name in self.known() if self._configured(name)]
        return self._names

    def get(self, name: str) -> Source:
        """Raises Unusable, which names the setting, for one that cannot be opened."""
        with self._lock:
            if name not in self._open:
                try:
                    source = self._factory(name)(self.config)
                except InputInvalid:
                    raise
                except Exception as error:
                    raise Unusable(self._why(name, error), code="source_setting") from error
                source.name = name
                self._open[name] = source
            return self._open[name]

    def at_hand(self, name: str) -> Source:
        """The same; in place of one that cannot be opened, one that says why whenever it is asked."""
        try:
            return self.get(name)
        except Unusable as error:
            return Closed(name, error)

    def __iter__(self) -> Iterator[Source]:
        return (self.get(name) for name in self.names())

    def close(self) -> None:
        with self._lock:
            for source in self._open.values():
                source.close()
            self._open.clear()

    def check(self, names: Sequence[str]) -> None:
        """Raises for a name that no source has."""
        for name in names:
            if name not in self.known():
                raise InputInvalid(problem=f'There is no source "{name}".{did_you_mean(name, self.known())}')

    def known(self) -> list[str]:
        """Configured or not."""
        return [*BUILTIN, *self._external, *self._plugins]

    def _configured(self, name: str) -> bool:
        """A plug-in may need no settings; one that cannot be opened without any is installed, no more."""
        if name in BUILTIN:
            return bool(self.config.values.get(BUILTIN[name][1]))
        return name in self._external or bool(self.config.own(name)) or not isinstance(self.at_hand(name), Closed)

    def _why(self, name: str, error: Exception) -> str:
        if name in self._external:
            return f"The program {name} of EXTERNAL_SOURCES cannot be used: {error}."
        if name in BUILTIN:
            return f"{BUILTIN[name][1]} cannot be used: {error}"
        said = f"{type(error).__name__}: {error}"
        return f"The plug-in {name} cannot be opened ({said}). Its settings are {_prefix(name)}<KEY>."

    def _factory(self, name: str) -> Factory:
        if name in self._external:
            return import_module("dalsegno.sources.external").opener(name, self._external[name])  # type: ignore[no-any-return]
        if name in BUILTIN:
            return import_module(BUILTIN[name][0]).open_source  # type: ignore[no-any-return]
        if name in self._plugins:
            return self._plugins[name].load()  # type: ignore[no-any-return]
        raise InputInvalid(problem=f'There is no source "{name}".{did_you_mean(name, self.known())}')
