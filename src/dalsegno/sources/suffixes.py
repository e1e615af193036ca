"""What the end of a file's name says about the sound in it."""

from __future__ import annotations

LOSSLESS = frozenset(
    {".flac", ".wav", ".wave", ".aiff", ".aif", ".aifc", ".alac", ".ape", ".wv", ".dsf", ".dff", ".tta", ".tak"}
)
LOSSY = frozenset({".mp3", ".mp2", ".mp1", ".ogg", ".oga", ".opus", ".aac", ".wma", ".mpc", ".spx", ".amr"})
EITHER = frozenset({".m4a", ".m4b", ".mp4", ".mka", ".webm", ".caf"})
"""Containers of both."""
AUDIO = LOSSLESS | LOSSY | EITHER


def suffix_of(name: str) -> str:
    """In small letters with its dot, and only if it is one of audio; else empty."""
    stem, dot, end = name.rpartition(".")
    suffix = f".{end.lower()}" if dot and stem else ""
    return suffix if suffix in AUDIO else ""


def lossless(suffix: str) -> bool | None:
    """None where the suffix alone does not tell."""
    if suffix in LOSSLESS:
        return True
    return False if suffix in LOSSY else None
