"""The link is the file already: it is looked at, and passed on."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dalsegno.requests.decoders.model import Decoded, Decoder, Link
from dalsegno.sources.model import Unusable

if TYPE_CHECKING:
    from dalsegno.sources.hosts import Hosts
    from dalsegno.sources.http import Http, Method

FILES = (".mp4", ".m4v", ".mkv", ".webm", ".mov", ".avi", ".ts", ".m3u8", ".mpd", ".mp3", ".m4a", ".flac", ".ogg")
MEDIA = ("video/", "audio/", "application/octet-stream", "application/vnd.apple.mpegurl", "application/x-mpegurl",
         "application/dash+xml", "binary/octet-stream")  # fmt: skip
NOT_ALLOWED = 405


class Direct(Decoder):
    name = "direct"

    def __init__(self, http: Http, hosts: Hosts) -> None:
        self._http = http
        self._hosts = hosts

    def can(self, link: Link) -> bool:
        return urlsplit(link.url).path.lower().endswith(FILES)

    def decode(self, link: Link) -> Decoded:
        """Where it leads is not kept: an address behind a redirect may not last."""
        if not self._look(link.url, "HEAD"):
            self._look(link.url, "GET")
        return Decoded(url=link.url)

    def _look(self, url: str, method: Method) -> bool:
        """False: this way of asking is not allowed there."""
        with self._http.open(url, method=method, trusted=self._hosts.trust(url)) as answer:
            if method == "HEAD" and answer.status in (NOT_ALLOWED, 501):
                return False
            answer.check()
            kind = (answer.headers.get("content-type") or "").lower()
            if kind and not kind.startswith(MEDIA):
                raise Unusable(f"This is {kind.partition(';')[0][:60]}, no media file.", code="no_media")
        return True
