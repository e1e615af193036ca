"""Pages that yt-dlp can read. Needs the extra `ytdlp`.

The page's address is checked before yt-dlp is asked, but not each redirect it follows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dalsegno.requests.decoders.model import Decoded, Decoder, Link
from dalsegno.sources.model import Unusable
from dalsegno.sources.ytdlp import Session, check_page, expiry

if TYPE_CHECKING:
    from dalsegno.sources.hosts import Hosts

FORMAT = "/".join(f"best[protocol={scheme}]" for scheme in ("https", "http", "m3u8_native", "m3u8")) + "/best"
"""One file with sound before a stream in pieces."""


def is_installed() -> bool:
    return find_spec("yt_dlp") is not None


class YtDlp(Decoder):
    name = "ytdlp"

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts

    def can(self, link: Link) -> bool:
        return re.match("https?://", link.url, re.IGNORECASE) is not None

    def decode(self, link: Link) -> Decoded:
        check_page(link.url, trusted=self._hosts.trust(link.url))
        with Session(FORMAT, "decoder") as session:
            info = session.extract(link.url)
        url = str(info.get("url") or "")
        if not url.startswith(("http://", "https://")):
            raise Unusable("yt-dlp: this page plays nothing that has an address of its own.", code="no_media")
        return Decoded(url=url, quality=_quality(info), expires_at=expiry(url))


def _quality(info: Mapping[str, Any]) -> str:
    height = info.get("height")
    return f"{height}p" if isinstance(height, int) and height > 0 else ""
