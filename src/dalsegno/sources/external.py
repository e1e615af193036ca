"""Sources in other programs: a child process that speaks JSON lines. docs/sources.md has the protocol."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr

from dalsegno.model.signal import ProviderError
from dalsegno.settings import Settings
from dalsegno.sources import forms
from dalsegno.sources.child import Answered, Child
from dalsegno.sources.hosts import Hosts
from dalsegno.sources.model import Gone, Media, NotOffered, Playlist, Pool, Source, Track, Unusable, Verb
from dalsegno.sources.registry import Config

log = logging.getLogger(__name__)
PROTOCOL = 1
TIMEOUT_SEC = 120.0
STATUSES = {"rate_limited": 429, "unauthorized": 401, "forbidden": 403, "unavailable": 503, "timeout": 504}
OURS = frozenset({"HOSTS", "ROOT", "TIMEOUT"})
"""The settings `SOURCE_<NAME>_…` that are for this side; the child gets the others."""
T = TypeVar("T")


def opener(name: str, command: str) -> Callable[[Config], Source]:
    def open_source(config: Config) -> Source:
        return External(name, command, config)

    return open_source


class External(Source):
    def __init__(self, name: str, command: str, config: Config) -> None:
        self.name = name
        own = config.own(name)
        self._hosts = Hosts(config, name, ())
        self._root = Path(own["ROOT"]).expanduser() if own.get("ROOT") else None
        self._secrets = tuple(value for key, value in own.items() if key not in OURS and len(value) > 3)
        settings = {key: value for key, value in own.items() if key not in OURS}
        hello = {"protocol": PROTOCOL, "name": name, "settings": settings}
        self._child = Child(name, command, env=environment(), hello=hello, timeout=seconds(own.get("TIMEOUT")))

    def can(self, verb: Verb) -> bool:
        """What the child said; True for one that cannot be started, so that whoever asks it is told why."""
        try:
            verbs = self._child.greet().get("verbs")
        except (ProviderError, Unusable, Answered, TimeoutError) as error:
            log.warning("%s: %s", self.name, self._shown(str(error)))
            return True
        return isinstance(verbs, list) and verb in verbs

    def pools(self) -> Iterable[Pool]:
        return self._ask("pools", {}, forms.pool)

    def playlists(self, pool: Pool) -> Iterable[Playlist]:
        return self._ask("playlists", {"pool": forms.written(pool)}, forms.playlist)

    def tracks(self, playlist: Playlist) -> Iterable[Track]:
        return self._ask("tracks", {"playlist": forms.written(playlist)}, forms.track)

    def search(self, track: Track) -> Iterable[Track]:
        return self._ask("search", {"track": forms.written(track)}, forms.track)

    def resolve(self, track: Track) -> Media:
        def read(form: Mapping[str, Any]) -> Media:
            return forms.media(form, self._hosts, self._root)

        found = list(self._ask("resolve", {"track": forms.written(track)}, read))
        if not found:
            raise Gone(f'{self.name} does not know where "{track.title}" is.')
        return found[0]

    def close(self) -> None:
        self._child.close()

    def _ask(self, method: Verb, params: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T]) -> Iterator[T]:
        try:
            answer = self._child.ask(method, params)
            for form in answer:
                yield read(form)
        except Answered as error:
            raise told(self.name, error, method, self._secrets) from None

    def _shown(self, text: str) -> str:
        return _without(self._secrets, text)


def told(name: str, error: Answered, method: str, secrets: tuple[str, ...]) -> Exception:
    """What a child says went wrong, as what providers raise."""
    message = f"{name}: {_without(secrets, str(error))[:500]}"
    match error.code:
        case "gone":
            return Gone(message)
        case "not_offered":
            return NotOffered(f"{name} has no {method}.")
        case code if code in STATUSES:
            wait = error.retry_after
            known = isinstance(wait, int | float) and not isinstance(wait, bool) and wait >= 0
            return ProviderError(STATUSES[code], headers={"retry-after": str(wait)} if known else {}, message=message)
        case "" | "failed":
            return ProviderError(message=message)
        case code:
            return Unusable(message, code="unusable_answer" if code == "unusable" else code[:60])


def _without(secrets: tuple[str, ...], text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def environment() -> dict[str, str]:
    """What this process has, without the secrets that are none of the child's business."""
    ours = {name.upper() for name, field in Settings.model_fields.items() if field.annotation is SecretStr}
    ours |= {"DATABASE_URL", "LISTEN_DATABASE_URL"}
    kept = {name: value for name, value in os.environ.items() if name.upper() not in ours}
    return {name: value for name, value in kept.items() if not name.upper().startswith("SOURCE_")}


def seconds(text: str | None) -> float:
    try:
        seconds = float(text or TIMEOUT_SEC)
    except ValueError:
        return TIMEOUT_SEC
    return seconds if 0 < seconds < 86_400 else TIMEOUT_SEC
