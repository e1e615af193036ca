"""What belongs beside a song: its words and its cover, under the song's own name."""

from __future__ import annotations

import logging
import re
from pathlib import Path, PurePosixPath

from dalsegno import durable

logger = logging.getLogger(__name__)

COVERS = ((b"\xff\xd8\xff", ".jpg"), (b"\x89PNG\r\n\x1a\n", ".png"))
_TIMED = re.compile(r"^[^\S\n]*\[\d+:\d\d(?:[.:]\d+)?\]", re.MULTILINE)
"""At the head of a line. Not \\s, which goes on over empty lines, from each of them anew."""


def write_companions(
    root: Path, song: PurePosixPath, *, lyrics: str | None = None, cover: bytes | None = None
) -> list[PurePosixPath]:
    """Those that were written. A file that is there already is left alone, and no trouble here is the song's."""
    wanted = []
    if lyrics and lyrics.strip():
        wanted.append((".lrc" if _TIMED.search(lyrics) else ".txt", lyrics.encode("utf-8", "replace")))
    if cover:
        kind = next((suffix for magic, suffix in COVERS if cover.startswith(magic)), None)
        if kind is None and cover[:4] == b"RIFF" and cover[8:12] == b"WEBP":
            kind = ".webp"
        if kind is not None:
            wanted.append((kind, cover))
    written = []
    for suffix, content in wanted:
        place = song.with_suffix(suffix)
        try:
            if _write_new(root / place, content):
                written.append(place)
        except OSError as error:
            logger.warning("%s could not be written beside its song: %s", place.name, error.strerror)
    return written


def _write_new(path: Path, content: bytes) -> bool:
    """Whole or not at all: what a crash cut short would never be written again."""
    if path.exists() or path.is_symlink():
        return False
    durable.write_whole(path, content)
    return True
