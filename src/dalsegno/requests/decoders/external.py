"""Decoders in other programs: child processes that speak JSON lines, kept warm. docs/requests.md has the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dalsegno.requests.decoders.model import Decoded, Decoder, Link
from dalsegno.requests.decoders.warm import Warm
from dalsegno.sources.child import Answered, Child
from dalsegno.sources.external import OURS, environment, seconds, told
from dalsegno.sources.forms import time_of
from dalsegno.sources.model import Gone, Unusable
from dalsegno.sources.urls import host_of, target

if TYPE_CHECKING:
    from dalsegno.sources.registry import Config

PROTOCOL = 1


class ExternalDecoder(Decoder):
    """Its settings are `SOURCE_<NAME>_…`, as of a source that is a program."""

    def __init__(self, name: str, command: str, config: Config, processes: int) -> None:
        self.name = name
        own = config.own(name)
        settings = {key: value for key, value in own.items() if key not in OURS}
        self._secrets = tuple(value for value in settings.values() if len(value) > 3)
        self._only = tuple(host.strip().lower() for host in own.get("HOSTS", "").split(",") if host.strip())
        hello = {"protocol": PROTOCOL, "name": name, "kind": "decoder", "settings": settings}
        env, timeout = environment(), seconds(own.get("TIMEOUT"))

        def start() -> Child:
            return Child(name, command, env=env, hello=hello, timeout=timeout, what="decoder")

        self._warm = Warm(start, processes)

    def can(self, link: Link) -> bool:
        """Every http address, or those of `SOURCE_<NAME>_HOSTS`; `*.example.org` has all its hosts."""
        host = host_of(link.url)
        if not host:
            return False
        return not self._only or any(
            host == each or (each.startswith("*.") and host.endswith(each[1:])) for each in self._only
        )

    def decode(self, link: Link) -> Decoded:
        asked = {name: value for name, value in asdict(link).items() if value not in ("", 0) or name == "url"}
        with self._warm.take(host_of(link.url)) as child:
            try:
                found = list(child.ask("decode", {"link": asked}))
            except Answered as error:
                raise told(self.name, error, "decode", self._secrets) from None
        if not found:
            raise Gone(f"{self.name} found nothing to play there.")
        return _decoded(found[0])

    def close(self) -> None:
        self._warm.close()


def _decoded(form: Mapping[str, Any]) -> Decoded:
    url, quality = form.get("url"), form.get("quality")
    if not isinstance(url, str) or not url:
        raise Unusable('What it answers for "url" is missing or of the wrong kind.', code="bad_answer")
    target(url)
    return Decoded(
        url=url,
        quality=f"{quality}"[:40] if isinstance(quality, str | int) and not isinstance(quality, bool) else "",
        expires_at=time_of(form.get("expires_at")),
    )
